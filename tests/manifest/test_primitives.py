"""Primitives, each against torch's own answer or an independent computation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tileops.errors import ExpressionError
from tileops.manifest import primitives
from tileops.manifest.functions import PRIMITIVE_KINDS
from tileops.manifest.primitives import PRIMITIVES
from tileops.moe.layouts import ContiguousLayout, ContiguousPacking, MaskedLayout

SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def test_every_primitive_has_a_kind() -> None:
    """The functions and their kinds name the same 23 primitives."""
    assert sorted(PRIMITIVES) == sorted(PRIMITIVE_KINDS)
    assert len(PRIMITIVES) == 23


@settings(deadline=None)
@given(st.lists(SHAPES, max_size=3))
def test_broadcast_is_torch_s(shapes: list[tuple[int, ...]]) -> None:
    """Broadcast gives the shape that torch broadcasts to, and refuses what torch refuses."""
    try:
        expected = tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        with pytest.raises(ExpressionError, match="do not broadcast together"):
            primitives.broadcast(*shapes)
        return
    assert primitives.broadcast(*shapes) == expected


@settings(deadline=None)
@given(SHAPES, st.none() | st.integers(-4, 4) | st.lists(st.integers(-4, 4), max_size=3), st.booleans())
def test_reduced_is_torch_s(shape: tuple[int, ...], axes: int | list[int] | None, keepdim: bool) -> None:
    """Reduced gives the shape of torch.sum; valid_axes and unique_axes say when torch accepts the axes."""
    accepted = primitives.valid_axes(axes, len(shape)) and primitives.unique_axes(axes, len(shape))
    try:
        expected = tuple(torch.empty(shape).sum(dim=axes, keepdim=keepdim).shape)
    except (IndexError, RuntimeError):
        assert not accepted
        return
    assert accepted
    assert primitives.reduced(shape, axes, keepdim, "full") == expected


def test_reduced_of_no_axes() -> None:
    """An empty list of axes means all, none, or an error, as the caller says."""
    assert primitives.reduced((2, 3), (), False, "full") == ()
    assert primitives.reduced((2, 3), (), False, "noop") == tuple(torch.ones(2, 3).any(dim=()).shape)
    with pytest.raises(ExpressionError, match="an empty list of axes reduces nothing"):
        primitives.reduced((2, 3), (), False, "reject")


def test_axes_out_of_range() -> None:
    """An axis beyond the rank is invalid; rank 0 has the axes 0 and -1; reduced names the range."""
    assert primitives.valid_axes(0, 0)
    assert primitives.valid_axes(-1, 0)
    assert not primitives.valid_axes(1, 0)
    assert not primitives.valid_axes((0, 2), 2)
    with pytest.raises(ExpressionError, match=r"axis 2 is not among those of rank 2: -2 to 1"):
        primitives.reduced((2, 3), 2, False, "full")


@pytest.mark.parametrize(("value", "expected"), [(3, (3, 3)), ((3, 4), (3, 4)), ((5,), (5, 5)), (None, (7, 7))])
def test_per_axis(value: int | Sequence[int] | None, expected: tuple[int, int]) -> None:
    """A number is for all axes, a sequence has one for each, None takes the fallback."""
    assert tuple(primitives.per_axis(value, place, 2, fallback=7) for place in range(2)) == expected


def test_per_axis_refuses() -> None:
    """A sequence of another length, and None without a fallback, have no value."""
    with pytest.raises(ExpressionError, match="3 values do not fit 2 axes"):
        primitives.per_axis((1, 2, 3), 0, 2)
    with pytest.raises(ExpressionError, match="per_axis of None needs fallback="):
        primitives.per_axis(None, 0, 2)


@settings(deadline=None)
@given(st.integers(-100, 100), st.integers(1, 20))
def test_ceil_div(value: int, divisor: int) -> None:
    """ceil_div rounds up, for negative numbers too."""
    assert primitives.ceil_div(value, divisor) == math.ceil(value / divisor)


@pytest.mark.parametrize("divisor", [0, -1])
def test_ceil_div_refuses(divisor: int) -> None:
    """The divisor is positive."""
    with pytest.raises(ExpressionError, match=f"ceil_div needs a positive divisor, received {divisor}"):
        primitives.ceil_div(3, divisor)


@settings(deadline=None)
@given(st.lists(st.integers(-9, 9), max_size=5))
def test_sequence_functions(values: list[int]) -> None:
    """len, prod, sum, max, min and all are Python's, with a default for the extremes of nothing."""
    assert primitives.length(values) == len(values)
    assert primitives.total(values) == sum(values)
    assert primitives.product(values) == math.prod(values)
    assert primitives.greatest(values, default=-99) == max(values, default=-99)
    assert primitives.least(values, default=99) == min(values, default=99)
    assert primitives.every([value > 0 for value in values]) == all(value > 0 for value in values)


@pytest.mark.parametrize("extreme", [primitives.greatest, primitives.least])
def test_the_extreme_of_nothing_needs_a_default(extreme: object) -> None:
    """Max and min of an empty sequence have no value without a default."""
    assert callable(extreme)
    with pytest.raises(ExpressionError, match="max and min of nothing need default="):
        extreme(())


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 4), st.integers(0, 3), st.integers(1, 3))
def test_convolution_extents_are_torch_s(length: int, kernel: int, stride: int, padding: int, dilation: int) -> None:
    """conv.out gives torch's extent where torch convolves, and no positive extent where torch refuses."""
    found = primitives.convolved(length, kernel, stride, padding, dilation)
    x, w = torch.empty(1, 1, length, device="meta"), torch.empty(1, 1, kernel, device="meta")
    if length + 2 * padding < dilation * (kernel - 1) + 1:
        assert found <= 0
        return
    y = torch.nn.functional.conv1d(x, w, stride=stride, padding=padding, dilation=dilation)
    assert found == y.shape[-1]


@settings(deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_pooling_extents_are_torch_s(
    length: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> None:
    """pool.out gives torch's extent in both modes; 0 where the window does not fit."""
    padding = min(padding, kernel // 2)
    found = primitives.pooled(length, kernel, stride, padding, dilation, ceil_mode)
    x = torch.empty(1, 1, length)
    try:
        y = torch.nn.functional.max_pool1d(
            x, kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode
        )
    except RuntimeError:
        assert found == 0
        return
    assert found == y.shape[-1]


@pytest.mark.parametrize("extent", [primitives.convolved, primitives.pooled])
def test_strides_are_positive(extent: object) -> None:
    """A stride of 0 has no extent."""
    assert callable(extent)
    arguments = (8, 3, 0, 0, 1) + ((False,) if extent is primitives.pooled else ())
    with pytest.raises(ExpressionError, match="needs a positive stride, received 0"):
        extent(*arguments)


def test_capacity_of_layouts() -> None:
    """A slab has max_m rows per expert; tight rows have no padding; aligned ones room for every expert's."""
    aligned = ContiguousLayout(packing=ContiguousPacking.ALIGNED, alignment=4)
    assert primitives.capacity(MaskedLayout(max_m=5), 7, 3) == 15
    assert primitives.capacity(ContiguousLayout(), 7, 3) == 7
    for rows, experts in itertools.product(range(9), range(1, 4)):
        worst = max(
            sum(-(-size // 4) * 4 for size in sizes)
            for sizes in itertools.product(range(rows + 1), repeat=experts)
            if sum(sizes) == rows
        )
        found = primitives.capacity(aligned, rows, experts)
        assert found >= worst
        assert found % 4 == 0


def test_fields_of_layouts() -> None:
    """Reading a number that a layout has not got is an error of the language."""
    with pytest.raises(ExpressionError, match="a contiguous layout has no number max_m"):
        primitives.field_of(ContiguousLayout(), "max_m")


def test_expansion() -> None:
    """mhc.expansion inverts n * n + 2 * n for positive n, and refuses all else."""
    assert [primitives.expansion(n * n + 2 * n) for n in range(1, 50)] == list(range(1, 50))
    for wrong in (-3, 0, 1, 2, 4, 25):
        with pytest.raises(ExpressionError, match=r"is not n \* n \+ 2 \* n for a positive n"):
            primitives.expansion(wrong)


@pytest.mark.parametrize("dtype", list(primitives.DTYPES.values()), ids=primitives.show_dtype)
def test_dtype_functions(dtype: torch.dtype) -> None:
    """promote_int_to_float is the dtype of torch.sqrt; coalesce_dtype takes the first that there is."""
    if dtype.itemsize > 1 or not dtype.is_floating_point:
        assert primitives.promote_int_to_float(dtype) is torch.empty(1, dtype=dtype, device="meta").sqrt().dtype
    assert primitives.coalesce_dtype(None, dtype) is dtype
    assert primitives.coalesce_dtype(torch.int8, dtype) is torch.int8


@settings(deadline=None)
@given(st.integers(0, 100), st.integers(1, 12))
def test_balanced_sizes(total: int, count: int) -> None:
    """The sizes sum to the total, differ by one at most, and do not grow."""
    sizes = primitives.balanced_sizes(total, count)
    assert (sum(sizes), len(sizes)) == (total, count)
    assert max(sizes) - min(sizes) <= 1
    assert list(sizes) == sorted(sizes, reverse=True)


def test_sequences_are_bounded() -> None:
    """Repeat and balanced_sizes refuse lengths that are negative or too long to make."""
    assert primitives.repeat(3, 2) == (3, 3)
    for count in (-1, 1 << 40):
        with pytest.raises(ExpressionError, match="repeat makes 0 to"):
            primitives.repeat(1, count)
        with pytest.raises(ExpressionError, match="balanced_sizes cannot split"):
            primitives.balanced_sizes(3, count)


def test_category() -> None:
    """Category names the kind of a number or a dtype; True is no int."""
    assert [primitives.category(value) for value in (True, 1, 1.5, 1j)] == ["bool", "int", "float", "complex"]
    dtypes = (torch.bool, torch.uint8, torch.bfloat16, torch.complex64)
    assert [primitives.category(dtype) for dtype in dtypes] == ["bool", "int", "float", "complex"]


NUMBERS = [0, 1, -1, 127, 128, -128, -129, 255, 256, -255, -256, 65504, 65520, 2**31, 2**40, -(2**63), 2**63 - 1]
FLOATS = [
    0.5,
    -0.5,
    255.5,
    448.0,
    449.0,
    57344.0,
    65504.0,
    65505.0,
    3.4e38,
    3.5e38,
    1e300,
    math.inf,
    -math.inf,
    math.nan,
]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    ],
    ids=primitives.show_dtype,
)
@pytest.mark.parametrize("value", [*NUMBERS, *FLOATS])
def test_representable_is_torch_s(value: float, dtype: torch.dtype) -> None:
    """`representable` says when torch converts a number to the dtype without an overflow error."""
    try:
        torch.zeros(1, dtype=dtype).masked_fill_(torch.tensor([True]), value)
    except (RuntimeError, OverflowError):
        expected = False
    else:
        expected = True
    assert primitives.representable(value, dtype) == expected


@pytest.mark.parametrize(
    ("dtype", "infinite", "largest"),
    [
        (torch.float8_e4m3fn, False, 448.0),
        (torch.float8_e5m2, True, 57344.0),
        (torch.float8_e4m3fnuz, False, 240.0),
        (torch.float8_e5m2fnuz, False, 57344.0),
    ],
    ids=primitives.show_dtype,
)
def test_representable_of_short_floats(dtype: torch.dtype, infinite: bool, largest: float) -> None:
    """An 8-bit float holds NaN and its largest number; it holds infinity only where the format has one."""
    assert primitives.representable(math.inf, dtype) is infinite
    assert primitives.representable(math.nan, dtype)
    assert primitives.representable(largest, dtype)
    assert not primitives.representable(largest * 2, dtype)


@given(SHAPES, st.one_of(st.none(), st.integers(-3, 2), st.lists(st.integers(-3, 2), max_size=3, unique=True)))
def test_nonempty_axes_is_torch_s(shape: list[int], axes: int | list[int] | None) -> None:
    """A greatest element is looked for along axes that have elements; torch refuses the others."""
    assume(primitives.valid_axes(axes, len(shape)) and primitives.unique_axes(axes, len(shape)))
    try:
        torch.amax(torch.empty(shape, device="cpu"), () if axes is None else axes)
    except (IndexError, RuntimeError):
        accepted = False
    else:
        accepted = True
    assert primitives.nonempty_axes(axes, shape) == accepted
