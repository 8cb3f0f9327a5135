"""Folds on the host: reductions that keep more than one value, run in passes on CUDA and on a CPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import GRAIN, CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.interface import CallT
from tileops_kernels.kernel import Kernel
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.reduction.launches import WIDEST, ColumnSettings, packed_view, vector_width
from tileops_kernels.reduction.passes import Pass, Spread, passes, planes_of
from tileops_kernels.reduction.reduce import (
    LONGEST_LANES,
    ROWS,
    PlaneSettings,
    RowSettings,
    Settings,
    column_settings,
    plane_settings,
    plenty_of,
    row_settings,
    settings_of,
)

Fold: TypeAlias = Literal["log_sum_exp", "moments"]
Given: TypeAlias = Literal["total", "partial", "variance", "deviation"]

BUILDERS: Mapping[type[Settings], str] = {
    RowSettings: "fold_rows",
    ColumnSettings: "fold_columns",
    PlaneSettings: "fold_planes",
}
"""The builder that each kind of settings belongs to."""

_CUDA_PROGRAMS = "tileops_kernels.reduction.programs.folds"
_CPU_PROGRAMS = "tileops_kernels.reduction.programs.folds_cpu"


@dataclass(frozen=True, slots=True)
class FoldStep:
    """One pass: the dtype of its elements and how many parts each has, what it gives and in which dtype.

    With `mean` the mean is a second result.
    """

    gives: Given
    mean: bool
    source: str
    parts: int
    target: str

    @property
    def planes(self) -> int:
        """The values that each result has."""
        return 3 if self.gives == "partial" else 1


def _numbers(x: Tensor) -> Tensor:
    """x, or ones where a boolean's byte is any but zero: programs that fold read numbers."""
    return x.view(torch.uint8).ne(0).view(torch.uint8) if x.dtype is torch.bool else x


class FoldKernel(Kernel[CallT]):
    """A fold in passes; partial results between them are float32, and only the last pass rounds."""

    fold: ClassVar[Fold]

    def __init__(self, call: CallT) -> None:
        super().__init__(call)
        self.whole = self.step_of(call)
        self.later = replace(self.whole, source="float32", parts=self.partial(self.whole).planes)

    @classmethod
    @abstractmethod
    def step_of(cls, call: CallT) -> FoldStep:
        """The pass that does all of `call`."""
        ...

    @abstractmethod
    def spread(self) -> Spread:
        """How far the device spreads one pass."""
        ...

    @abstractmethod
    def run(
        self, each: Pass, step: FoldStep, source: Tensor, results: Sequence[Tensor], divisor: Sequence[float]
    ) -> None:
        """Run one pass on contiguous tensors; `divisor` is what squared deviations are divided by, else nothing."""
        ...

    def partial(self, step: FoldStep) -> FoldStep:
        """`step` where other passes follow."""
        gives: Given = "partial" if self.fold == "moments" else "total"
        return replace(step, gives=gives, mean=False, target="float32")

    def steps(self) -> tuple[FoldStep, ...]:
        """Every pass that a call can have: first or later, before others or last."""
        both = (self.whole, self.later)
        return tuple(dict.fromkeys((*both, *(self.partial(step) for step in both))))

    def fold_axes(self, x: Tensor, axes: Sequence[int], results: Sequence[Tensor], divisor: float | None) -> None:
        """Fold `axes` of x, which has elements, to `results`; squared deviations of all are divided by `divisor`."""
        planned = passes(tuple(x.shape), tuple(axes), self.spread())
        source, step = _numbers(x), self.whole
        for each in planned[:-1]:
            partial = self.partial(step)
            target = torch.empty(each.outer * each.inner * partial.planes, dtype=torch.float32, device=x.device)
            # a partial result is the mean of squared deviations, as an element of the next pass adds them
            self.run(each, partial, source, (target,), () if divisor is None else (each.reduced,))
            source, step = target, self.later
        last, count = planned[-1], x.numel() // results[0].numel()
        self.run(last, step, source, results, () if divisor is None else (last.reduced * divisor / count,))


class CUDAFolds(FoldKernel[CallT]):
    """Folds on CUDA, for every shape."""

    general: ClassVar[bool] = True

    def __init__(self, call: CallT) -> None:
        super().__init__(call)
        self._spread = Spread(
            slices=4 * call.sm_count,
            columns=16 * call.sm_count,
            part=4096,
            width=256,
            plenty=plenty_of(call.sm_count),
        )
        self._loaded: Loaded[tuple[FoldStep, Settings], cuda.CUDAFunction] = Loaded(
            lambda key: cuda.load_for(self, self.program(*key))
        )

    def programs(self) -> Sequence[Program]:
        """Every pass with every launch setting."""
        found: list[Program] = []
        for step in self.steps():
            for vector in (min(WIDEST, ACCESS_BYTES // getattr(torch, step.source).itemsize), 1):
                lengths = [*(longest for longest, *_ in ROWS), ROWS[-1][0] + 1]
                found += (self.program(step, row_settings(3, length * vector, vector, 1)) for length in lengths)
                found.append(self.program(step, settings_of(Pass(1, LONGEST_LANES * 8 * vector, 1), vector, 1)))
                found += (self.program(step, column_settings(count, 16, vector, 1)) for count in (1, 3, 64, 512))
                if step == self.whole:
                    found.append(self.program(step, PlaneSettings(vector=vector)))
        return tuple(found)

    def program(self, step: FoldStep, settings: Settings) -> Program:
        """The program of one pass."""
        return Program.of(_CUDA_PROGRAMS, BUILDERS[type(settings)], fold=self.fold, **asdict(step), **asdict(settings))

    def spread(self) -> Spread:
        """Four blocks of rows on each multiprocessor, or 16 columns; parts are equally long, as moments are merged."""
        return self._spread

    def fold_axes(self, x: Tensor, axes: Sequence[int], results: Sequence[Tensor], divisor: float | None) -> None:
        """See `FoldKernel.fold_axes`; the current device is what it was."""
        planes = planes_of(tuple(x.shape), tuple(axes))
        settings = None if planes is None else plane_settings(planes, x.dtype, self.call.sm_count)
        with made_current(x.device):
            if planes is None or settings is None:
                super().fold_axes(x, axes, results, divisor)
                return
            batch, channels, length = planes
            view = packed_view(_numbers(x), (batch, channels, length // settings.vector, settings.vector))
            y, *mean = (tensor.view(channels) for tensor in results)
            self._loaded[self.whole, settings](
                view, y.view(1, channels), *mean, *(() if divisor is None else (divisor,))
            )

    def run(
        self, each: Pass, step: FoldStep, source: Tensor, results: Sequence[Tensor], divisor: Sequence[float]
    ) -> None:
        """Launch one pass."""
        outer, reduced, inner = each.outer, each.reduced, each.inner
        vector = vector_width(reduced if inner == 1 else inner, source.dtype)
        settings = settings_of(each, vector, self.call.sm_count)
        if inner == 1:
            elements: tuple[int, ...] = (outer, reduced // vector, vector)
            kept: tuple[int, ...] = (outer,)
        else:
            elements, kept = (outer, reduced, inner // vector, vector), (outer, inner // vector, vector)
        y, *mean = results
        run = self._loaded[step, settings]
        run(
            packed_view(source, (step.parts, *elements)),
            y.view(step.planes, *kept),
            *(tensor.view(kept) for tensor in mean),
            *divisor,
        )


class CPUFolds(FoldKernel[CallT]):
    """Folds on a CPU, for every shape; slices are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: CallT) -> None:
        super().__init__(call)
        self._loaded: Loaded[tuple[FoldStep, bool], CPUFunction] = Loaded(
            lambda key: cpu.load_for(self, self.program(key[0], rows=key[1]))
        )

    def programs(self) -> Sequence[Program]:
        """Every pass, on rows and on columns."""
        return tuple(self.program(step, rows=rows) for step in self.steps() for rows in (True, False))

    def program(self, step: FoldStep, *, rows: bool) -> Program:
        """The program of one pass."""
        return Program.of(_CPU_PROGRAMS, "fold_rows" if rows else "fold_columns", fold=self.fold, **asdict(step))

    def spread(self) -> Spread:
        """A slice for each thread, worth waking it."""
        return Spread(slices=torch.get_num_threads(), columns=None, part=GRAIN, width=256)

    def run(
        self, each: Pass, step: FoldStep, source: Tensor, results: Sequence[Tensor], divisor: Sequence[float]
    ) -> None:
        """Run one pass; programs take their sizes in alphabetical order."""
        run = self._loaded[step, each.inner == 1]
        sizes = (each.outer, each.reduced) if each.inner == 1 else (each.inner, each.outer, each.reduced)
        places = (tensor.data_ptr() for tensor in (source, *results))
        run(*places, *divisor, *sizes, torch.get_num_threads())


def kept_extents(x: Tensor, axes: Sequence[int]) -> list[int]:
    """The extents of the axes of x that are not reduced."""
    return [extent for axis, extent in enumerate(x.shape) if axis not in axes]
