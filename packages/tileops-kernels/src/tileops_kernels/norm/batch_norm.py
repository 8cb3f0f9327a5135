"""Kernel types of BatchNorm, for training and for inference: one on CUDA and one on CPU each."""

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
from tileops_kernels.norm.channel_interfaces import (
    BatchNormInferCall,
    BatchNormInferFwdInterface,
    BatchNormTrainCall,
    BatchNormTrainFwdInterface,
)
from tileops_kernels.norm.channels import (
    CPU_PROGRAMS,
    CUDA_PROGRAMS,
    AffinePlanes,
    OwnStatistics,
    OwnStatisticsCPU,
    flags_of,
    named,
    parameters,
)
from tileops_kernels.norm.planes import (
    CHANNEL_THREADS,
    SMALL_UNROLL,
    CPUPlanes,
    CUDAPlanes,
    PlaneSettings,
    block_suffices,
    given_settings,
    is_large,
    is_small,
    plane_settings,
    plane_sizes,
)

CHANNEL_UNROLL = 8
"""Vectors of a thread that has its part of a channel in registers."""


class BatchNormTrainKernel(OwnStatistics[BatchNormTrainCall], BatchNormTrainFwdInterface):
    """BatchNorm by the batch's statistics: a block for each channel, or three launches whose blocks share channels."""

    def whole_variants(self) -> Mapping[str, Program]:
        """The programs for `small` channels, and for `whole` ones of more vectors."""
        channels = {"vector": self.settings.vector, "threads": CHANNEL_THREADS}
        return {
            "small": self.affine_program("batch_norm_small", "batch_norm_small", unroll=SMALL_UNROLL, **channels),
            "whole": self.affine_program(
                CUDA_PROGRAMS, "batch_norm_channels", unroll=CHANNEL_UNROLL, blocks=2, **channels
            ),
        }

    def beside(self, variant: str, vectors: int) -> tuple[int, ...]:
        """The divisor that is the vectors of a plane, for the programs of whole channels."""
        return divisor32(vectors) if variant in ("small", "whole") else ()

    def whole(self, shape: tuple[int, int, int]) -> str | None:
        """See `OwnStatistics.whole`."""
        if not block_suffices(shape, CHANNEL_UNROLL, self.call.sm_count):
            return None
        return "small" if is_small(shape) else "whole"

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[Hashable, Callable[[], BatchNormTrainKernel]]:
        """One entry for all sizes of a plane that have the same settings."""
        identity = call.device, plane_settings(call.length, call.dtype), call.dtype, call.weight_dtype
        return (*identity, call.eps, call.momentum), partial(cls, call)


class BatchNormInferKernel(
    AffinePlanes[BatchNormInferCall], CUDAPlanes[BatchNormInferCall], BatchNormInferFwdInterface
):
    """BatchNorm by given statistics: one pass."""

    general: ClassVar[bool] = True

    @classmethod
    def _choose(cls, call: BatchNormInferCall) -> PlaneSettings:
        return given_settings(call.length, call.dtype)

    def variants(self) -> Mapping[str, Program]:
        """The program for maps that caches hold, and that for `large` ones."""
        return {
            "cached": self.affine_program(CUDA_PROGRAMS, "batch_norm_inference", large=False, **self.sizes()),
            "large": self.affine_program(CUDA_PROGRAMS, "batch_norm_inference", large=True, **self.sizes()),
        }

    @classmethod
    def entry_for(cls, call: BatchNormInferCall) -> tuple[Hashable, Callable[[], BatchNormInferKernel]]:
        """One entry for all sizes of a plane that have the same settings."""
        identity = call.device, given_settings(call.length, call.dtype), call.dtype, call.weight_dtype, call.eps
        return identity, partial(cls, call)

    def forward(
        self, x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """See `BatchNormInferFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel() == 0:
            return y
        planes = self.planes(x)
        batch, channels, vectors, _ = planes.shape
        variant = "large" if is_large((batch, channels, vectors), y.nbytes) else "cached"
        affine = parameters(channels, self.call.weight_dtype, weight, bias, running_mean)
        with made_current(x.device):
            self.load(variant)(
                planes,
                *(tensor.as_strided((channels,), (1,)) for tensor in (running_mean, running_var)),
                *affine,
                y.as_strided(planes.shape, planes.stride()),
                self.call.eps,
                flags_of(weight, bias),
            )
        return y


class BatchNormTrainCPUKernel(OwnStatisticsCPU[BatchNormTrainCall], BatchNormTrainFwdInterface):
    """BatchNorm on a CPU by the batch's statistics."""

    def programs(self) -> Sequence[Program]:
        """The one program, for planes of one element or for longer ones."""
        if self.call.length == 1:
            return [self.affine_program(CPU_PROGRAMS, "batch_norm_columns", training=True)]
        return [self.affine_program(CPU_PROGRAMS, "batch_norm_planes", instances=False)]

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[Hashable, Callable[[], BatchNormTrainCPUKernel]]:
        """One entry for planes of one element and one for all longer ones."""
        return (call.length == 1, call.dtype, call.weight_dtype, call.eps, call.momentum), partial(cls, call)


class BatchNormInferCPUKernel(
    AffinePlanes[BatchNormInferCall], CPUPlanes[BatchNormInferCall], BatchNormInferFwdInterface
):
    """BatchNorm on a CPU by given statistics."""

    def programs(self) -> Sequence[Program]:
        """The one program, for planes of one element or for longer ones, which it takes as they lie in memory."""
        if self.call.length == 1:
            return [self.affine_program(CPU_PROGRAMS, "batch_norm_columns", training=False)]
        return [self.affine_program(CPU_PROGRAMS, "batch_norm_given")]

    @classmethod
    def entry_for(cls, call: BatchNormInferCall) -> tuple[Hashable, Callable[[], BatchNormInferCPUKernel]]:
        """One entry for planes of one element and one for all longer ones."""
        return (call.length == 1, call.dtype, call.weight_dtype, call.eps), partial(cls, call)

    def forward(
        self, x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """See `BatchNormInferFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel():
            tensors = named(x, weight, bias, running_mean, running_var, y)
            length, batch, channels, stride = plane_sizes(x)
            flags = flags_of(weight, bias)
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
