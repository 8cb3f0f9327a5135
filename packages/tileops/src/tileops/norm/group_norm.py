"""GroupNorm and InstanceNorm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.norm.base import other_dtype, write_back
from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import (
    BATCH_NORM_INFER,
    BATCH_NORM_INFER_KERNELS,
    GROUP_NORM,
    GROUP_NORM_KERNELS,
    INSTANCE_NORM_TRAIN,
    INSTANCE_NORM_TRAIN_KERNELS,
    BatchNormInferCall,
    BatchNormInferFwdInterface,
    GroupNormCall,
    GroupNormFwdInterface,
    InstanceNormTrainCall,
    InstanceNormTrainFwdInterface,
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
    in that channel of that entry alone; infinities of one sign make its running mean infinite.

    use_input_stats: whether x's own statistics are used. momentum: the weight of the new statistics in the running
    ones. eps: added to the variance.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs; with `use_input_stats`, also for a single value per channel.

    Source: `torch.nn.functional.instance_norm`; Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = {
        **GROUP_NORM_KERNELS,
        **INSTANCE_NORM_TRAIN_KERNELS,
        **BATCH_NORM_INFER_KERNELS,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        GROUP_NORM: GroupNormFwdInterface,
        INSTANCE_NORM_TRAIN: InstanceNormTrainFwdInterface,
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
        weight = None if weight is None else weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        affine = bias if weight is None else weight
        if running_mean is None or running_var is None:
            groups = _groups(x, 1, self.eps, affine)
            return self.kernel_for(GROUP_NORM, groups)(x.contiguous(), weight, bias)
        mean, var = running_mean.contiguous(), running_var.contiguous()
        device, dtype, length, eps = x.device, x.dtype, x.shape[2:].numel(), float(self.eps)
        weight_dtype = torch.float32 if affine is None else affine.dtype
        if not self.use_input_stats:
            infer = BatchNormInferCall(device=device, length=length, eps=eps, dtype=dtype, weight_dtype=weight_dtype)
            return self.kernel_for(BATCH_NORM_INFER, infer)(x.contiguous(), mean, var, weight, bias)
        train = InstanceNormTrainCall(
            device=device,
            length=length,
            eps=eps,
            momentum=float(self.momentum),
            dtype=dtype,
            weight_dtype=weight_dtype,
        )
        y = self.kernel_for(INSTANCE_NORM_TRAIN, train)(x.contiguous(), mean, var, weight, bias)
        write_back((running_mean, mean), (running_var, var))
        return y

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


def _groups(x: Tensor, span: int, eps: float, weight: Tensor | None) -> GroupNormCall:
    """What a norm of x's groups of `span` channels asks of its kernel; `weight` is that or the bias."""
    n, dtype = span * x.shape[2:].numel(), x.dtype
    return GroupNormCall(
        device=x.device, n=n, span=span, eps=float(eps), dtype=dtype, weight_dtype=other_dtype(weight, dtype)
    )
