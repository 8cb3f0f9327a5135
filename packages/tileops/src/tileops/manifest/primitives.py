"""Primitives: the pure functions that any expression may call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch

from tileops.errors import ExpressionError
from tileops.manifest.kinds import DTYPE_NAMES

Dims = tuple[int, ...]


def broadcast(*shapes: Dims) -> Dims:
    """Return the shape that all shapes broadcast to, by torch's rule; an extent of 1 stretches, 0 included."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for place, extent in enumerate(shape, rank - len(shape)):
            if result[place] == extent or extent == 1:
                continue
            if result[place] != 1:
                raise ExpressionError(f"shapes {', '.join(map(show_shape, shapes))} do not broadcast together")
            result[place] = extent
    return tuple(result)


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
    """Return the greatest value; without any, the default."""
    return _extreme(max, values, default)


def least(values: Sequence[int], *, default: int | None = None) -> int:
    """Return the least value; without any, the default."""
    return _extreme(min, values, default)


def _extreme(choose: Callable[[Sequence[int]], int], values: Sequence[int], default: int | None) -> int:
    found = tuple(values)
    if found:
        return choose(found)
    if default is None:
        raise ExpressionError("max and min of nothing need default=")
    return default


def every(values: Sequence[bool]) -> bool:
    """Return whether every value is true."""
    return all(values)


def show_shape(shape: Sequence[object]) -> str:
    """Return a shape as errors write it: [2, 4096]."""
    return f"[{', '.join(map(str, shape))}]"


PRIMITIVES: Final[Mapping[str, Callable[..., object]]] = {
    "broadcast": broadcast,
    "ceil_div": ceil_div,
    "len": length,
    "prod": product,
    "sum": total,
    "max": greatest,
    "min": least,
    "all": every,
}

DTYPES: Final[Mapping[str, torch.dtype]] = {name: getattr(torch, name) for name in sorted(DTYPE_NAMES)}
"""The dtypes that a signature may name."""


def show_dtype(dtype: object) -> str:
    """Return a dtype as errors and case ids write it: float16."""
    return str(dtype).removeprefix("torch.")
