"""The gradients of BatchNorm in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import BATCH_NORM_BWD, BATCH_NORM_BWD_KERNELS, BatchNormBwdCall, BatchNormBwdInterface


class BatchNormBwdOp(Op):
    """`grad_x`, `grad_weight` and `grad_bias` of a BatchNorm by the batch's statistics, from the output's gradient.

    grad_out, x: `[B, C, *L]`, float16, bfloat16 or float32, of one dtype, any layout; weight, and the batch's mean and
    the reciprocal rstd of its standard deviation, eps included: `[C]` float32. Returns grad_x, a new contiguous tensor
    of x's shape and dtype, and grad_weight and grad_bias, `[C]` float32. No input is written.

    Over the `n` elements of a channel, grad_bias is the sum of grad_out, grad_weight that of
    `grad_out * (x - mean) * rstd`, and grad_x is
    `(grad_out - grad_bias / n - (x - mean) * rstd * grad_weight / n) * rstd * weight`, whatever
    mean and rstd are: computed in float32 and rounded once. A batch without elements gives grad_weight and grad_bias of
    zeros. NaN, or an infinity, reaches its channel alone.

    Raises ShapeError, DTypeError, DeviceError or ArgumentError on a call, before any kernel runs.

    Source: `torch.ops.aten.native_batch_norm_backward` with train=True; Ioffe and Szegedy, "Batch Normalization", 2015.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = BATCH_NORM_BWD_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {BATCH_NORM_BWD: BatchNormBwdInterface}

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(
        self, grad_out: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the gradients for checked inputs."""
        if x.numel() == 0:
            grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
            return grad_x, weight.new_zeros(weight.shape), weight.new_zeros(weight.shape)
        call = BatchNormBwdCall(device=x.device, length=x.shape[2:].numel(), dtype=x.dtype)
        kernel = self.kernel_for(BATCH_NORM_BWD, call)
        inputs = (tensor.contiguous() for tensor in (grad_out, x, weight, mean, rstd))
        return kernel(*inputs)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
