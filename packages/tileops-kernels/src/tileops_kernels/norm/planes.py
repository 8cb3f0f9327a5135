"""What the kernel types of BatchNorm share: how planes are laid before threads, and launches on them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import gcd
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program, Scalar
from tileops_kernels.kernel import Kernel
from tileops_kernels.memory import ACCESS_BYTES, addresses, aligned
from tileops_kernels.norm.channel_interfaces import BatchNormCall
from tileops_kernels.norm.rows import DTYPES, WARP, dtype_refusal

THREADS = 256
CHANNEL_THREADS = 512
CHANNEL_TURNS = 4

SMALL_UNROLL = 2
"""Vectors of a thread of a small channel, which more of its registers would delay."""

LARGE_BYTES = 1 << 29
"""What maps have at least of which caches hold too little to count on: ten times the cache of the device measured."""

_GRID_LIMIT = 65535
"""Blocks along the second and the third axis of a grid at most, which are channels and entries of a large map."""

LARGE_SPLITS = 64
"""Blocks that share the statistics of one channel of a large map, where each has that many turns."""
LARGE_TURNS = 8
"""Turns of such a block at least."""

PlanesCallT = TypeVar("PlanesCallT", bound=BatchNormCall)


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """Launch settings of planes: see `macros/cuda_planes.py`. The pass over a large map has its own there."""

    vector: int
    lanes: int
    slots: int
    unroll: int
    depth: int


def plane_vector(length: int, dtype: torch.dtype) -> int:
    """Elements of the widest access that divides a plane."""
    return gcd(length, ACCESS_BYTES // dtype.itemsize)


def power_of_two(count: int) -> int:
    """The least power of two that is no less than `count`."""
    return 1 << (count - 1).bit_length()


def plane_settings(length: int, dtype: torch.dtype) -> PlaneSettings:
    """The widest access that divides a plane; lanes along it as far as it reaches, the other threads over the batch.

    A pass that forms statistics and writes nothing reads `depth` vectors a thread at a time, others `unroll`: it has
    more bytes under way, and what it does once for each time weighs less.
    """
    vector = plane_vector(length, dtype)
    vectors = length // vector
    lanes = min(THREADS, power_of_two(vectors))
    unroll = min(4, -(-vectors // lanes))
    depth = 8 if vectors >= 8 * lanes else unroll
    return PlaneSettings(vector=vector, lanes=lanes, slots=THREADS // lanes, unroll=unroll, depth=depth)


def given_settings(length: int, dtype: torch.dtype) -> PlaneSettings:
    """Those of a pass by given statistics: a warp for a short plane, and in a block of it four such planes.

    A thread reads up to four vectors before it waits for the statistics of its plane.
    """
    vector = plane_vector(length, dtype)
    vectors = length // vector
    lanes = min(THREADS, power_of_two(vectors), max(WARP, power_of_two(-(-vectors // 4))))
    unroll = min(4, -(-vectors // lanes))
    return PlaneSettings(vector=vector, lanes=lanes, slots=max(1, 4 * WARP // lanes), unroll=unroll, depth=unroll)


def is_large(shape: tuple[int, int, int], size: int) -> bool:
    """Whether caches hold too little of (batch, channels, vectors) of `size` bytes to count on, and a grid holds it."""
    batch, channels, _ = shape
    return size >= LARGE_BYTES and max(batch, channels) <= _GRID_LIMIT


def split_count(shape: tuple[int, int, int], settings: PlaneSettings, depth: int, sm_count: int) -> int:
    """Blocks that share the sums of one channel: four for each multiprocessor in all, as far as there is work.

    `shape` is (batch, channels, vectors of a plane), of which a thread reads `depth` at a time.
    """
    batch, channels, vectors = shape
    pieces = -(-batch // settings.slots) * -(-vectors // (settings.lanes * depth))
    return max(1, min(pieces, 4 * sm_count // channels))


def large_split_count(shape: tuple[int, int, int], settings: PlaneSettings, depth: int, sm_count: int) -> int:
    """As split_count, of a map that is large: as many blocks as find enough turns, so that none is waited for long."""
    batch, _, vectors = shape
    pieces = -(-batch // settings.slots) * -(-vectors // (settings.lanes * depth))
    return max(split_count(shape, settings, depth, sm_count), min(pieces // LARGE_TURNS, LARGE_SPLITS))


def block_suffices(shape: tuple[int, int, int], unroll: int, sm_count: int) -> bool:
    """Whether each channel goes to one block, which reads it in turns of `unroll` vectors a thread.

    It does where the block holds the channel in registers, so that it is read once in a single launch; and where it is
    a few times that, but channels are as many as multiprocessors, which then read it again from the caches.
    """
    batch, channels, vectors = shape
    turns = -(-batch * vectors // (CHANNEL_THREADS * unroll))
    return turns <= 1 or (turns <= CHANNEL_TURNS and channels >= sm_count)


def is_small(shape: tuple[int, int, int]) -> bool:
    """Whether the threads of a block hold a channel in `SMALL_UNROLL` vectors each."""
    batch, _, vectors = shape
    return batch * vectors <= CHANNEL_THREADS * SMALL_UNROLL


class Planes(Kernel[PlanesCallT]):
    """What kernel types of every device share."""

    @classmethod
    def refusal(cls, call: PlanesCallT) -> str | None:
        """None for the dtypes that all norms serve."""
        return dtype_refusal(call.dtype) or super().refusal(call)

    def program(self, module: str, builder: str, **settings: Scalar) -> Program:
        """A program for the dtype of the call."""
        return Program.of(f"tileops_kernels.norm.programs.{module}", builder, dtype=DTYPES[self.call.dtype], **settings)


class CUDAPlanes(Planes[PlanesCallT]):
    """The launch on CUDA: planes of one vector width and one number of lanes."""

    def __init__(self, call: PlanesCallT) -> None:
        super().__init__(call)
        self.settings = self._choose(call)
        self._loaded: Loaded[str, cuda.CUDAFunction] = Loaded(lambda each: cuda.load_for(self, self.variants()[each]))

    @classmethod
    def _choose(cls, call: PlanesCallT) -> PlaneSettings:
        return plane_settings(call.length, call.dtype)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def sizes(self) -> Mapping[str, int]:
        """The launch settings that every program of planes has."""
        return {name: getattr(self.settings, name) for name in ("vector", "lanes", "slots", "unroll")}

    def planes(self, x: Tensor, *, apart: bool = False) -> Tensor:
        """The planes of x as (batch, channels, vectors, vector), with plain strides and at a multiple of 16 bytes.

        Those of all batch entries may be channels `apart`, of one entry.
        """
        batch, channels = (1, x.shape[0] * x.shape[1]) if apart else x.shape[:2]
        return as_planes(aligned(x), batch, channels, self.settings.vector)

    @abstractmethod
    def variants(self) -> Mapping[str, Program]:
        """The programs by the names that `load` takes."""
        ...

    def programs(self) -> Sequence[Program]:
        """The programs of every variant."""
        return tuple(self.variants().values())

    def shared_variant(self, shape: tuple[int, int, int], size: int, depth: int) -> tuple[str, int]:
        """The variant whose blocks share channels, for (batch, channels, vectors) of `size` bytes, and their splits.

        Of `large` maps caches hold too little to count on. A thread that forms sums reads `depth` vectors at a time.
        """
        settings, sm_count = self.settings, self.call.sm_count
        if is_large(shape, size):
            return "large", large_split_count(shape, settings, depth, sm_count)
        return "shared", split_count(shape, settings, depth, sm_count)

    def load(self, variant: str) -> cuda.CUDAFunction:
        """The program of one of the variants, built by the first call that needs it."""
        return self._loaded[variant]


class CPUPlanes(Planes[PlanesCallT]):
    """The launch on a CPU: work shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def run(self, tensors: Mapping[str, Tensor], scalars: Sequence[float], sizes: Sequence[int]) -> None:
        """Run on tensors in the program's order, each of which has elements, its scalars and sizes."""
        places = [tensor.data_ptr() for tensor in tensors.values()]
        if 0 in places:
            addresses(self, **tensors)  # names the tensor
        self._run(*places, *scalars, *sizes, torch.get_num_threads())

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call that needs it."""
        return cpu.load_for(self, self.programs()[0])


def as_planes(x: Tensor, batch: int, channels: int, vector: int) -> Tensor:
    """A contiguous tensor with elements as (batch, channels, vectors, vector), with plain strides."""
    step = x.numel() // (batch * channels)
    return x.as_strided((batch, channels, step // vector, vector), (channels * step, step, vector, 1))


def plane_sizes(x: Tensor) -> tuple[int, int, int, int]:
    """The elements of a plane of x, its batch entries and channels, and the elements of an entry."""
    batch, channels = x.shape[:2]
    stride = x.shape[1:].numel()
    return stride // channels, batch, channels, stride
