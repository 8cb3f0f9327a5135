"""The passes of a reduction: each reduces a view of what the last one left, and together they reduce what was asked."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from tileops_kernels.reduction.passes import Pass, Spread, passes

TOGETHER = Spread(slices=1, columns=None, part=1 << 40, width=1)
"""A device that spreads nothing."""
HOPPER = Spread(slices=16 * 132, columns=32 * 132, part=4096, width=256, dealing=True, plenty=33)
EQUAL_PARTS = Spread(slices=4 * 132, columns=16 * 132, part=4096, width=256, plenty=9)
"""A device whose programs take parts that are slices of their own."""
TWO_THREADS = Spread(slices=2, columns=None, part=16384, width=256)


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((3, 4), (1,), [Pass(3, 4, 1)]),
        ((3, 4), (0,), [Pass(1, 3, 4)]),
        ((3, 4), (0, 1), [Pass(1, 12, 1)]),
        ((2, 3, 4, 5), (1, 2), [Pass(2, 12, 5)]),
        ((2, 3, 4), (0, 2), [Pass(6, 4, 1), Pass(1, 2, 3)]),
        ((5, 3, 4), (0, 2), [Pass(1, 5, 12), Pass(3, 4, 1)]),
        ((2, 1, 3, 1, 4), (0, 1, 3, 4), [Pass(6, 4, 1), Pass(1, 2, 3)]),
        ((2, 3, 1), (2,), [Pass(1, 1, 6)]),
        ((2, 3), (), [Pass(1, 1, 6)]),
        ((), (), [Pass(1, 1, 1)]),
        ((1, 1), (0, 1), [Pass(1, 1, 1)]),
    ],
)
def test_runs_of_axes(shape: tuple[int, ...], axes: tuple[int, ...], expected: list[Pass]) -> None:
    """Neighbouring reduced axes are one run, axes of length one are none, and the longest run goes first."""
    assert list(passes(shape, axes, TOGETHER)) == expected


@pytest.mark.parametrize(
    ("shape", "axes", "spread", "expected"),
    [
        ((2048, 4096), (1,), HOPPER, [Pass(2048, 4096, 1)]),
        ((64, 32768), (1,), HOPPER, [Pass(64, 32768, 1)]),
        ((64, 65536), (1,), HOPPER, [Pass(64, 65536, 1, parts=2), Pass(64, 2, 1)]),
        ((32, 32768), (1,), HOPPER, [Pass(32, 32768, 1, parts=8), Pass(32, 8, 1)]),
        ((4, 102400), (1,), HOPPER, [Pass(4, 102400, 1, parts=25), Pass(4, 25, 1)]),
        ((2048, 4096), (0,), HOPPER, [Pass(1, 2048, 4096)]),
        ((65536, 512), (0,), HOPPER, [Pass(1, 65536, 512, parts=8), Pass(1, 8, 512)]),
        ((4096, 2), (0,), HOPPER, [Pass(1, 32, 256), Pass(1, 128, 2)]),
        ((100_003,), (0,), HOPPER, [Pass(1, 100_003, 1, parts=24), Pass(1, 24, 1)]),
        ((9, 32768), (1,), EQUAL_PARTS, [Pass(9, 32768, 1)]),
        ((8, 32768), (1,), EQUAL_PARTS, [Pass(64, 4096, 1), Pass(8, 8, 1)]),
        ((2048, 4096), (1,), TWO_THREADS, [Pass(2048, 4096, 1)]),
        ((2048, 4096), (0,), TWO_THREADS, [Pass(2, 1024, 4096), Pass(1, 2, 4096)]),
        ((1 << 20,), (0,), TWO_THREADS, [Pass(2, 1 << 19, 1), Pass(1, 2, 1)]),
        ((1000,), (0,), TWO_THREADS, [Pass(1, 1000, 1)]),
    ],
)
def test_spread(shape: tuple[int, ...], axes: tuple[int, ...], spread: Spread, expected: list[Pass]) -> None:
    """Few long slices are split, into slices at a divisor; narrow columns lie side by side; short work stays whole."""
    assert list(passes(shape, axes, spread)) == expected


SHAPES = some.lists(some.sampled_from([1, 2, 3, 5, 16, 34]), max_size=5).filter(
    lambda shape: math.prod(shape) <= 40_000
)


@given(shape=SHAPES, chosen=some.lists(some.booleans(), min_size=5, max_size=5), slices=some.integers(1, 2000))
@pytest.mark.parametrize("columns", [None, 3000])
@pytest.mark.parametrize("dealing", [False, True])
def test_passes_reduce_what_was_asked(
    shape: list[int], chosen: list[bool], slices: int, columns: int | None, dealing: bool
) -> None:
    """Run one after another on any shape and axes, the passes give the sums of those axes in row-major order."""
    axes = tuple(axis for axis in range(len(shape)) if chosen[axis])
    x = torch.arange(math.prod(shape)).reshape(shape)
    rest = x
    spread = Spread(slices=slices, columns=columns, part=8, width=16, dealing=dealing)
    for each in passes(tuple(shape), axes, spread):
        assert each.outer * each.reduced * each.inner == rest.numel()
        assert dealing or each.parts == 1
        slices_of = rest.reshape(each.outer, each.reduced, each.inner)
        rest = torch.stack([slices_of[:, part :: each.parts].sum(1) for part in range(each.parts)], 1)
    expected = x.sum(axes) if axes else x
    assert torch.equal(rest.reshape(expected.shape), expected)


def test_the_first_pass_reads_everything_and_leaves_little() -> None:
    """Where there are several passes, the first leaves at most a sixteenth of what it read."""
    for shape, axis in itertools.product([(4096, 3), (1 << 20,), (7, 4096, 5), (2, 1 << 15)], (0, -1)):
        done = passes(shape, (axis % len(shape),), HOPPER)
        assert done[0].outer * done[0].reduced * done[0].inner == math.prod(shape)
        assert len(done) == 1 or done[0].reduced >= 16 * done[0].parts
