"""Kernel types of BatchNorm, for training and for inference: one on CUDA and one on CPU each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import gcd
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES, addresses, aligned
from tileops_kernels.norm.interfaces import (
    BatchNormInferCall,
    BatchNormInferFwdInterface,
    BatchNormTrainCall,
    BatchNormTrainFwdInterface,
)
from tileops_kernels.norm.rows import DTYPES, dtype_refusal

_CUDA_PROGRAMS = "tileops_kernels.norm.programs.batch_norm"
_CPU_PROGRAMS = "tileops_kernels.norm.programs.batch_norm_cpu"

THREADS = 256
_READS_WEIGHT, _READS_BIAS, _MOVES_STATISTICS = 1, 2, 4

PlanesCallT = TypeVar("PlanesCallT", bound=BatchNormInferCall)


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """Launch settings of planes: see the module of the programs."""

    vector: int
    lanes: int
    slots: int
    unroll: int


def plane_settings(length: int, dtype: torch.dtype) -> PlaneSettings:
    """The widest access that divides a plane; lanes along it as far as it reaches, the other threads over the batch."""
    vector = gcd(length, ACCESS_BYTES // dtype.itemsize)
    vectors = length // vector
    lanes = min(THREADS, 1 << (vectors - 1).bit_length())
    return PlaneSettings(vector=vector, lanes=lanes, slots=THREADS // lanes, unroll=min(4, -(-vectors // lanes)))


def split_count(shape: tuple[int, int, int], settings: PlaneSettings, sm_count: int) -> int:
    """Blocks that share the statistics of one channel: four for each multiprocessor in all, as far as there is work.

    `shape` is (batch, channels, vectors of a plane).
    """
    batch, channels, vectors = shape
    pieces = -(-batch // settings.slots) * -(-vectors // (settings.lanes * settings.unroll))
    return max(1, min(pieces, 4 * sm_count // channels))


def _flags(weight: Tensor | None, bias: Tensor | None, running: Tensor | None) -> int:
    """Which tensors a program may read and write; any tensor of their shape stands in for the others."""
    read = (_READS_WEIGHT if weight is not None else 0) | (_READS_BIAS if bias is not None else 0)
    return read | (_MOVES_STATISTICS if running is not None else 0)


class _CUDAPlanes(Kernel[PlanesCallT]):
    """What training and inference share on CUDA: planes of one vector width and one number of lanes."""

    builder: ClassVar[str]

    def __init__(self, call: PlanesCallT) -> None:
        super().__init__(call)
        self.settings = plane_settings(call.length, call.dtype)
        self._eps = call.eps
        self._loaded: cuda.CUDAFunction | None = None

    @classmethod
    def refusal(cls, call: PlanesCallT) -> str | None:
        """None for the dtypes that all norms serve."""
        return dtype_refusal(call.dtype) or super().refusal(call)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """The one program, for every shape with these settings."""
        return [Program.of(_CUDA_PROGRAMS, self.builder, dtype=DTYPES[self.call.dtype], **asdict(self.settings))]

    def _planes(self, x: Tensor) -> Tensor:
        """The planes of x as (batch, channels, vectors, vector), with plain strides and at a multiple of 16 bytes."""
        batch, channels = x.shape[:2]
        vector = self.settings.vector
        vectors = x.numel() // (batch * channels * vector)
        step = vectors * vector
        return aligned(x).as_strided((batch, channels, vectors, vector), (channels * step, step, vector, 1))

    def _load(self) -> cuda.CUDAFunction:
        """The program, built by the first call."""
        if self._loaded is None:
            owner = f"{type(self).__name__} for {self.call}"
            self._loaded = cuda.load(self.programs()[0], arch=self.call.arch, owner=owner)
        return self._loaded


class BatchNormTrainKernel(_CUDAPlanes[BatchNormTrainCall], BatchNormTrainFwdInterface):
    """BatchNorm by the batch's statistics: partial ones by many blocks, their merge, then the pass that normalises."""

    general: ClassVar[bool] = True
    builder: ClassVar[str] = "batch_norm_training"

    def __init__(self, call: BatchNormTrainCall) -> None:
        super().__init__(call)
        self._momentum = call.momentum

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
        planes = self._planes(x)
        batch, channels, vectors, _ = planes.shape
        splits = split_count((batch, channels, vectors), self.settings, self.call.sm_count)
        partials = torch.empty(splits, channels, 3, dtype=torch.float32, device=x.device)
        means, scales = torch.empty(2, channels, dtype=torch.float32, device=x.device)
        vectors_of = [means if tensor is None else tensor for tensor in (weight, bias, running_mean, running_var)]
        flags = _flags(weight, bias, running_mean)
        with torch.cuda.device(x.device):
            self._load()(
                planes,
                *(tensor.as_strided((channels,), (1,)) for tensor in vectors_of),
                partials,
                means,
                scales,
                y.as_strided(planes.shape, planes.stride()),
                self._eps,
                self._momentum,
                flags,
            )
        return y


class BatchNormInferKernel(_CUDAPlanes[BatchNormInferCall], BatchNormInferFwdInterface):
    """BatchNorm by given statistics: one pass."""

    general: ClassVar[bool] = True
    builder: ClassVar[str] = "batch_norm_inference"

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
        planes = self._planes(x)
        affine = [running_mean if tensor is None else tensor for tensor in (weight, bias)]
        with torch.cuda.device(x.device):
            self._load()(
                planes,
                *(tensor.as_strided((x.shape[1],), (1,)) for tensor in (running_mean, running_var, *affine)),
                y.as_strided(planes.shape, planes.stride()),
                self._eps,
                _flags(weight, bias, None),
            )
        return y


class _CPUPlanes(Kernel[PlanesCallT]):
    """What training and inference share on a CPU: work shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})
    training: ClassVar[bool]

    def __init__(self, call: PlanesCallT) -> None:
        super().__init__(call)
        self._eps = call.eps
        self._loaded: CPUFunction | None = None

    @classmethod
    def refusal(cls, call: PlanesCallT) -> str | None:
        """None for the dtypes that all norms serve."""
        return dtype_refusal(call.dtype) or super().refusal(call)

    def programs(self) -> Sequence[Program]:
        """The one program, for planes of one element or for longer ones."""
        dtype = DTYPES[self.call.dtype]
        if self.call.length == 1:
            return [Program.of(_CPU_PROGRAMS, "batch_norm_columns", dtype=dtype, training=self.training)]
        return [Program.of(_CPU_PROGRAMS, "batch_norm_planes" if self.training else "batch_norm_given", dtype=dtype)]

    def _run(self, x: Tensor, given: Mapping[str, Tensor | None], y: Tensor, scalars: Sequence[float | int]) -> Tensor:
        """Run on x with the four tensors of a channel's length by name; what is absent may be any address."""
        located = {name: tensor for name, tensor in given.items() if tensor is not None}
        source, *found, target = addresses(self, x=x, **located, y=y)
        places = dict(zip(located, found, strict=True))
        if self._loaded is None:
            self._loaded = cpu.load(self.programs()[0], owner=f"{type(self).__name__} for {self.call}")
        batch, channels = x.shape[:2]
        stride = x.numel() // batch
        length, threads = stride // channels, torch.get_num_threads()
        between = [places.get(name, target) for name in ("weight", "bias", "running_mean", "running_var")]
        tensors = source, *between, target
        if self.training or length == 1:
            self._loaded(*tensors, length, self._eps, *scalars, batch, channels, stride, threads)
        else:
            self._loaded(*tensors, 0, self._eps, *scalars, channels, length, batch * channels, threads)
        return y


class BatchNormTrainCPUKernel(_CPUPlanes[BatchNormTrainCall], BatchNormTrainFwdInterface):
    """BatchNorm on a CPU by the batch's statistics."""

    training: ClassVar[bool] = True

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
        if y.numel() == 0:
            return y
        given = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
        return self._run(x, given, y, (self.call.momentum, _flags(weight, bias, running_mean)))


class BatchNormInferCPUKernel(_CPUPlanes[BatchNormInferCall], BatchNormInferFwdInterface):
    """BatchNorm on a CPU by given statistics."""

    training: ClassVar[bool] = False

    @classmethod
    def entry_for(cls, call: BatchNormInferCall) -> tuple[Hashable, Callable[[], BatchNormInferCPUKernel]]:
        """One entry for planes of one element and one for all longer ones."""
        return (call.length == 1, call.dtype, call.eps), partial(cls, call)

    def forward(
        self, x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """See `BatchNormInferFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel() == 0:
            return y
        given = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
        return self._run(x, given, y, (_flags(weight, bias, None),))


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
