"""What each op of the reduction family means, in plain PyTorch and float64, or int64 for integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tileops_testing.references.reference import Reference

__all__ = ["REFERENCES", "prod_fwd", "softmax_fwd", "sum_fwd"]


def sum_fwd(
    x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the sum over ``dim`` of the elements converted to ``dtype``, in float64, or int64 for an integer result.

    ``dim`` of None and an empty list are all axes.
    """
    return _wide(x, dtype).sum(dim=dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim=keepdim)


def sum_terms(
    x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    """Return what the absolute values of the terms of `sum_fwd` add up to."""
    return sum_fwd(_wide(x, dtype).abs(), dim=dim, keepdim=keepdim)


def prod_fwd(x: Tensor, *, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """Return the product over ``dim`` of the elements converted to ``dtype``, as in `sum_fwd`."""
    return _wide(x, dtype).prod(dim=dim, keepdim=keepdim)


def softmax_fwd(x: Tensor, *, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return the softmax along ``dim`` of the elements converted to ``dtype``, in float64.

    ``dim`` of None is axis 0 of a tensor with 0, 1 or 3 axes, else axis 1.
    """
    axis = dim if dim is not None else 0 if x.ndim in {0, 1, 3} else 1
    return _wide(x, dtype).softmax(dim=axis)


def _wide(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """The elements converted to ``dtype``, by default x's own or int64 for integers, then widened without loss."""
    result = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    return x.to(result) if result is torch.int64 else x.to(result).double()


def _reduced(values: Mapping[str, object]) -> int:
    """The number of elements behind one of the result."""
    shape, dim = values["S"], values.get("dim")
    if not isinstance(shape, Sequence):
        raise TypeError(f"S: expected a shape, received {shape!r}")
    axes = range(len(shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    if not isinstance(axes, Sequence):
        raise TypeError(f"dim: expected an axis or axes, received {dim!r}")
    return math.prod(shape[axis] for axis in axes or range(len(shape))) if shape else 1


def _multiplied(values: Mapping[str, object]) -> int:
    """The terms of a sum whose error a product of so many factors has.

    The rounding of a partial sum is small against the whole, that of a partial product is not: each multiplication adds
    to the relative error a value of standard deviation 0.43 units. Six deviations of n of them are `2.6 * sqrt(n)`.
    """
    return 7 * _reduced(values)


def _along(values: Mapping[str, object]) -> int:
    """The length of softmax's axis, or more."""
    shape = values["S"]
    return max(shape, default=1) if isinstance(shape, Sequence) else 1


REFERENCES: Mapping[str, Reference] = {
    "SumFwdOp": Reference(sum_fwd, summed=_reduced, terms=sum_terms),
    "ProdFwdOp": Reference(prod_fwd, summed=_multiplied, values={"x": "near_one"}),
    "SoftmaxFwdOp": Reference(softmax_fwd, summed=_along),
}
