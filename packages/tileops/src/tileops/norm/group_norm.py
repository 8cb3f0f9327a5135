"""GroupNorm and InstanceNorm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.norm.base import other_dtype
from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import (
    BATCH_NORM_INFER,
    BATCH_NORM_INFER_KERNELS,
    BATCH_NORM_TRAIN,
    BATCH_NORM_TRAIN_KERNELS,
    GROUP_NORM,
    GROUP_NORM_KERNELS,
    BatchNormInferCall,
    BatchNormInferFwdInterface,
    BatchNormTrainCall,
    BatchNormTrainFwdInterface,
    GroupNormCall,
    GroupNormFwdInterface,
)


class GroupNormFwdOp(Op):
    """`y = (x - mean) * rsqrt(var + eps) * weight + bias`, with one mean and variance for each group of channels.

    x: `[B, C, *L]`, float16, bfloat16 or float32, any layout; weight, bias: `[C]` in x's dtype or both in float32, or
    None for ones and zeros, each independently. The channels of a batch entry make `num_groups` groups of equally many
    neighbours, each of more than one value. Returns a new contiguous tensor of x's shape and dtype. The variance
    divides by the number of values and is formed from squared deviations in float32, so that a mean that is large
    against the spread costs no digits; the result is rounded once. A group with NaN or an infinity gives NaN in that
    group alone.

    num_groups: a divisor of `C`. eps: added to the variance.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs.

    Source: `torch.nn.functional.group_norm`; Wu and He, "Group Normalization", 2018.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = GROUP_NORM_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {GROUP_NORM: GroupNormFwdInterface}

    def __init__(self, num_groups: int, eps: float = 1e-5, *, target: str | None = None) -> None:
        self.num_groups = num_groups
        self.eps = eps
        super().__init__(target=target)

    def forward(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """Compute the norm of checked inputs."""
        if x.numel() == 0:
            return torch.empty_like(x, memory_format=torch.contiguous_format)
        span = x.shape[1] // self.num_groups
        weight = None if weight is None else weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        call = _groups(x, span, self.eps, bias if weight is None else weight)
        return self.kernel_for(GROUP_NORM, call)(x.contiguous(), weight, bias)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


class InstanceNormFwdOp(Op):
    """`y = (x - mean) * rsqrt(var + eps) * weight + bias`, with one mean and variance for each channel of an entry.

    x: `[B, C, *L]`, float16, bfloat16 or float32, any layout; running_mean, running_var: `[C]` float32, both or
    neither; weight, bias: `[C]` in x's dtype or both in float32, or None for ones and zeros, each independently.
    Returns a new contiguous tensor of x's shape and dtype, computed in float32 and rounded once.

    With `use_input_stats`, mean and variance are those of each channel of each batch entry, and the running statistics,
    when passed, become `(1 - momentum) * old + momentum * new` in place, with the mean over the batch of the means and
    of the variances divided by one value less; an x without elements leaves them as they are. Else mean and variance
    are the running ones, which are then required, and nothing is written. A channel with NaN or an infinity gives NaN
    in that channel of that entry alone.

    use_input_stats: whether x's own statistics are used. momentum: the weight of the new statistics in the running
    ones. eps: added to the variance.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs; with `use_input_stats`, also for a single value per channel.

    Source: `torch.nn.functional.instance_norm`; Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = {
        **GROUP_NORM_KERNELS,
        **BATCH_NORM_TRAIN_KERNELS,
        **BATCH_NORM_INFER_KERNELS,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        GROUP_NORM: GroupNormFwdInterface,
        BATCH_NORM_TRAIN: BatchNormTrainFwdInterface,
        BATCH_NORM_INFER: BatchNormInferFwdInterface,
    }

    def __init__(
        self, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5, *, target: str | None = None
    ) -> None:
        self.use_input_stats = use_input_stats
        self.momentum = momentum
        self.eps = eps
        super().__init__(target=target)

    def forward(
        self,
        x: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Normalise checked inputs, by their own statistics or the running ones."""
        if x.numel() == 0:
            return torch.empty_like(x, memory_format=torch.contiguous_format)
        if running_mean is None or running_var is None:
            weight = None if weight is None else weight.contiguous()
            bias = None if bias is None else bias.contiguous()
            groups = _groups(x, 1, self.eps, bias if weight is None else weight)
            return self.kernel_for(GROUP_NORM, groups)(x.contiguous(), weight, bias)
        length = x.shape[2:].numel()
        if self.use_input_stats:
            return self._move(x, length, running_mean, running_var, weight, bias)
        scale = None if weight is None else weight.float().contiguous()
        shift = None if bias is None else bias.float().contiguous()
        call = BatchNormInferCall(device=x.device, length=length, eps=float(self.eps), dtype=x.dtype)
        kernel = self.kernel_for(BATCH_NORM_INFER, call)
        return kernel(x.contiguous(), running_mean.contiguous(), running_var.contiguous(), scale, shift)

    def _move(
        self,
        x: Tensor,
        length: int,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """Normalise every channel of every entry as a channel of one entry, and move the running statistics."""
        batch, channels = x.shape[:2]
        call = BatchNormTrainCall(
            device=x.device, length=length, eps=float(self.eps), momentum=float(self.momentum), dtype=x.dtype
        )
        means, variances = running_mean.repeat(batch), running_var.repeat(batch)
        scale, shift = (None if tensor is None else tensor.float().repeat(batch) for tensor in (weight, bias))
        entry = x.contiguous().view(1, batch * channels, *x.shape[2:])
        y = self.kernel_for(BATCH_NORM_TRAIN, call)(entry, means, variances, scale, shift)
        torch.mean(means.view(batch, channels), dim=0, out=running_mean)
        torch.mean(variances.view(batch, channels), dim=0, out=running_var)
        return y.view(x.shape)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


def _groups(x: Tensor, span: int, eps: float, weight: Tensor | None) -> GroupNormCall:
    """What a norm of x's groups of `span` channels asks of its kernel; `weight` is that or the bias."""
    n, dtype = span * x.shape[2:].numel(), x.dtype
    return GroupNormCall(
        device=x.device, n=n, span=span, eps=float(eps), dtype=dtype, weight_dtype=other_dtype(weight, dtype)
    )
