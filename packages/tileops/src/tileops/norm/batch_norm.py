"""BatchNorm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.norm.base import write_back
from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import (
    BATCH_NORM_INFER,
    BATCH_NORM_INFER_KERNELS,
    BATCH_NORM_TRAIN,
    BATCH_NORM_TRAIN_KERNELS,
    BatchNormInferCall,
    BatchNormInferFwdInterface,
    BatchNormTrainCall,
    BatchNormTrainFwdInterface,
)


class BatchNormFwdOp(Op):
    """`y = (x - mean) * rsqrt(var + eps) * weight + bias`, with one mean and variance for each channel.

    x: `[B, C, *L]`, float16, bfloat16 or float32, any layout; running_mean, running_var: `[C]` float32, both or
    neither; weight, bias: `[C]` float32, or None for ones and zeros, each independently. Returns a new contiguous
    tensor of x's shape and dtype, computed in float32 and rounded once.

    In training, mean and variance are those of the batch over all axes but the channels', and the running statistics,
    when passed, become `(1 - momentum) * old + momentum * new` in place, with the variance divided by one element less;
    a batch without elements leaves them as they are. Else mean and variance are the running ones, which are then
    required, and nothing is written. A channel with NaN or an infinity gives NaN in that channel alone; infinities of
    one sign make its running mean infinite.

    training: whether the batch's statistics are used. momentum: the weight of the new statistics in the running ones.
    eps: added to the variance.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs; in training, also for a single value per channel.

    Source: `torch.nn.functional.batch_norm`; Ioffe and Szegedy, "Batch Normalization", 2015.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = {**BATCH_NORM_TRAIN_KERNELS, **BATCH_NORM_INFER_KERNELS}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        BATCH_NORM_TRAIN: BatchNormTrainFwdInterface,
        BATCH_NORM_INFER: BatchNormInferFwdInterface,
    }

    def __init__(
        self, training: bool = False, momentum: float = 0.1, eps: float = 1e-5, *, target: str | None = None
    ) -> None:
        self.training = training
        self.momentum = momentum
        self.eps = eps
        self._stated: list[BatchNormInferCall] = []
        super().__init__(target=target)

    def forward(
        self,
        x: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Normalise checked inputs, and in training move the running statistics that are passed."""
        if x.numel() == 0:
            return torch.empty_like(x, memory_format=torch.contiguous_format)
        length = x.shape[2:].numel()
        weight = None if weight is None else weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        mean = None if running_mean is None else running_mean.contiguous()
        var = None if running_var is None else running_var.contiguous()
        if self.training:
            train = BatchNormTrainCall(
                device=x.device, length=length, eps=self.eps, momentum=self.momentum, dtype=x.dtype
            )
            y = self.kernel_for(BATCH_NORM_TRAIN, train)(x.contiguous(), mean, var, weight, bias)
            write_back((running_mean, mean), (running_var, var))
            return y
        if mean is None or var is None:
            raise AssertionError("the signature requires running statistics here")
        infer = self.kernel_for(BATCH_NORM_INFER, self._state(x.device, length, x.dtype))
        return infer(x.contiguous(), mean, var, weight, bias)

    def computation(self, x: Tensor, *others: Tensor | None) -> BatchNormInferFwdInterface | None:  # noqa: ARG002 - channels
        """The kernel of calls like this one, where it is all that runs."""
        if self.training or x.numel() == 0:
            return None
        return self.kernel_for(BATCH_NORM_INFER, self._state(x.device, x.shape[2:].numel(), x.dtype))

    def _state(self, device: torch.device, length: int, dtype: torch.dtype) -> BatchNormInferCall:
        """What normalising by given statistics asks of its kernel: the last call spec, where calls are alike."""
        for last in self._stated:
            if last.length == length and last.dtype is dtype and last.device == device:
                return last
        call = BatchNormInferCall(device=device, length=length, eps=self.eps, dtype=dtype)
        self._stated[:] = [call]
        return call

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
