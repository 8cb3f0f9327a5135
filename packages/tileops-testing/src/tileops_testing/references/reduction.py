"""What each op of the reduction family means, in plain PyTorch and float64, or int64 for integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tileops_testing.references.reference import Reference

__all__ = [
    "REFERENCES",
    "all_fwd",
    "amax_fwd",
    "amin_fwd",
    "any_fwd",
    "argmax_fwd",
    "argmin_fwd",
    "count_nonzero_fwd",
    "cumprod_fwd",
    "cumsum_fwd",
    "log_softmax_fwd",
    "log_sum_exp_fwd",
    "mean_fwd",
    "prod_fwd",
    "softmax_fwd",
    "std_fwd",
    "sum_fwd",
    "var_fwd",
    "var_mean_fwd",
    "vector_norm_fwd",
]


def sum_fwd(
    x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the sum over ``dim`` of the elements converted to ``dtype``, in float64, or int64 for an integer result.

    ``dim`` of None and an empty list are all axes.
    """
    return _wide(x, dtype).sum(dim=_axes(dim), keepdim=keepdim)


def sum_terms(
    x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    """Return what the absolute values of the terms of `sum_fwd` add up to."""
    return sum_fwd(_wide(x, dtype).abs(), dim=dim, keepdim=keepdim)


def prod_fwd(x: Tensor, *, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """Return the product over ``dim`` of the elements converted to ``dtype``, as in `sum_fwd`."""
    return _wide(x, dtype).prod(dim=dim, keepdim=keepdim)


def mean_fwd(
    x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the mean over ``dim`` of the elements converted to ``dtype``, in float64; axes as in `sum_fwd`."""
    return _wide(x, dtype or x.dtype).mean(dim=_axes(dim), keepdim=keepdim)


def mean_terms(
    x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    """Return what the absolute values of the terms of `mean_fwd` add up to, divided as they are."""
    return mean_fwd(_wide(x, dtype or x.dtype).abs(), dim=dim, keepdim=keepdim)


def amax_fwd(x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Return the greatest elements over ``dim``, axes as in `sum_fwd`; NaN is greater than all."""
    return x.amax(dim=_every(x, dim), keepdim=keepdim)


def amin_fwd(x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Return the least elements over ``dim``, axes as in `sum_fwd`; NaN is less than all."""
    return x.amin(dim=_every(x, dim), keepdim=keepdim)


def all_fwd(x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Return whether no element over ``dim`` is zero; an empty list of axes reduces nothing."""
    return x.ne(0).all(_every(x, dim), keepdim) if x.ndim else x.ne(0)


def any_fwd(x: Tensor, *, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Return whether an element over ``dim`` is not zero; an empty list of axes reduces nothing."""
    return ~all_fwd(x.eq(0), dim=dim, keepdim=keepdim)


def count_nonzero_fwd(x: Tensor, *, dim: int | Sequence[int] | None = None) -> Tensor:
    """Return how many elements over ``dim`` are not zero, axes as in `sum_fwd`."""
    return x.ne(0).long().sum(dim=_axes(dim))


def vector_norm_fwd(
    x: Tensor,
    *,
    ord: float = 2.0,  # noqa: A002 - torch's name
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the norm of order ``ord`` over ``dim`` of the elements converted to ``dtype``, in float64."""
    norm: Tensor = torch.linalg.vector_norm(_wide(x, dtype), ord, _axes(dim), keepdim)
    return norm


def argmax_fwd(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return where the first of the greatest elements over ``dim`` stands, None for all axes; NaN is the greatest."""
    return _first(x.isnan() | x.eq(amax_fwd(x, dim=dim, keepdim=True)), dim, keepdim)


def argmin_fwd(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return where the first of the least elements over ``dim`` stands, None for all axes; NaN is the least."""
    return _first(x.isnan() | x.eq(amin_fwd(x, dim=dim, keepdim=True)), dim, keepdim)


def cumsum_fwd(x: Tensor, *, dim: int = -1) -> Tensor:
    """Return the sums along ``dim`` up to each element, in float64, or int64 for integers."""
    return _wide(x, None).cumsum(dim)


def cumsum_terms(x: Tensor, *, dim: int = -1) -> Tensor:
    """Return what the absolute values of the terms of `cumsum_fwd` add up to."""
    return cumsum_fwd(_wide(x, None).abs(), dim=dim)


def cumprod_fwd(x: Tensor, *, dim: int = -1) -> Tensor:
    """Return the products along ``dim`` up to each element, in float64, or int64 for integers."""
    return _wide(x, None).cumprod(dim)


def softmax_fwd(x: Tensor, *, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return the softmax along ``dim`` of the elements converted to ``dtype``, in float64.

    ``dim`` of None is axis 0 of a tensor with 0, 1 or 3 axes, else axis 1.
    """
    return _wide(x, dtype).softmax(dim=_softmax_axis(x, dim))


def log_softmax_fwd(x: Tensor, *, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return the logarithm of `softmax_fwd`, in float64."""
    return _wide(x, dtype).log_softmax(dim=_softmax_axis(x, dim))


def log_softmax_terms(x: Tensor, *, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return what is added up in `log_softmax_fwd`: how far each element is below the greatest, and the log of a sum.

    One is added, since the logarithm turns the relative error of its sum into an absolute one.
    """
    wide, axis = _wide(x, dtype), _softmax_axis(x, dim)
    if not wide.numel():
        return wide
    below = wide.amax(axis, keepdim=True) - wide
    return below + (-below).logsumexp(axis, keepdim=True) + 1


def log_sum_exp_fwd(x: Tensor, *, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """Return the logarithm of the sum over ``dim`` of exponentials, in float64, of integers as float32."""
    return _floats(x).logsumexp(_every(x, dim), keepdim)


def log_sum_exp_terms(x: Tensor, *, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """Return what is added up in `log_sum_exp_fwd`: the greatest element, and the log of a sum.

    One is added, as in `log_softmax_terms`.
    """
    wide, axes = _floats(x), _every(x, dim)
    if not wide.numel():
        return wide.sum(axes, keepdim)
    greatest = wide.amax(axes, keepdim=True)
    terms = greatest.abs() + (wide - greatest).logsumexp(axes, keepdim=True) + 1
    return terms if keepdim else terms.sum(axes)


def var_fwd(
    x: Tensor, *, dim: int | Sequence[int] | None = None, correction: float = 1, keepdim: bool = False
) -> Tensor:
    """Return the variance over ``dim``, in float64; axes as in `sum_fwd`."""
    return var_mean_fwd(x, dim=dim, correction=correction, keepdim=keepdim)[0]


def std_fwd(
    x: Tensor, *, dim: int | Sequence[int] | None = None, correction: float = 1, keepdim: bool = False
) -> Tensor:
    """Return the standard deviation over ``dim``, in float64; axes as in `sum_fwd`."""
    return var_fwd(x, dim=dim, correction=correction, keepdim=keepdim).sqrt()


def var_mean_fwd(
    x: Tensor, *, dim: int | Sequence[int] | None = None, correction: float = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean over ``dim``, in float64; axes as in `sum_fwd`."""
    wide, axes = x.double(), _axes(dim)
    mean = wide.mean(dim=axes, keepdim=True)
    count = x.numel() // mean.numel() if mean.numel() else 0
    squares = (wide - mean).square().sum(dim=axes, keepdim=keepdim)
    return squares / max(count - correction, 0), wide.mean(dim=axes, keepdim=keepdim)


def var_mean_terms(
    x: Tensor, *, dim: int | Sequence[int] | None = None, correction: float = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return what the terms of `var_mean_fwd` add up to: squares are none below zero, the mean's terms may cancel."""
    variance, _ = var_mean_fwd(x, dim=dim, correction=correction, keepdim=keepdim)
    return variance, mean_terms(x, dim=dim, keepdim=keepdim)


def _floats(x: Tensor) -> Tensor:
    """The elements in float64, integers as float32 holds them."""
    return (x if x.dtype.is_floating_point else x.float()).double()


def _softmax_axis(x: Tensor, dim: int | None) -> int:
    """The axis of ``dim``, the implicit one for None."""
    return dim if dim is not None else 0 if x.ndim in {0, 1, 3} else 1


def _axes(dim: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    """Axes as torch's reductions take them."""
    return dim if dim is None or isinstance(dim, int) else tuple(dim)


def _every(x: Tensor, dim: int | Sequence[int] | None) -> tuple[int, ...]:
    """The axes of ``dim``, all of them for None."""
    return tuple(range(x.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)


def _first(found: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """How many elements stand before the first true one, along ``dim`` or in all."""
    if dim is None:
        place = _first(found.reshape(-1), 0, keepdim)
        return place.view([1] * found.ndim) if keepdim else place
    return found.int().cumsum(dim).eq(0).sum(dim=dim, keepdim=keepdim)


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
    """The length of one axis, or more."""
    shape = values["S"]
    return max(shape, default=1) if isinstance(shape, Sequence) else 1


def _multiplied_along(values: Mapping[str, object]) -> int:
    """As `_multiplied`, of the products along one axis."""
    return 7 * _along(values)


REFERENCES: Mapping[str, Reference] = {
    "SumFwdOp": Reference(sum_fwd, summed=_reduced, terms=sum_terms),
    "ProdFwdOp": Reference(prod_fwd, summed=_multiplied, values={"x": "near_one"}),
    "MeanFwdOp": Reference(mean_fwd, summed=_reduced, terms=mean_terms),
    "AmaxFwdOp": Reference(amax_fwd),
    "AminFwdOp": Reference(amin_fwd),
    "AllFwdOp": Reference(all_fwd),
    "AnyFwdOp": Reference(any_fwd),
    "ArgmaxFwdOp": Reference(argmax_fwd),
    "ArgminFwdOp": Reference(argmin_fwd),
    "CountNonzeroFwdOp": Reference(count_nonzero_fwd),
    "VectorNormFwdOp": Reference(vector_norm_fwd, summed=_reduced),
    "CumsumFwdOp": Reference(cumsum_fwd, summed=_along, terms=cumsum_terms),
    "CumprodFwdOp": Reference(cumprod_fwd, summed=_multiplied_along, values={"x": "near_one"}),
    "SoftmaxFwdOp": Reference(softmax_fwd, summed=_along),
    "LogSoftmaxFwdOp": Reference(log_softmax_fwd, summed=_along, terms=log_softmax_terms),
    "LogSumExpFwdOp": Reference(log_sum_exp_fwd, summed=_reduced, terms=log_sum_exp_terms),
    "VarFwdOp": Reference(var_fwd, summed=_reduced),
    "StdFwdOp": Reference(std_fwd, summed=_reduced),
    "VarMeanFwdOp": Reference(var_mean_fwd, summed=_reduced, terms=var_mean_terms),
}
