"""Kernel types of softmax: one on CUDA and one on CPU, each for every shape and axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.reduction.interfaces import SoftmaxCall, SoftmaxFwdInterface
from tileops_kernels.reduction.launches import (
    FLOATS,
    WIDEST,
    ColumnSettings,
    bare,
    column_settings,
    columns_view,
    rows_view,
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


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """Launch settings of rows that are read twice: see the builder `softmax_streaming`."""

    vector: int
    lanes: int
    unroll: int


Settings: TypeAlias = OnChipSettings | StreamingSettings | ColumnSettings

BUILDERS: Mapping[type[Settings], str] = {
    OnChipSettings: "softmax_on_chip",
    StreamingSettings: "softmax_streaming",
    ColumnSettings: "softmax_columns",
}
"""The builder that each kind of settings belongs to."""

ON_CHIP = ((4, 32, 4), (32, 4, 1), (32, 4, 4), (256, 1, 2), (256, 1, 4), (256, 1, 8), (512, 1, 8))
"""Lanes, rows of a block and accesses of a lane of the programs that hold a row, by the length that they hold."""


def row_settings(reduced: int, vector: int) -> OnChipSettings | StreamingSettings:
    """The smallest program that holds the row in registers, else one that reads it twice."""
    for lanes, rows, steps in ON_CHIP:
        if reduced <= lanes * steps * vector:
            return OnChipSettings(vector=vector, lanes=lanes, rows=rows, steps=steps)
    return StreamingSettings(vector=vector, lanes=1024, unroll=2)


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
    """Softmax on CUDA, for every shape."""

    general: ClassVar[bool] = True

    def __init__(self, call: SoftmaxCall) -> None:
        super().__init__(call)
        self._loaded: dict[Settings, cuda.CUDAFunction] = {}

    def programs(self) -> Sequence[Program]:
        """The program of every launch setting."""
        found: list[Program] = []
        for vector in (min(WIDEST, ACCESS_BYTES // self.call.dtype.itemsize), 1):
            longest = [lanes * steps * vector for lanes, _, steps in ON_CHIP]
            found += (self.program(row_settings(length, vector)) for length in (*longest, longest[-1] + 1))
            found += (self.program(column_settings(32, reduced, vector, 1)) for reduced in (1, 16))
        return tuple(found)

    def program(self, settings: Settings) -> Program:
        """The program of one launch setting."""
        return Program.of(_CUDA_PROGRAMS, BUILDERS[type(settings)], **self.shared_arguments(), **asdict(settings))

    def forward(self, x: Tensor, axis: int) -> Tensor:
        """See `SoftmaxFwdInterface.forward`; the current device is what it was."""
        y = torch.empty(x.shape, dtype=self.call.result, device=x.device)
        if x.numel() == 0:
            return y
        outer, reduced, inner = _slices(x, axis)
        with torch.cuda.device(x.device):
            if inner == 1:
                vector = vector_width(reduced, x.dtype)
                run = self._run(row_settings(reduced, vector))
                run(rows_view(x, outer, reduced, vector), rows_view(y, outer, reduced, vector))
            else:
                vector = vector_width(inner, x.dtype)
                run = self._run(column_settings(outer * inner, reduced, vector, self.call.sm_count))
                views = (columns_view(tensor, outer, reduced, inner, vector) for tensor in (x, y))
                run(*views)
        return y

    def _run(self, settings: Settings) -> cuda.CUDAFunction:
        """The program of one launch setting, built by the first call that needs it."""
        run = self._loaded.get(settings)
        if run is None:
            owner = f"{type(self).__name__} for {self.call}"
            run = cuda.load(self.program(settings), arch=self.call.arch, owner=owner)
            self._loaded[settings] = run
        return run


class SoftmaxCPUKernel(_SoftmaxKernel):
    """Softmax on a CPU, for every shape; slices are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: SoftmaxCall) -> None:
        super().__init__(call)
        self._loaded: dict[bool, CPUFunction] = {}

    @classmethod
    def entry_for(cls, call: SoftmaxCall) -> tuple[Hashable, Callable[[], SoftmaxCPUKernel]]:
        """One entry for all threads and all shapes."""
        return (call.log, call.dtype, call.result), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The program of rows and that of columns."""
        return self.program(rows=True), self.program(rows=False)

    def program(self, *, rows: bool) -> Program:
        """The program of rows, or of columns."""
        return Program.of(_CPU_PROGRAMS, "softmax_rows" if rows else "softmax_columns", **self.shared_arguments())

    def forward(self, x: Tensor, axis: int) -> Tensor:
        """See `SoftmaxFwdInterface.forward`; programs take their sizes in alphabetical order."""
        y = torch.empty(x.shape, dtype=self.call.result, device=x.device)
        if x.numel() == 0:
            return y
        outer, reduced, inner = _slices(x, axis)
        run = self._loaded.get(inner == 1) or self._load(rows=inner == 1)
        sizes = (outer, reduced) if inner == 1 else (inner, outer, reduced)
        run(x.data_ptr(), y.data_ptr(), *sizes, torch.get_num_threads())
        return y

    def _load(self, *, rows: bool) -> CPUFunction:
        run = cpu.load(self.program(rows=rows), owner=f"{type(self).__name__} for {self.call}")
        self._loaded[rows] = run
        return run


def _slices(x: Tensor, axis: int) -> tuple[int, int, int]:
    """The shape of x as `[outer, reduced, inner]` about one axis."""
    shape = x.shape
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


SOFTMAX_KERNELS: Mapping[str, KernelType] = {"softmax": SoftmaxKernel, "softmax_cpu": SoftmaxCPUKernel}
