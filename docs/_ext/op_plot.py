"""A small plot of measured times against the roofline, as SVG that takes its colours from the page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 26, 24, 44
"""Margins around the area of the plot, in its units."""


@dataclass(frozen=True)
class Point:
    """One case: its name, its least time, its measured time and the fastest peer's, in seconds."""

    case: str
    least: float
    seconds: float
    peer: str
    peer_seconds: float | None


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis of microseconds from `low` to `high`, on both axes alike."""

    low: float
    high: float

    def x(self, seconds: float) -> float:
        """Return the place of a time on the horizontal axis."""
        return LEFT + self._share(seconds) * (WIDTH - LEFT - RIGHT)

    def y(self, seconds: float) -> float:
        """Return the place of a time on the vertical axis."""
        return HEIGHT - BOTTOM - self._share(seconds) * (HEIGHT - TOP - BOTTOM)

    def _share(self, seconds: float) -> float:
        return math.log(seconds * 1e6 / self.low) / math.log(self.high / self.low)

    def ticks(self) -> Iterator[float]:
        """Yield the marked microseconds: powers of ten, with two and five between them where few decades are shown."""
        steps = (1.0, 2.0, 5.0) if self.high / self.low <= 100 else (1.0,)
        for power in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1):
            for step in steps:
                if self.low <= (mark := step * 10.0**power) <= self.high * 1.0001:
                    yield mark


def plot_of(points: Sequence[Point], device: str) -> str:
    """Return the plot: the roofline as a line, a point for each case and one for its fastest peer."""
    scale = _scale(points)
    label = f"Measured time against the roofline on {device}, {len(points)} cases"
    svg = ET.Element("svg", {"class": "plot", "viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": label})
    _axes(svg, scale)
    low, high = scale.low / 1e6, scale.high / 1e6
    _add(svg, "line", "roofline", x1=scale.x(low), x2=scale.x(high), y1=scale.y(low), y2=scale.y(high))
    for point in points:
        if point.peer_seconds is not None:
            words = f"{point.case}: {point.peer} {point.peer_seconds * 1e6:.1f} µs"
            _mark(svg, "peer", scale.x(point.least), scale.y(point.peer_seconds), words)
    for point in points:
        words = f"{point.case}: {point.seconds * 1e6:.1f} µs, roofline {point.least * 1e6:.1f} µs"
        _mark(svg, "own", scale.x(point.least), scale.y(point.seconds), words)
    _legend(svg)
    return ET.tostring(svg, encoding="unicode")


def _scale(points: Sequence[Point]) -> Scale:
    """Return an axis that holds every time with some room, from and to a round number."""
    times = [point.least for point in points] + [point.seconds for point in points]
    times += [point.peer_seconds for point in points if point.peer_seconds is not None]
    low, high = min(times) * 1e6 / 1.15, max(times) * 1e6 * 1.15
    return Scale(_round(low, up=False), _round(high, up=True))


def _round(number: float, *, up: bool) -> float:
    """Return the next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(number))
    steps = (1.0, 2.0, 5.0, 10.0)
    fitting = [step * power for step in steps if (step * power >= number if up else step * power <= number)]
    return min(fitting) if up else max(fitting)


def _axes(svg: ET.Element, scale: Scale) -> None:
    bottom, left = HEIGHT - BOTTOM, LEFT
    for mark in scale.ticks():
        x, y = scale.x(mark / 1e6), scale.y(mark / 1e6)
        _add(svg, "line", "grid", x1=x, x2=x, y1=TOP, y2=bottom)
        _add(svg, "line", "grid", x1=left, x2=WIDTH - RIGHT, y1=y, y2=y)
        _write(svg, f"{mark:,g}", x=x, y=bottom + 16, text_anchor="middle")
        _write(svg, f"{mark:,g}", x=left - 6, y=y + 4, text_anchor="end")
    middle = (left + WIDTH - RIGHT) / 2
    _write(svg, "roofline, µs", x=middle, y=HEIGHT - 8, text_anchor="middle")
    height = (TOP + bottom) / 2
    _write(svg, "measured, µs", x=12, y=height, text_anchor="middle", transform=f"rotate(-90 12 {height:.1f})")


def _legend(svg: ET.Element) -> None:
    _mark(svg, "own", LEFT + 8, 10, "")
    _write(svg, "TileOPs", x=LEFT + 18, y=14)
    _mark(svg, "peer", LEFT + 90, 10, "")
    _write(svg, "fastest peer", x=LEFT + 100, y=14)
    _add(svg, "line", "roofline", x1=LEFT + 190, x2=LEFT + 214, y1=10, y2=10)
    _write(svg, "roofline", x=LEFT + 220, y=14)


def _mark(svg: ET.Element, kind: str, x: float, y: float, words: str) -> None:
    """Add a point; `words` are shown under the pointer."""
    mark = _add(svg, "circle", kind, cx=x, cy=y, r=4 if kind == "own" else 3.5)
    if words:
        ET.SubElement(mark, "title").text = words


def _write(svg: ET.Element, words: str, **attributes: float | str) -> None:
    _add(svg, "text", "label", **attributes).text = words


def _add(svg: ET.Element, tag: str, kind: str, **attributes: float | str) -> ET.Element:
    """Add an element of a class; an attribute whose name has a hyphen is given with an underscore."""
    written = {
        name.replace("_", "-"): value if isinstance(value, str) else f"{value:.1f}"
        for name, value in attributes.items()
    }
    return ET.SubElement(svg, tag, {"class": kind, **written})
