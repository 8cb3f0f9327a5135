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
    LARGE_BYTES,
    CPUPlanes,
    CUDAPlanes,
    block_suffices,
    large_split_count,
    plane_settings,
    plane_sizes,
    split_count,
)

_CUDA_PROGRAMS = "batch_norm"
_CPU_PROGRAMS = "batch_norm_cpu"
_READS_WEIGHT, _READS_BIAS, _MOVES_STATISTICS = 1, 2, 4

CHANNEL_UNROLL = 8
"""Vectors of a thread that has its part of a channel in registers."""

SMALL_UNROLL = 2
"""Those of a channel that is held so, which more of a thread's registers would delay."""


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
        """The programs for channels that a block suffices for, and those for all others."""
        return tuple(self.variants().values())

    def variants(self) -> Mapping[str, Program]:
        """The programs for `small` channels, for `whole` ones, which a block suffices for, for others and for `large`.

        Others share their channels among blocks; of large maps caches hold too little to count on.
        """
        channels = {"vector": self.settings.vector, "threads": CHANNEL_THREADS, "blocks": 2}
        shared = {"depth": self.settings.depth, **self.sizes()}
        return {
            "small": self.program(_CUDA_PROGRAMS, "batch_norm_channels", unroll=SMALL_UNROLL, **channels),
            "whole": self.program(_CUDA_PROGRAMS, "batch_norm_channels", unroll=CHANNEL_UNROLL, **channels),
            "shared": self.program(_CUDA_PROGRAMS, "batch_norm_training", large=False, **shared),
            "large": self.program(_CUDA_PROGRAMS, "batch_norm_training", large=True, **shared),
        }

    def variant(self, shape: tuple[int, int, int], size: int) -> tuple[str, int]:
        """The variant for (batch, channels, vectors) of `size` bytes, and in how many blocks it splits a channel."""
        settings, sm_count = self.settings, self.call.sm_count
        if block_suffices(shape, CHANNEL_UNROLL, sm_count):
            batch, _, vectors = shape
            return "small" if batch * vectors <= CHANNEL_THREADS * SMALL_UNROLL else "whole", 0
        if size >= LARGE_BYTES:
            return "large", large_split_count(shape, settings, settings.depth, sm_count)
        return "shared", split_count(shape, settings, settings.depth, sm_count)

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
        variant, splits = self.variant((batch, channels, vectors), y.nbytes)
        workspace = torch.empty(3 * splits + 2, channels, dtype=torch.float32, device=x.device)
        means, scales = workspace[:2]
        given = [means if tensor is None else tensor for tensor in (weight, bias, running_mean, running_var)]
        between = (workspace[2:].view(splits, channels, 3), means, scales) if splits else ()
        with torch.cuda.device(x.device):
            self.load(variant)(
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
