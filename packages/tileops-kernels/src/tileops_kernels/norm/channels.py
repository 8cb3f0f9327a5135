"""What the norms by channels share: what their programs may read, and launches whose blocks share a channel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from tileops_kernels.build.program import Program, Scalar
from tileops_kernels.devices import made_current
from tileops_kernels.norm.channel_interfaces import BatchNormInferCall, BatchNormTrainCall
from tileops_kernels.norm.planes import CPUPlanes, CUDAPlanes, Planes, plane_sizes
from tileops_kernels.norm.rows import DTYPES, dtype_refusal

CUDA_PROGRAMS = "batch_norm"
CPU_PROGRAMS = "batch_norm_cpu"

_READS_WEIGHT, _READS_BIAS, _MOVES_STATISTICS = 1, 2, 4

InferCallT = TypeVar("InferCallT", bound=BatchNormInferCall)
TrainCallT = TypeVar("TrainCallT", bound=BatchNormTrainCall)


def flags_of(weight: Tensor | None, bias: Tensor | None, running: Tensor | None = None) -> int:
    """Which tensors a program may read and write; any tensor of their shape stands in for the others."""
    read = (_READS_WEIGHT if weight is not None else 0) | (_READS_BIAS if bias is not None else 0)
    return read | (_MOVES_STATISTICS if running is not None else 0)


def named(
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


def parameters(
    count: int, dtype: torch.dtype, weight: Tensor | None, bias: Tensor | None, spare: Tensor
) -> list[Tensor]:
    """Weight and bias of `count` channels as a CUDA program takes them, for one that is None elements of `spare`.

    `spare` has as many elements of float32, which are as many at least of `dtype`.
    """
    given = [spare.view(dtype) if tensor is None else tensor for tensor in (weight, bias)]
    return [tensor.as_strided((count,), (1,)) for tensor in given]


class AffinePlanes(Planes[InferCallT]):
    """A norm with a weight and a bias for each channel, of the activations' dtype or in float32."""

    @classmethod
    def refusal(cls, call: InferCallT) -> str | None:
        """None for the dtypes that all norms serve."""
        return dtype_refusal(call.dtype, call.weight_dtype) or super().refusal(call)

    def affine_program(self, module: str, builder: str, **settings: Scalar) -> Program:
        """A program for the dtypes of activations and of weight and bias."""
        return self.program(module, builder, scales=DTYPES[self.call.weight_dtype], **settings)


class OwnStatistics(AffinePlanes[TrainCallT], CUDAPlanes[TrainCallT]):
    """A norm of channels by their own statistics: a block for each, or three launches whose blocks share channels."""

    general: ClassVar[bool] = True
    instances: ClassVar[bool] = False
    """Whether a channel of each batch entry has statistics of its own."""

    @abstractmethod
    def whole_variants(self) -> Mapping[str, Program]:
        """The programs for channels that a block suffices for, under names of theirs."""
        ...

    @abstractmethod
    def whole(self, shape: tuple[int, int, int]) -> str | None:
        """The one of them that serves (batch, channels, vectors), None where blocks are to share channels."""
        ...

    def beside(self, variant: str, vectors: int) -> tuple[int, ...]:  # noqa: ARG002 - for a norm whose programs take more
        """What the program of a variant takes beside what all take, for planes of so many vectors."""
        return ()

    def variants(self) -> Mapping[str, Program]:
        """The programs of whole channels, and those whose blocks share channels, for maps of all sizes."""
        shared = {"depth": self.settings.depth, "instances": self.instances, **self.sizes()}
        return {
            **self.whole_variants(),
            "shared": self.affine_program(CUDA_PROGRAMS, "batch_norm_training", large=False, **shared),
            "large": self.affine_program(CUDA_PROGRAMS, "batch_norm_training", large=True, **shared),
        }

    def variant(self, shape: tuple[int, int, int], size: int) -> tuple[str, int]:
        """The variant for (batch, channels, vectors) of `size` bytes, and in how many blocks it splits a channel."""
        if (whole := self.whole(shape)) is not None:
            return whole, 0
        batch, channels, vectors = shape
        shape = (1, batch * channels, vectors) if self.instances else shape
        return self.shared_variant(shape, size, self.settings.depth)

    def forward(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """See `BatchNormTrainFwdInterface.forward`, or that of InstanceNorm: whichever a kernel type inherits."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel() == 0:
            return y
        planes = self.planes(x)
        batch, count, vectors, _ = planes.shape
        variant, splits = self.variant((batch, count, vectors), y.nbytes)
        if splits and self.instances:
            planes = self.planes(x, apart=True)
        channels = planes.shape[1]
        workspace = torch.empty(3 * splits + 2, channels, dtype=torch.float32, device=x.device)
        means, scales = workspace[:2]
        affine = parameters(count, self.call.weight_dtype, weight, bias, means)
        running = [means if tensor is None else tensor for tensor in (running_mean, running_var)]
        between = (workspace[2:].view(splits, channels, 3), means, scales) if splits else ()
        with made_current(x.device):
            self.load(variant)(
                planes,
                *affine,
                *(tensor.as_strided((count,), (1,)) for tensor in running),
                *between,
                y.as_strided(planes.shape, planes.stride()),
                self.call.eps,
                self.call.momentum,
                flags_of(weight, bias, running_mean),
                *self.beside(variant, vectors),
            )
        return y


class OwnStatisticsCPU(AffinePlanes[TrainCallT], CPUPlanes[TrainCallT]):
    """A norm of channels by their own statistics on a CPU."""

    def forward(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """See `BatchNormTrainFwdInterface.forward`, or that of InstanceNorm: whichever a kernel type inherits."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel():
            length, *sizes = plane_sizes(x)
            flags = flags_of(weight, bias, running_mean)
            tensors = named(x, weight, bias, running_mean, running_var, y)
            self.run(tensors, (length, self.call.eps, self.call.momentum, flags), sizes)
        return y
