"""Variances, standard deviations, and variances with means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor

from tileops.op.base import Op
from tileops.reduction.base import keep_axes, keeping_axes, reduced_axes
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.reduction import (
    VAR_MEAN,
    VAR_MEAN_KERNELS,
    VARIANCE,
    VARIANCE_KERNELS,
    VarianceCall,
    VarianceFwdInterface,
    VarMeanFwdInterface,
)


class SpreadOp(Op):
    """An op whose manifest entry has the parameters `dim`, `correction` and `keepdim`, and the input `x`."""

    def __init__(
        self,
        dim: int | Sequence[int] | None = None,
        *,
        correction: float = 1.0,
        keepdim: bool = False,
        target: str | None = None,
    ) -> None:
        self.dim = dim
        self.correction = correction
        self.keepdim = keepdim
        super().__init__(target=target)


class OneSpreadOp(SpreadOp):
    """An op that gives the variance or its root."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = VARIANCE_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {VARIANCE: VarianceFwdInterface}
    gives: ClassVar[Literal["variance", "deviation"]]
    """Which of the two."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute the spread of a checked input."""
        return self.computation(x)(x.contiguous())

    def computation(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """The kernel of calls like this one, for their axes."""
        call = VarianceCall(device=x.device, dtype=x.dtype, gives=self.gives)
        axes = reduced_axes(self.dim, x.dim())
        kernel = partial(self.kernel_for(VARIANCE, call), axes=axes, correction=self.correction)
        return partial(keeping_axes, kernel, axes) if self.keepdim else kernel

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


class VarFwdOp(OneSpreadOp):
    """`y = sum((x - mean(x)) ** 2) / max(count - correction, 0)`: the variance of the elements of some axes.

    x: any shape and layout; float16, bfloat16 or float32. Returns a new contiguous tensor of x's dtype without the
    reduced axes, or with each of length one. Squares are those of differences from the mean, formed in float32 of
    differences from an element, so that a mean large against the spread costs no digits; the result is rounded once.
    The variance of nothing is NaN, as where an element is NaN or infinite. Where correction leaves nothing to divide by
    it is infinity, or NaN of equal elements; nothing warns of it.

    dim: the axis or axes to reduce, counted from the front or the back; None and an empty list are all of them.
    correction: what is taken from the number of elements, not necessarily whole. keepdim: keep reduced axes with length
    one.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError or ArgumentError on a call,
    before any kernel runs.

    Source: `torch.var`.
    """

    gives: ClassVar[Literal["variance", "deviation"]] = "variance"


class StdFwdOp(OneSpreadOp):
    """`y = sqrt(sum((x - mean(x)) ** 2) / max(count - correction, 0))`: the standard deviation over some axes.

    x: any shape and layout; float16, bfloat16 or float32. Returns a new contiguous tensor of x's dtype without the
    reduced axes, or with each of length one. The root is taken in float32 and rounded once. That of nothing is NaN, as
    where an element is NaN or infinite. Where correction leaves nothing to divide by it is infinity, or NaN of equal
    elements; nothing warns of it.

    dim: the axis or axes to reduce, counted from the front or the back; None and an empty list are all of them.
    correction: what is taken from the number of elements, not necessarily whole. keepdim: keep reduced axes with length
    one.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError or ArgumentError on a call,
    before any kernel runs.

    Source: `torch.std`.
    """

    gives: ClassVar[Literal["variance", "deviation"]] = "deviation"


class VarMeanFwdOp(SpreadOp):
    """`sum((x - mean(x)) ** 2) / max(count - correction, 0)` and `mean(x)`: the variance and the mean over some axes.

    x: any shape and layout; float16, bfloat16 or float32. Returns two new contiguous tensors of x's dtype without the
    reduced axes, or with each of length one, formed together in float32 and each rounded once. Both are NaN of nothing.
    Where an element is NaN or infinite, the variance is NaN and the mean not finite.

    dim: the axis or axes to reduce, counted from the front or the back; None and an empty list are all of them.
    correction: what is taken from the number of elements, not necessarily whole. keepdim: keep reduced axes with length
    one.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError or ArgumentError on a call,
    before any kernel runs.

    Source: `torch.var_mean`.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = VAR_MEAN_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {VAR_MEAN: VarMeanFwdInterface}

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the variance and the mean of a checked input."""
        axes = reduced_axes(self.dim, x.dim())
        kernel = self.kernel_for(VAR_MEAN, VarianceCall(device=x.device, dtype=x.dtype))
        variance, mean = kernel(x.contiguous(), axes, self.correction)
        if self.keepdim:
            return keep_axes(variance, x, axes), keep_axes(mean, x, axes)
        return variance, mean

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
