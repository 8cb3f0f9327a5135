"""Primitives: the pure functions that any expression may call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import torch

from tileops.errors import ExpressionError
from tileops.manifest.kinds import DTYPE_NAMES

Dims: TypeAlias = tuple[int, ...]
Axes: TypeAlias = int | Sequence[int] | None
Category: TypeAlias = Literal["bool", "int", "float", "complex"]

DTYPES: Final[Mapping[str, torch.dtype]] = {name: getattr(torch, name) for name in sorted(DTYPE_NAMES)}
"""The dtypes that a signature may name."""
MOST_ELEMENTS: Final = 1 << 22
"""The longest sequence that an expression may make."""


class Layout(Protocol):
    """How the rows of grouped experts are laid out, as the primitives of that family read it."""

    @property
    def kind(self) -> str:
        """`contiguous` or `masked`."""


def show_shape(shape: Sequence[object]) -> str:
    """Return a shape as errors write it: [2, 4096]."""
    return f"[{', '.join(map(str, shape))}]"


def show_dtype(dtype: object) -> str:
    """Return a dtype as errors and case ids write it: float16."""
    return str(dtype).removeprefix("torch.")


def broadcast(*shapes: Sequence[int]) -> Dims:
    """Return the shape that all shapes broadcast to, by torch's rule: an extent of 1 stretches, to 0 too."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[int] = [1] * rank
    for shape in shapes:
        for place, extent in enumerate(shape, rank - len(shape)):
            known = result[place]
            if _is_one(extent):
                continue
            if not _is_one(known):
                if known == extent:
                    continue
                if extent == 1:
                    continue
                if known != 1:
                    raise ExpressionError(f"shapes {', '.join(map(show_shape, shapes))} do not broadcast together")
            result[place] = extent
    return tuple(result)


def _is_one(extent: object) -> bool:
    """Whether an extent is the number 1; a symbol is not asked, since asking would guard it."""
    return isinstance(extent, int) and extent == 1


def _listed(axes: Axes, rank: int) -> list[int]:
    """Return the axes counted from the front; None is all of them."""
    if axes is None:
        return list(range(rank))
    given = [axes] if isinstance(axes, int) else list(axes)
    room = max(rank, 1)
    for axis in given:
        if not -room <= axis < room:
            raise ExpressionError(f"axis {axis} is not among those of rank {rank}: {-room} to {room - 1}")
    return [axis % room for axis in given]


def reduced(shape: Sequence[int], axes: Axes, keepdim: bool, empty: Literal["full", "noop", "reject"]) -> Dims:
    """Return the shape after a reduction; `empty` says whether an empty list means all axes, none, or an error."""
    rank = len(shape)
    gone = set(_listed(axes, rank))
    if axes is not None and not isinstance(axes, int) and not gone:
        if empty == "reject":
            raise ExpressionError("an empty list of axes reduces nothing")
        gone = set(range(rank)) if empty == "full" else set()
    if keepdim:
        return tuple(1 if place in gone else extent for place, extent in enumerate(shape))
    return tuple(extent for place, extent in enumerate(shape) if place not in gone)


def valid_axes(axes: Axes, rank: int) -> bool:
    """Return whether each axis exists at that rank; rank 0 has the axes 0 and -1."""
    room = max(rank, 1)
    given = [] if axes is None else [axes] if isinstance(axes, int) else axes
    return all(-room <= axis < room for axis in given)


def unique_axes(axes: Axes, rank: int) -> bool:
    """Return whether no axis stands twice, counted from the front or the back."""
    given = _listed(axes, rank)
    return len(set(given)) == len(given)


def nonempty_axes(axes: Axes, shape: Sequence[int]) -> bool:
    """Return whether each of these axes of a shape has elements; None and an empty list are all axes."""
    every = axes is None or (not isinstance(axes, int) and not axes)
    return not shape or all(shape[axis] >= 1 for axis in _listed(None if every else axes, len(shape)))


def per_axis(value: int | Sequence[int] | None, place: int, count: int, *, fallback: int | None = None) -> int:
    """Return the value for one axis of `count`: its own of a sequence, the one for all, or the fallback for None."""
    if value is None:
        if fallback is None:
            raise ExpressionError("per_axis of None needs fallback=")
        return fallback
    if isinstance(value, Sequence):
        if len(value) not in {1, count} or not 0 <= place < count:
            raise ExpressionError(f"{len(value)} values do not fit {count} axes")
        return value[place if len(value) == count else 0]
    return value


def ceil_div(value: int, divisor: int) -> int:
    """Return value / divisor rounded up; the divisor is positive."""
    if divisor <= 0:
        raise ExpressionError(f"ceil_div needs a positive divisor, received {divisor}")
    return (value + divisor - 1) // divisor


def length(sequence: Sequence[object]) -> int:
    """Return the number of elements."""
    return len(sequence)


def product(values: Sequence[int]) -> int:
    """Return the product, 1 when there is nothing."""
    return math.prod(values)


def total(values: Sequence[int]) -> int:
    """Return the sum, 0 when there is nothing."""
    return sum(values)


def greatest(values: Sequence[int], *, default: int | None = None) -> int:
    """Return the greatest value; of nothing, the default."""
    return _extreme(torch.sym_max, values, default)


def least(values: Sequence[int], *, default: int | None = None) -> int:
    """Return the least value; of nothing, the default."""
    return _extreme(torch.sym_min, values, default)


def _extreme(choose: Callable[[int, int], int], values: Sequence[int], default: int | None) -> int:
    if not values:
        if default is None:
            raise ExpressionError("max and min of nothing need default=")
        return default
    found, *rest = values
    for value in rest:
        found = choose(found, value)
    return found


def every(values: Sequence[bool]) -> bool:
    """Return whether every value is true."""
    return all(values)


def convolved(length: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return the extent that a convolution leaves; it is not positive where the kernel does not fit."""
    if stride <= 0:
        raise ExpressionError(f"conv.out needs a positive stride, received {stride}")
    return (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def pooled(length: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Return the extent that pooling leaves; a last window that begins in the right padding is dropped."""
    if stride <= 0:
        raise ExpressionError(f"pool.out needs a positive stride, received {stride}")
    span = length + 2 * padding - dilation * (kernel - 1) - 1
    extent = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode:
        extent = least((extent, (length + padding - 1) // stride + 1))
    return greatest((extent, 0))


def capacity(layout: Layout, rows: int, experts: int) -> int:
    """Return the rows that a grouped layout materialises for `rows` routed rows."""
    if layout.kind == "masked":
        return experts * field_of(layout, "max_m")
    alignment = field_of(layout, "alignment")
    if alignment == 1:
        return rows
    return ceil_div(rows + experts * (alignment - 1), alignment) * alignment


def field_of(layout: Layout, name: str) -> int:
    """Return a whole-numbered field of a layout."""
    value = getattr(layout, name, None)
    if not isinstance(value, int):
        raise ExpressionError(f"a {layout.kind} layout has no number {name}")
    return value


def expansion(mixing: int) -> int:
    """Return the positive n with n * n + 2 * n equal to `mixing`."""
    found = math.isqrt(int(mixing) + 1) - 1 if mixing >= 0 else 0
    if found <= 0 or found * (found + 2) != mixing:
        raise ExpressionError(f"{mixing} is not n * n + 2 * n for a positive n")
    return found


def promote_int_to_float(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for a dtype of whole numbers or truth values, and any other dtype as it is."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.float32


def coalesce_dtype(first: torch.dtype | None, second: torch.dtype) -> torch.dtype:
    """Return the first dtype when there is one, else the second."""
    return second if first is None else first


def balanced_sizes(total: int, count: int) -> Dims:
    """Return `count` sizes that sum to `total` and differ by one at most, the larger ones first."""
    if count <= 0 or total < 0 or count > MOST_ELEMENTS:
        raise ExpressionError(f"balanced_sizes cannot split {total} into {count} parts")
    size, larger = divmod(total, count)
    return (size + 1,) * larger + (size,) * (count - larger)


def repeat(value: int, count: int) -> Dims:
    """Return `count` copies of a number."""
    if not 0 <= count <= MOST_ELEMENTS:
        raise ExpressionError(f"repeat makes 0 to {MOST_ELEMENTS} copies, not {count}")
    return (value,) * count


def category(value: object) -> Category:
    """Return the numeric category of a number or a dtype."""
    if isinstance(value, torch.dtype):
        if value.is_complex:
            return "complex"
        if value.is_floating_point:
            return "float"
        return "bool" if value is torch.bool else "int"
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else "complex"


def representable(value: int | float, dtype: torch.dtype) -> bool:  # noqa: PYI041 - the two are treated apart
    """Return whether torch converts the number to the dtype without overflow; fractions may be lost."""
    if dtype is torch.bool:
        return True
    if dtype.is_complex:
        return representable(value, torch.float32 if dtype is torch.complex64 else torch.float64)
    if dtype.is_floating_point:
        if math.isnan(value):
            return True
        if math.isinf(value):
            return dtype not in _WITHOUT_INFINITY
        bounds = torch.finfo(dtype)
        return bounds.min <= value <= bounds.max
    if not math.isfinite(value):
        return False
    limits = torch.iinfo(dtype)
    if not dtype.is_signed and isinstance(value, int):
        return -limits.max <= value <= limits.max
    return limits.min <= value <= limits.max


_WITHOUT_INFINITY: Final = frozenset({torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz})

PRIMITIVES: Final[Mapping[str, Callable[..., object]]] = {
    "broadcast": broadcast,
    "reduced": reduced,
    "valid_axes": valid_axes,
    "unique_axes": unique_axes,
    "nonempty_axes": nonempty_axes,
    "per_axis": per_axis,
    "ceil_div": ceil_div,
    "len": length,
    "prod": product,
    "sum": total,
    "max": greatest,
    "min": least,
    "all": every,
    "conv.out": convolved,
    "pool.out": pooled,
    "moe.capacity": capacity,
    "mhc.expansion": expansion,
    "promote_int_to_float": promote_int_to_float,
    "coalesce_dtype": coalesce_dtype,
    "balanced_sizes": balanced_sizes,
    "repeat": repeat,
    "category": category,
    "representable": representable,
}
