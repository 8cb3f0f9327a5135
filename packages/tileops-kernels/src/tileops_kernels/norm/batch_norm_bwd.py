"""Kernel types of BatchNorm's gradients in training: one on CUDA and one on CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.division import divisor32
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm.channel_interfaces import BatchNormBwdCall, BatchNormBwdInterface
from tileops_kernels.norm.planes import (
    CHANNEL_THREADS,
    SMALL_UNROLL,
    CPUPlanes,
    CUDAPlanes,
    block_suffices,
    is_small,
    plane_settings,
    plane_sizes,
)

CHANNEL_UNROLL = 4
"""Vectors of grad_out, and of x, of a thread that has its part of a channel in registers."""


def _results(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tensors for the three gradients; where x has no elements, those of weight and bias are zeros."""
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    make = torch.empty if x.numel() else torch.zeros
    grad_weight, grad_bias = (make(x.shape[1], dtype=torch.float32, device=x.device) for _ in range(2))
    return grad_x, grad_weight, grad_bias


class BatchNormBwdKernel(CUDAPlanes[BatchNormBwdCall], BatchNormBwdInterface):
    """The gradients on CUDA: a block for each channel, or three launches whose blocks share channels."""

    general: ClassVar[bool] = True

    def variants(self) -> Mapping[str, Program]:
        """The programs for `small` and `whole` channels, which a block suffices for, and those that blocks share."""
        channels = {"vector": self.settings.vector, "threads": CHANNEL_THREADS, "blocks": 2}
        shared = {"depth": self.settings.unroll, **self.sizes()}
        return {
            "small": self.program("batch_norm_bwd", "batch_norm_bwd_channels", unroll=SMALL_UNROLL, **channels),
            "whole": self.program("batch_norm_bwd", "batch_norm_bwd_channels", unroll=CHANNEL_UNROLL, **channels),
            "shared": self.program("batch_norm_bwd", "batch_norm_bwd_planes", large=False, **shared),
            "large": self.program("batch_norm_bwd", "batch_norm_bwd_planes", large=True, **shared),
        }

    def variant(self, shape: tuple[int, int, int], size: int) -> tuple[str, int]:
        """The variant for (batch, channels, vectors) of `size` bytes, and in how many blocks it splits a channel."""
        if block_suffices(shape, CHANNEL_UNROLL, self.call.sm_count):
            return "small" if is_small(shape) else "whole", 0
        return self.shared_variant(shape, size, self.settings.unroll)

    @classmethod
    def entry_for(cls, call: BatchNormBwdCall) -> tuple[Hashable, Callable[[], BatchNormBwdKernel]]:
        """One entry for all sizes of a plane that have the same settings."""
        return (call.device, plane_settings(call.length, call.dtype), call.dtype), partial(cls, call)

    def forward(
        self, grad_out: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `BatchNormBwdInterface.forward`."""
        results = grad_x, grad_weight, grad_bias = _results(x)
        if grad_x.numel() == 0:
            return results
        planes = self.planes(x)
        batch, channels, vectors, _ = planes.shape
        given = [tensor.as_strided((channels,), (1,)) for tensor in (weight, mean, rstd)]
        variant, splits = self.variant((batch, channels, vectors), grad_x.nbytes)
        if splits:
            given.append(torch.empty(splits, channels, 2, dtype=torch.float32, device=x.device))
        with made_current(x.device):
            self.load(variant)(
                self.planes(grad_out),
                planes,
                *given,
                grad_x.as_strided(planes.shape, planes.stride()),
                grad_weight,
                grad_bias,
                *(() if splits else divisor32(vectors)),
            )
        return results


class BatchNormBwdCPUKernel(CPUPlanes[BatchNormBwdCall], BatchNormBwdInterface):
    """The gradients on a CPU."""

    def programs(self) -> Sequence[Program]:
        """The one program, for planes of one element or for longer ones."""
        builder = f"batch_norm_bwd_{'columns' if self.call.length == 1 else 'planes'}"
        return [self.program("batch_norm_bwd_cpu", builder)]

    @classmethod
    def entry_for(cls, call: BatchNormBwdCall) -> tuple[Hashable, Callable[[], BatchNormBwdCPUKernel]]:
        """One entry for planes of one element and one for all longer ones."""
        return (call.length == 1, call.dtype), partial(cls, call)

    def forward(
        self, grad_out: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `BatchNormBwdInterface.forward`."""
        results = grad_x, grad_weight, grad_bias = _results(x)
        if grad_x.numel():
            read = {"grad_out": grad_out, "x": x, "weight": weight, "mean": mean, "rstd": rstd}
            written = {"grad_x": grad_x, "grad_weight": grad_weight, "grad_bias": grad_bias}
            length, *sizes = plane_sizes(x)
            self.run({**read, **written}, (length,), sizes)
        return results


BATCH_NORM_BWD_KERNELS: Mapping[str, KernelType] = {
    "batch_norm_bwd": BatchNormBwdKernel,
    "batch_norm_bwd_cpu": BatchNormBwdCPUKernel,
}
"""Every kernel type of `BatchNormBwdInterface` that ships with this package, under its key."""
