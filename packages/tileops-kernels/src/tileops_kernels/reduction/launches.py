"""What the reduction family's kernel types share: dtypes, launch settings of columns, and views that programs take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tileops_kernels.memory import ACCESS_BYTES, aligned

FLOATS = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
"""The floating-point dtypes of the family, with TileLang's names for them."""

INTEGERS = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
}
"""The other dtypes whose elements can be combined."""

NARROW = 64
"""Columns that are worth sharing among threads, for each of them."""

COMPLEXES = {torch.complex64: "complex64", torch.complex128: "complex128"}
"""The dtypes whose elements can only be counted; their parts are read as bits."""

WIDEST = 16
"""The most elements of one access, each of which is an accumulator of its own."""


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    """Launch settings of columns: elements of an access, threads across vectors and down one, its rows at a time."""

    vector: int
    across: int
    down: int
    unroll: int


def slices(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """The shape as `[outer, reduced, inner]` about one axis; a shape without axes has one element there."""
    return math.prod(shape[:axis]), shape[axis] if shape else 1, math.prod(shape[axis + 1 :])


def shared_axis(outer: int, inner: int, threads: int) -> str:
    """What the threads of a CPU share of `[outer, reduced, inner]`: slices, or where they are too few, columns."""
    return "columns" if outer < threads and inner >= NARROW * threads else "outer"


def vector_width(length: int, dtype: torch.dtype) -> int:
    """Elements of the widest access where it divides `length`, else 1."""
    vector = min(WIDEST, ACCESS_BYTES // dtype.itemsize)
    return vector if length % vector == 0 else 1


def rows_view(tensor: Tensor, outer: int, reduced: int, vector: int) -> Tensor:
    """A contiguous tensor as `[outer, reduced / vector, vector]`, with the address and strides that programs check."""
    return _begun(tensor, vector).as_strided((outer, reduced // vector, vector), (reduced, vector, 1))


def columns_view(tensor: Tensor, outer: int, reduced: int, inner: int, vector: int) -> Tensor:
    """A contiguous tensor as `[outer, reduced, inner / vector, vector]`, as `rows_view` gives rows."""
    return _begun(tensor, vector).as_strided(
        (outer, reduced, inner // vector, vector), (reduced * inner, inner, vector, 1)
    )


def packed_view(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """A contiguous tensor with the axes of `shape`, the last of which is an access, as `rows_view` gives rows."""
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    return _begun(tensor, shape[-1]).as_strided(tuple(shape), strides)


def _begun(tensor: Tensor, vector: int) -> Tensor:
    return tensor if vector == 1 else aligned(tensor)


def spelled(dtypes: dict[torch.dtype, str]) -> str:
    """The names of dtypes, as reasons of refusal list them."""
    return ", ".join(dtypes.values())


def bare(dtype: torch.dtype) -> str:
    """A dtype without `torch.`."""
    return str(dtype).removeprefix("torch.")
