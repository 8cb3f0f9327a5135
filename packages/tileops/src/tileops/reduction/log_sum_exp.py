"""The logarithm of a sum of exponentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops.reduction.base import keeping_axes, reduced_axes
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.reduction import LOG_SUM_EXP, LOG_SUM_EXP_KERNELS, LogSumExpCall, LogSumExpFwdInterface


class LogSumExpFwdOp(Op):
    """`log(sum(exp(x)))` over some axes, formed so that no exponential overflows.

    x: any shape and layout; float16, bfloat16, float32, bool or an integer dtype. Returns a new contiguous tensor
    without the reduced axes, or with each of length one, in x's dtype, of integers and bool in float32. Exponentials of
    differences from the greatest element are summed in float32, and the result is rounded once. That of nothing, or of
    nothing but minus infinity, is minus infinity; with plus infinity it is plus infinity, and with NaN it is NaN.

    dim: the axis or axes to reduce, counted from the front or the back; an empty list is refused. keepdim: keep reduced
    axes with length one.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError, RuleError or
    ArgumentError on a call, before any kernel runs.

    Source: `torch.logsumexp`.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = LOG_SUM_EXP_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {LOG_SUM_EXP: LogSumExpFwdInterface}

    def __init__(self, dim: int | Sequence[int], keepdim: bool = False, *, target: str | None = None) -> None:
        self.dim = dim
        self.keepdim = keepdim
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the log-sum-exp of a checked input."""
        return self.computation(x)(x.contiguous())

    def computation(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """The kernel of calls like this one, for their axes."""
        result = x.dtype if x.dtype.is_floating_point else torch.float32
        call = LogSumExpCall(device=x.device, dtype=x.dtype, result=result)
        axes = reduced_axes(self.dim, x.dim())
        kernel = partial(self.kernel_for(LOG_SUM_EXP, call), axes=axes)
        return partial(keeping_axes, kernel, axes) if self.keepdim else kernel

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
