"""Kernel types of BatchNorm, for training and for inference: one on CUDA and one on CPU each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build.program import Program
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm.interfaces import (
    BatchNormInferCall,
    BatchNormInferFwdInterface,
    BatchNormTrainCall,
    BatchNormTrainFwdInterface,
)
from tileops_kernels.norm.planes import (
    CHANNEL_THREADS,
    CPUPlanes,
    CUDAPlanes,
    block_suffices,
    plane_settings,
    plane_sizes,
    split_count,
)

_CUDA_PROGRAMS = "batch_norm"
_CPU_PROGRAMS = "batch_norm_cpu"
_READS_WEIGHT, _READS_BIAS, _MOVES_STATISTICS = 1, 2, 4

CHANNEL_UNROLL = 8
"""Vectors of a thread that has its part of a channel in registers."""


def _flags(weight: Tensor | None, bias: Tensor | None, running: Tensor | None) -> int:
    """Which tensors a program may read and write; any tensor of their shape stands in for the others."""
    read = (_READS_WEIGHT if weight is not None else 0) | (_READS_BIAS if bias is not None else 0)
    return read | (_MOVES_STATISTICS if running is not None else 0)


def _named(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    y: Tensor,
) -> Mapping[str, Tensor]:
    """The tensors of a CPU program in its order; x stands in for one that is None."""
    return {
        "x": x,
        "weight": x if weight is None else weight,
        "bias": x if bias is None else bias,
        "running_mean": x if running_mean is None else running_mean,
        "running_var": x if running_var is None else running_var,
        "y": y,
    }


class BatchNormTrainKernel(CUDAPlanes[BatchNormTrainCall], BatchNormTrainFwdInterface):
    """BatchNorm by the batch's statistics: a block for each channel, or three launches whose blocks share channels."""

    general: ClassVar[bool] = True

    def programs(self) -> Sequence[Program]:
        """The program for channels that a block suffices for, and the one for all others."""
        vector = self.settings.vector
        channels = {"vector": vector, "threads": CHANNEL_THREADS, "unroll": CHANNEL_UNROLL, "blocks": 2}
        return [
            self.program(_CUDA_PROGRAMS, "batch_norm_channels", **channels),
            self.program(_CUDA_PROGRAMS, "batch_norm_training", depth=self.settings.depth, **self.sizes()),
        ]

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[Hashable, Callable[[], BatchNormTrainKernel]]:
        """One entry for all sizes of a plane that have the same settings."""
        identity = call.device, plane_settings(call.length, call.dtype), call.dtype, call.eps, call.momentum
        return identity, partial(cls, call)

    def forward(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """See `BatchNormTrainFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel() == 0:
            return y
        planes = self.planes(x)
        batch, channels, vectors, _ = planes.shape
        shape, settings, sm_count = (batch, channels, vectors), self.settings, self.call.sm_count
        whole = block_suffices(shape, CHANNEL_UNROLL, sm_count)
        splits = 0 if whole else split_count(shape, settings, settings.depth, sm_count)
        workspace = torch.empty(3 * splits + 2, channels, dtype=torch.float32, device=x.device)
        means, scales = workspace[:2]
        given = [means if tensor is None else tensor for tensor in (weight, bias, running_mean, running_var)]
        between = () if whole else (workspace[2:].view(splits, channels, 3), means, scales)
        with torch.cuda.device(x.device):
            self.load("batch_norm_channels" if whole else "batch_norm_training")(
                planes,
                *(tensor.as_strided((channels,), (1,)) for tensor in given),
                *between,
                y.as_strided(planes.shape, planes.stride()),
                self.call.eps,
                self.call.momentum,
                _flags(weight, bias, running_mean),
            )
        return y


class BatchNormInferKernel(CUDAPlanes[BatchNormInferCall], BatchNormInferFwdInterface):
    """BatchNorm by given statistics: one pass."""

    general: ClassVar[bool] = True

    def programs(self) -> Sequence[Program]:
        """The one program, for every shape with these settings."""
        return [self.program(_CUDA_PROGRAMS, "batch_norm_inference", **self.sizes())]

    @classmethod
    def entry_for(cls, call: BatchNormInferCall) -> tuple[Hashable, Callable[[], BatchNormInferKernel]]:
        """One entry for all sizes of a plane that have the same settings."""
        return (call.device, plane_settings(call.length, call.dtype), call.dtype, call.eps), partial(cls, call)

    def forward(
        self, x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """See `BatchNormInferFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel() == 0:
            return y
        planes = self.planes(x)
        affine = [running_mean if tensor is None else tensor for tensor in (weight, bias)]
        with torch.cuda.device(x.device):
            self.load("batch_norm_inference")(
                planes,
                *(tensor.as_strided((x.shape[1],), (1,)) for tensor in (running_mean, running_var, *affine)),
                y.as_strided(planes.shape, planes.stride()),
                self.call.eps,
                _flags(weight, bias, None),
            )
        return y


class BatchNormTrainCPUKernel(CPUPlanes[BatchNormTrainCall], BatchNormTrainFwdInterface):
    """BatchNorm on a CPU by the batch's statistics."""

    def programs(self) -> Sequence[Program]:
        """The one program, for planes of one element or for longer ones."""
        if self.call.length == 1:
            return [self.program(_CPU_PROGRAMS, "batch_norm_columns", training=True)]
        return [self.program(_CPU_PROGRAMS, "batch_norm_planes")]

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[Hashable, Callable[[], BatchNormTrainCPUKernel]]:
        """One entry for planes of one element and one for all longer ones."""
        return (call.length == 1, call.dtype, call.eps, call.momentum), partial(cls, call)

    def forward(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """See `BatchNormTrainFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel():
            length, *sizes = plane_sizes(x)
            flags = _flags(weight, bias, running_mean)
            tensors = _named(x, weight, bias, running_mean, running_var, y)
            self.run(tensors, (length, self.call.eps, self.call.momentum, flags), sizes)
        return y


class BatchNormInferCPUKernel(CPUPlanes[BatchNormInferCall], BatchNormInferFwdInterface):
    """BatchNorm on a CPU by given statistics."""

    def programs(self) -> Sequence[Program]:
        """The one program, for planes of one element or for longer ones, which it takes as they lie in memory."""
        if self.call.length == 1:
            return [self.program(_CPU_PROGRAMS, "batch_norm_columns", training=False)]
        return [self.program(_CPU_PROGRAMS, "batch_norm_given")]

    @classmethod
    def entry_for(cls, call: BatchNormInferCall) -> tuple[Hashable, Callable[[], BatchNormInferCPUKernel]]:
        """One entry for planes of one element and one for all longer ones."""
        return (call.length == 1, call.dtype, call.eps), partial(cls, call)

    def forward(
        self, x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """See `BatchNormInferFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel():
            tensors = _named(x, weight, bias, running_mean, running_var, y)
            length, batch, channels, stride = plane_sizes(x)
            flags = _flags(weight, bias, None)
            if length == 1:
                self.run(tensors, (length, self.call.eps, flags), (batch, channels, stride))
            else:
                self.run(tensors, (0, self.call.eps, flags), (channels, length, batch * channels))
        return y


BATCH_NORM_TRAIN_KERNELS: Mapping[str, KernelType] = {
    "batch_norm_train": BatchNormTrainKernel,
    "batch_norm_train_cpu": BatchNormTrainCPUKernel,
}
"""Every kernel type of `BatchNormTrainFwdInterface` that ships with this package, under its key."""

BATCH_NORM_INFER_KERNELS: Mapping[str, KernelType] = {
    "batch_norm_infer": BatchNormInferKernel,
    "batch_norm_infer_cpu": BatchNormInferCPUKernel,
}
"""Every kernel type of `BatchNormInferFwdInterface` that ships with this package, under its key."""
