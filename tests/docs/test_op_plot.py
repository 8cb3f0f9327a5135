"""The plot of measured times places every point by its times, on axes that hold them all."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from op_plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Point, plot_of


def circles(*points: Point) -> list[ET.Element]:
    """Return the points of a plot that tell of a case, without the legend's."""
    return [mark for mark in ET.fromstring(plot_of(points, "a device")).iter("circle") if len(mark)]  # noqa: S314


def place(mark: ET.Element) -> tuple[float, float]:
    """Return where a point stands."""
    return float(mark.attrib["cx"]), float(mark.attrib["cy"])


def test_a_time_at_the_roofline_lies_on_its_line() -> None:
    """The line joins the area's corners, and a case that takes the roofline's time is on it."""
    (mark,) = circles(Point("a", 1e-5, 1e-5, "", None))
    x, y = place(mark)
    along = (x - LEFT) / (WIDTH - LEFT - RIGHT)
    up = (HEIGHT - BOTTOM - y) / (HEIGHT - TOP - BOTTOM)
    assert along == pytest.approx(up, abs=0.002)


def test_a_slower_case_lies_above_a_faster_one_and_its_peer_beside_it() -> None:
    """Longer times are higher; the peer has the case's horizontal place, and each point says its case."""
    slow, fast = Point("slow", 1e-5, 3e-5, "torch", 2e-5), Point("fast", 1e-5, 1.1e-5, "", None)
    peer, first, second = circles(slow, fast)
    assert place(first)[1] < place(peer)[1] < place(second)[1]
    assert place(first)[0] == place(peer)[0] == place(second)[0]
    assert [mark[0].text for mark in (peer, first)] == ["slow: torch 20.0 µs", "slow: 30.0 µs, roofline 10.0 µs"]


@pytest.mark.parametrize("times", [(1e-7, 2e-7), (1e-6, 1e-6), (1.2e-6, 0.9), (5e-4, 5e-4)])
def test_every_point_is_inside_the_axes(times: tuple[float, float]) -> None:
    """Whatever the times, points and marks lie in the area, and each axis has two marks at least."""
    least, seconds = times
    plot = plot_of([Point("a", least, seconds, "torch", 2 * seconds)], "a device")
    for mark in circles(Point("a", least, seconds, "torch", 2 * seconds)):
        x, y = place(mark)
        assert LEFT <= x <= WIDTH - RIGHT
        assert TOP <= y <= HEIGHT - BOTTOM
    assert plot.count('class="grid"') >= 4
