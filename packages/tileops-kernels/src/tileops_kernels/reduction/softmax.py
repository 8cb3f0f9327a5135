"""Kernel types of softmax: one on CUDA and one on CPU, each for every shape and axis."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.devices import CLUSTER_ARCHS, CLUSTER_BLOCKS, made_current
from tileops_kernels.division import divisor64
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.reduction.interfaces import SoftmaxCall, SoftmaxFwdInterface
from tileops_kernels.reduction.launches import (
    FLOATS,
    WIDEST,
    ColumnSettings,
    bare,
    columns_view,
    rows_view,
    shared_axis,
    slices,
    spelled,
    vector_width,
)

_CUDA_PROGRAMS = "tileops_kernels.reduction.programs.softmax"
_CPU_PROGRAMS = "tileops_kernels.reduction.programs.softmax_cpu"


@dataclass(frozen=True, slots=True)
class OnChipSettings:
    """Launch settings of rows in registers: see the builder `softmax_on_chip`."""

    vector: int
    lanes: int
    rows: int
    steps: int
    blocks: int


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Launch settings of rows in the registers of several blocks: see the builder `softmax_clustered`."""

    vector: int
    lanes: int
    steps: int
    blocks: int
    cluster: int


@dataclass(frozen=True, slots=True)
class OnChipColumnSettings(ColumnSettings):
    """Launch settings of columns in registers: see the builder `softmax_columns_on_chip`."""


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """Launch settings of rows that are read twice: see the builder `softmax_streaming`."""

    vector: int
    lanes: int
    unroll: int


@dataclass(frozen=True, slots=True)
class PartSettings:
    """Launch settings of rows in parts: see the builders `softmax_weigh` and `softmax_divide`."""

    vector: int
    lanes: int
    unroll: int


Rows: TypeAlias = OnChipSettings | ClusterSettings | StreamingSettings | PartSettings
Settings: TypeAlias = Rows | ColumnSettings

BUILDERS: Mapping[type[Settings], Sequence[str]] = {
    OnChipSettings: ("softmax_on_chip",),
    ClusterSettings: ("softmax_clustered",),
    StreamingSettings: ("softmax_streaming",),
    PartSettings: ("softmax_weigh", "softmax_divide"),
    ColumnSettings: ("softmax_columns",),
    OnChipColumnSettings: ("softmax_columns_on_chip",),
}
"""The builders that each kind of settings belongs to, in the order in which they are launched."""

MODULES: Mapping[type[Settings], str] = {
    ClusterSettings: "_clustered",
    ColumnSettings: "_columns",
    OnChipColumnSettings: "_columns",
}
"""How the names of their modules end."""

ON_CHIP = ((4, 32, 4, 8), (16, 8, 2, 12), (64, 2, 2, 16), (128, 1, 2, 12), (256, 1, 2, 6), (256, 1, 4, 4))
"""Lanes, rows of a block, accesses of a lane and blocks of a multiprocessor of the programs that hold a row."""

CLUSTERED = ((2, 128, 8, 8), (2, 256, 8, 4), (2, 512, 8, 2), (4, 512, 8, 2), (8, 512, 8, 2))
"""Blocks of a cluster, lanes and accesses of each, and blocks of a multiprocessor, where several blocks hold a row."""
SPREAD = ((8, 256, 2, 4), (8, 256, 4, 4), (8, 512, 4, 2), (8, 512, 8, 2))
"""The same for rows of which every block has a multiprocessor to itself, but that are more than FEWEST."""
FEWEST = 8
"""Rows that are so few are taken in parts, which occupy more multiprocessors than a cluster of each would."""


def row_settings(outer: int, reduced: int, vector: int, sm_count: int, *, clusters: bool = False) -> Rows:
    """The smallest program that holds the row in registers, else one that reads it twice; few long rows in parts.

    `clusters` of blocks hold rows of whole accesses.
    """
    for lanes, rows, steps, blocks in ON_CHIP:
        if reduced <= lanes * steps * vector:
            return OnChipSettings(vector=vector, lanes=lanes, rows=rows, steps=steps, blocks=blocks)
    few, spread = 2 * outer <= sm_count, FEWEST < outer <= sm_count // CLUSTER_BLOCKS
    if clusters and vector > 1 and (spread or not few):
        for cluster, lanes, steps, blocks in SPREAD if spread else CLUSTERED:
            if reduced <= cluster * lanes * steps * vector:
                return ClusterSettings(vector=vector, lanes=lanes, steps=steps, blocks=blocks, cluster=cluster)
    if few:
        return PartSettings(vector=vector, lanes=256, unroll=1)
    return StreamingSettings(vector=vector, lanes=512, unroll=4)


@lru_cache(maxsize=4096)
def row_variants(reduced: int, vector: int, sm_count: int, *, clusters: bool = False) -> tuple[Rows, ...]:
    """The settings that rows of one length have, by how many there are."""
    counts = 1, FEWEST + 1, sm_count
    return tuple(dict.fromkeys(row_settings(outer, reduced, vector, sm_count, clusters=clusters) for outer in counts))


def parts_of(outer: int, reduced: int, settings: PartSettings, sm_count: int) -> int:
    """In how many parts a row is taken: four blocks a multiprocessor, a chunk for each, and no more than lanes."""
    chunks = -(-reduced // (settings.vector * settings.lanes * settings.unroll))
    return min(4 * sm_count // outer, chunks, settings.lanes)


def column_settings(vectors: int, reduced: int, vector: int, sm_count: int) -> ColumnSettings:
    """A thread for each of `vectors` vectors where they are plenty or short; of few, many share one, or hold it."""
    if reduced < 16 or vectors >= 512 * sm_count:
        return ColumnSettings(vector=vector, across=256, down=1, unroll=4)
    if vectors >= 32 * sm_count:
        return ColumnSettings(vector=vector, across=32, down=8, unroll=4)
    if reduced <= 64:
        return OnChipColumnSettings(vector=vector, across=8, down=16, unroll=4)
    return ColumnSettings(vector=vector, across=4, down=64, unroll=2)


class _SoftmaxKernel(Kernel[SoftmaxCall], SoftmaxFwdInterface):
    """What both kernel types serve."""

    @classmethod
    def refusal(cls, call: SoftmaxCall) -> str | None:
        """None for the dtypes that both kernel types serve."""
        for dtype in (call.dtype, call.result):
            if dtype not in FLOATS:
                return f"serves {spelled(FLOATS)}, not {bare(dtype)}"
        return super().refusal(call)

    def shared_arguments(self) -> Mapping[str, str | bool]:
        """The arguments that every program has."""
        result = FLOATS[self.call.result]
        return {"log": self.call.log, "source": FLOATS[self.call.dtype], "through": result, "target": result}


class SoftmaxKernel(_SoftmaxKernel):
    """Softmax on CUDA, for every shape; the first call with rows of a length builds what any number of them needs."""

    general: ClassVar[bool] = True

    def __init__(self, call: SoftmaxCall) -> None:
        super().__init__(call)
        self._clusters = call.arch in CLUSTER_ARCHS
        self._loaded: Loaded[Settings, Sequence[cuda.CUDAFunction]] = Loaded(
            lambda settings: [cuda.load_for(self, each) for each in self.programs_of(settings)]
        )
        self._rows: Loaded[tuple[Rows, ...], Mapping[Rows, Sequence[cuda.CUDAFunction]]] = Loaded(
            lambda variants: {settings: self._loaded[settings] for settings in variants}
        )

    def programs(self) -> Sequence[Program]:
        """The programs of every launch setting."""
        found: list[Settings] = []
        for vector in (min(WIDEST, ACCESS_BYTES // self.call.dtype.itemsize), 1):
            longest = [lanes * steps * vector for lanes, _, steps, _ in ON_CHIP]
            found += (row_settings(1, length, vector, 1) for length in (*longest, longest[-1] + 1))
            found.append(row_settings(1, longest[-1] + 1, vector, 2))
            if self._clusters and vector > 1:
                found += dict.fromkeys(
                    ClusterSettings(vector=vector, lanes=lanes, steps=steps, blocks=blocks, cluster=cluster)
                    for cluster, lanes, steps, blocks in (*CLUSTERED, *SPREAD)
                )
            found += (
                column_settings(count, length, vector, 1) for count, length in ((1, 64), (1, 65), (32, 64), (512, 64))
            )
        return tuple(program for settings in found for program in self.programs_of(settings))

    def programs_of(self, settings: Settings) -> Sequence[Program]:
        """The programs of one launch setting, in the order of their launches."""
        arguments = {**self.shared_arguments(), **asdict(settings)}
        module = f"{_CUDA_PROGRAMS}{MODULES.get(type(settings), '')}"
        return tuple(Program.of(module, builder, **arguments) for builder in BUILDERS[type(settings)])

    def forward(self, x: Tensor, axis: int) -> Tensor:
        """See `SoftmaxFwdInterface.forward`; the current device is what it was."""
        y = torch.empty_like(x, dtype=self.call.result, memory_format=torch.contiguous_format)
        if x.numel() == 0:
            return y
        outer, reduced, inner = slices(x.shape, axis)
        with made_current(x.device):
            if inner == 1:
                self._launch_rows(x, y, outer, reduced)
            else:
                vector = vector_width(inner, x.dtype)
                (run,) = self._loaded[column_settings(outer * inner // vector, reduced, vector, self.call.sm_count)]
                views = (columns_view(tensor, outer, reduced, inner, vector) for tensor in (x, y))
                run(*views, *divisor64(inner // vector))
        return y

    def _launch_rows(self, x: Tensor, y: Tensor, outer: int, reduced: int) -> None:
        vector = vector_width(reduced, x.dtype)
        sm_count, clusters = self.call.sm_count, self._clusters
        settings = row_settings(outer, reduced, vector, sm_count, clusters=clusters)
        source, target = (rows_view(tensor, outer, reduced, vector) for tensor in (x, y))
        if isinstance(settings, OnChipSettings):  # rows of such a length have one program, however many they are
            self._loaded[settings][0](source, target)
            return
        first, *second = self._rows[row_variants(reduced, vector, sm_count, clusters=clusters)][settings]
        if not isinstance(settings, PartSettings):
            first(source, target)
            return
        count = parts_of(outer, reduced, settings, sm_count)
        parts = torch.empty((outer, count, 2), dtype=torch.float32, device=x.device)
        first(source, parts)
        second[0](source, parts, target)


class SoftmaxCPUKernel(_SoftmaxKernel):
    """Softmax on a CPU, for every shape; slices or columns are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: SoftmaxCall) -> None:
        super().__init__(call)
        self._loaded: Loaded[str, CPUFunction] = Loaded(lambda shared: cpu.load_for(self, self.program(shared)))

    @classmethod
    def entry_for(cls, call: SoftmaxCall) -> tuple[Hashable, Callable[[], SoftmaxCPUKernel]]:
        """One entry for all threads and all shapes."""
        return (call.log, call.dtype, call.result), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The program of rows, and those of columns whose threads share outer slices or columns."""
        return tuple(self.program(shared) for shared in ("rows", "outer", "columns"))

    def program(self, shared: str) -> Program:
        """The program whose threads share `rows`, or of columns `outer` slices or `columns`."""
        if shared == "rows":
            return Program.of(_CPU_PROGRAMS, "softmax_rows", **self.shared_arguments())
        return Program.of(_CPU_PROGRAMS, "softmax_columns", **self.shared_arguments(), shared=shared)

    def forward(self, x: Tensor, axis: int) -> Tensor:
        """See `SoftmaxFwdInterface.forward`; programs take their sizes in alphabetical order."""
        y = torch.empty_like(x, dtype=self.call.result, memory_format=torch.contiguous_format)
        if x.numel() == 0:
            return y
        outer, reduced, inner = slices(x.shape, axis)
        threads = torch.get_num_threads()
        shared = "rows" if inner == 1 else shared_axis(outer, inner, threads)
        run = self._loaded[shared]
        sizes = (outer, reduced) if inner == 1 else (inner, inner, outer, reduced)
        run(x.data_ptr(), y.data_ptr(), *sizes, threads)
        return y


SOFTMAX_KERNELS: Mapping[str, KernelType] = {"softmax": SoftmaxKernel, "softmax_cpu": SoftmaxCPUKernel}
