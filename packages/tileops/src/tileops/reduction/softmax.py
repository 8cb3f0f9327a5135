"""Softmax, and its logarithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.reduction import SOFTMAX, SOFTMAX_KERNELS, SoftmaxCall, SoftmaxFwdInterface


class SoftmaxOp(Op):
    """An op whose manifest entry has the parameters `dim` and `dtype`, and the input `x`."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = SOFTMAX_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {SOFTMAX: SoftmaxFwdInterface}
    log: ClassVar[bool]
    """Whether the result is the logarithm."""

    def __init__(self, dim: int | None = None, *, dtype: torch.dtype | None = None, target: str | None = None) -> None:
        self.dim = dim
        self.dtype = dtype
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the softmax of a checked input."""
        return self.computation(x)(x.contiguous())

    def computation(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """The kernel of calls like this one, for their axis."""
        call = SoftmaxCall(device=x.device, dtype=x.dtype, result=self.dtype or x.dtype, log=self.log)
        kernel = self.kernel_for(SOFTMAX, call)
        if x.dim() == 0:
            return lambda x: kernel(x.view(1), 0).view(())
        return partial(kernel, axis=softmax_axis(self.dim, x.dim()))

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


class SoftmaxFwdOp(SoftmaxOp):
    """`exp(x - max(x)) / sum(exp(x - max(x)))` along one axis.

    x: any shape and layout; float16, bfloat16 or float32. Returns a new contiguous tensor of x's shape in `dtype`, else
    in x's dtype. Elements are converted to that dtype first; everything else is float32 and rounded once. Where the
    axis holds NaN, plus infinity or nothing but minus infinity, its results are NaN.

    dim: the axis, counted from the front or the back; None is axis 0 of a tensor with 0, 1 or 3 axes, else axis 1.
    dtype: of the result.

    Raises ParameterTypeError at construction, and AxisError, DTypeError or ArgumentError on a call, before any
    kernel runs.

    Source: `torch.nn.functional.softmax`.
    """

    log: ClassVar[bool] = False


class LogSoftmaxFwdOp(SoftmaxOp):
    """`x - max(x) - log(sum(exp(x - max(x))))` along one axis: the logarithm of its softmax.

    x: any shape and layout; float16, bfloat16 or float32. Returns a new contiguous tensor of x's shape in `dtype`, else
    in x's dtype. Elements are converted to that dtype first; everything else is float32 and rounded once. Where the
    axis holds NaN, plus infinity or nothing but minus infinity, its results are NaN; minus infinity beside others stays
    as it is.

    dim: the axis, counted from the front or the back; None is axis 0 of a tensor with 0, 1 or 3 axes, else axis 1.
    dtype: of the result.

    Raises ParameterTypeError at construction, and AxisError, DTypeError or ArgumentError on a call, before any
    kernel runs.

    Source: `torch.nn.functional.log_softmax`.
    """

    log: ClassVar[bool] = True


def softmax_axis(dim: int | None, rank: int) -> int:
    """The axis that `dim` names, counted from the front; None is 0 at rank 0, 1 and 3, and 1 at others."""
    if dim is None:
        return 0 if rank in {0, 1, 3} else 1
    return dim % rank
