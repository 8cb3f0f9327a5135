"""Kernel types of positions of extremes: one on CUDA and one on CPU, each for every shape and axis."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import GRAIN, CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.reduction.interfaces import ArgReduceCall, ArgReduceFwdInterface
from tileops_kernels.reduction.launches import (
    FLOATS,
    WIDEST,
    ColumnSettings,
    bare,
    columns_view,
    rows_view,
    slices,
    spelled,
    vector_width,
)
from tileops_kernels.reduction.passes import Pass, Spread, passes
from tileops_kernels.reduction.reduce import RowSettings
from tileops_kernels.reduction.reduce import row_settings as settings_of_rows

_CUDA_PROGRAMS = "tileops_kernels.reduction.programs.argreduce"
_CPU_PROGRAMS = "tileops_kernels.reduction.programs.argreduce_cpu"


PART_BYTES = 16384
"""What a part of one row has at least, so that a block compares two million halves' parts with a thread for each."""


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """Launch settings of candidates: threads that share a result, and results of a block."""

    lanes: int = 32
    rows: int = 4


@dataclass(frozen=True, slots=True)
class ShortColumnSettings:
    """Launch settings of columns that are not shared: elements of an access, threads of a block, rows at a time."""

    vector: int
    across: int
    unroll: int


Columns: TypeAlias = ColumnSettings | ShortColumnSettings
Settings: TypeAlias = RowSettings | Columns | CandidateSettings

ROWS = ((2, 1, 128, 2), (32, 4, 32, 8), (256, 32, 4, 8), (512, 64, 2, 8), (1024, 128, 1, 8))
"""Vectors that a row has at most, lanes, rows of a block and accesses at a time, of each program but the last."""


def row_settings(outer: int, reduced: int, vector: int, sm_count: int) -> RowSettings:
    """A lane for one or two accesses, up to 128 with eight each, then a block of 512; few rows have 128 at least."""
    return settings_of_rows(outer, reduced, vector, sm_count, ROWS)


def column_settings(vectors: int, reduced: int, vector: int, sm_count: int) -> Columns:
    """A thread for each of `vectors` vectors where they are plenty or short; else many share one, and compare chunks.

    Four vectors of a row are the least that memory hands over well.
    """
    if reduced < 16 or vectors >= 512 * sm_count:
        return ShortColumnSettings(vector=vector, across=256, unroll=4)
    if vectors >= 64 * sm_count:
        return ColumnSettings(vector=vector, across=32, down=8, unroll=8)
    return ColumnSettings(vector=vector, across=4, down=128, unroll=4)


def settings_of(each: Pass, vector: int, sm_count: int) -> RowSettings | Columns:
    """The launch settings of a first pass whose elements are read `vector` at a time."""
    if each.inner == 1:
        return row_settings(each.outer, each.reduced, vector, sm_count)
    return column_settings(each.outer * each.inner // vector, each.reduced, vector, sm_count)


CANDIDATES = ((64, CandidateSettings()), (None, CandidateSettings(lanes=256, rows=1)))
"""Parts that a result has at most, None for any number, and the settings that compare what they found."""


def candidate_settings(parts: int) -> CandidateSettings:
    """A warp for each result, or a block for many parts: a thread that compares several waits for each in turn."""
    return next(settings for most, settings in CANDIDATES if most is None or parts <= most)


BUILDERS: Mapping[type[Settings], str] = {
    RowSettings: "arg_rows",
    ColumnSettings: "arg_columns_by_chunks",
    ShortColumnSettings: "arg_columns",
    CandidateSettings: "arg_candidates",
}
"""The builder that each kind of settings belongs to."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A pass after the first: it compares the elements at the positions that the one before it found.

    x is `[outer, reduced, inner]` and the positions are `[outer, parts, inner]`; position `p` of part `k` is element
    `p * scale + k * step` of the axis.
    """

    outer: int
    reduced: int
    inner: int
    parts: int
    scale: int
    step: int


def choices(planned: Sequence[Pass], count: int) -> tuple[Choice, ...]:
    """What the passes after the first compare, of a tensor of `count` elements.

    Parts of an axis stand one behind the other where a pass keeps the columns, and take turns where it lays columns
    side by side.
    """
    found: list[Choice] = []
    for before, each in pairwise(planned):
        reduced = count // (each.outer * each.inner)
        behind = before.inner == each.inner
        scale, step = (1, reduced // each.reduced) if behind else (each.reduced, 1)
        found.append(Choice(each.outer, reduced, each.inner, each.reduced, scale, step))
    return tuple(found)


class _ArgReduceKernel(Kernel[ArgReduceCall], ArgReduceFwdInterface):
    """Passes over parts of the axis, and passes that choose among what the parts have found."""

    @classmethod
    def refusal(cls, call: ArgReduceCall) -> str | None:
        """None for the dtypes that both kernel types serve."""
        if call.dtype not in FLOATS:
            return f"compares {spelled(FLOATS)}, not {bare(call.dtype)}"
        return super().refusal(call)

    def forward(self, x: Tensor, axis: int | None) -> Tensor:
        """See `ArgReduceFwdInterface.forward`."""
        shape = tuple(x.shape)
        y = torch.empty(() if axis is None else (*shape[:axis], *shape[axis + 1 :]), dtype=torch.int64, device=x.device)
        if x.numel() == 0:
            return y
        whole = (1, x.numel(), 1) if axis is None else slices(shape, axis)
        planned = passes(whole, (1,), self.spread(whole))
        found = self._room(planned[0], x.device) if len(planned) > 1 else y
        self.search(planned[0], x, found)
        for choice, each in zip(choices(planned, x.numel()), planned[1:], strict=True):
            target = y if each is planned[-1] else self._room(each, x.device)
            self.choose(choice, x, found, target)
            found = target
        return y

    @staticmethod
    def _room(each: Pass, device: torch.device) -> Tensor:
        return torch.empty(each.outer * each.inner, dtype=torch.int64, device=device)

    @abstractmethod
    def spread(self, whole: tuple[int, int, int]) -> Spread:
        """How far the device spreads one pass over `[outer, reduced, inner]`."""
        ...

    @abstractmethod
    def search(self, each: Pass, x: Tensor, y: Tensor) -> None:
        """Run the first pass on contiguous tensors."""
        ...

    @abstractmethod
    def choose(self, choice: Choice, x: Tensor, found: Tensor, y: Tensor) -> None:
        """Run a later pass on contiguous tensors."""
        ...


class ArgReduceKernel(_ArgReduceKernel):
    """Positions of extremes on CUDA, for every shape."""

    general: ClassVar[bool] = True

    def __init__(self, call: ArgReduceCall) -> None:
        super().__init__(call)
        self._spread = Spread(slices=4 * call.sm_count, columns=16 * call.sm_count, part=4096, width=256)
        self._spread_of_row = replace(self._spread, part=PART_BYTES // call.dtype.itemsize)
        self._loaded: Loaded[Settings, cuda.CUDAFunction] = Loaded(
            lambda settings: cuda.load_for(self, self.program(settings))
        )

    def programs(self) -> Sequence[Program]:
        """The program of every launch setting."""
        found = [self.program(settings) for _, settings in CANDIDATES]
        for vector in (min(WIDEST, ACCESS_BYTES // self.call.dtype.itemsize), 1):
            lengths = [*(longest for longest, *_ in ROWS), ROWS[-1][0] + 1]
            found += (self.program(row_settings(3, length * vector, vector, 1)) for length in lengths)
            found += (self.program(column_settings(count, 16, vector, 1)) for count in (1, 64, 512))
        return tuple(found)

    def program(self, settings: Settings) -> Program:
        """The program of one launch setting."""
        arguments = {"operation": self.call.operation, "source": FLOATS[self.call.dtype], **asdict(settings)}
        return Program.of(_CUDA_PROGRAMS, BUILDERS[type(settings)], **arguments)

    def spread(self, whole: tuple[int, int, int]) -> Spread:
        """Four parts of rows for each multiprocessor, longer ones of one row, or half a block of columns."""
        outer, _, inner = whole
        return self._spread_of_row if outer == inner == 1 else self._spread

    def forward(self, x: Tensor, axis: int | None) -> Tensor:
        """See `ArgReduceFwdInterface.forward`; the current device is what it was."""
        with made_current(x.device):
            return super().forward(x, axis)

    def search(self, each: Pass, x: Tensor, y: Tensor) -> None:
        """Launch the first pass."""
        outer, reduced, inner = each.outer, each.reduced, each.inner
        vector = vector_width(reduced if inner == 1 else inner, x.dtype)
        run = self._loaded[settings_of(each, vector, self.call.sm_count)]
        if inner == 1:
            run(rows_view(x, outer, reduced, vector), y.as_strided((outer,), (1,)))
        else:
            run(columns_view(x, outer, reduced, inner, vector), rows_view(y, outer, inner, vector))

    def choose(self, choice: Choice, x: Tensor, found: Tensor, y: Tensor) -> None:
        """Launch a later pass."""
        outer, parts, inner = choice.outer, choice.parts, choice.inner
        elements = rows_view(x, outer, choice.reduced * inner, 1).as_strided(
            (outer, choice.reduced, inner), (choice.reduced * inner, inner, 1)
        )
        candidates = found.as_strided((outer, parts, inner), (parts * inner, inner, 1))
        positions = y.as_strided((outer, inner), (inner, 1))
        self._loaded[candidate_settings(parts)](elements, candidates, positions, choice.scale, choice.step)


class ArgReduceCPUKernel(_ArgReduceKernel):
    """Positions of extremes on a CPU, for every shape; slices are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: ArgReduceCall) -> None:
        super().__init__(call)
        self._loaded: Loaded[str, CPUFunction] = Loaded(lambda builder: cpu.load_for(self, self.program(builder)))

    @classmethod
    def entry_for(cls, call: ArgReduceCall) -> tuple[Hashable, Callable[[], ArgReduceCPUKernel]]:
        """One entry for all threads and all shapes."""
        return (call.operation, call.dtype), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The programs of rows, of columns and of candidates."""
        return tuple(self.program(builder) for builder in ("arg_rows", "arg_columns", "arg_candidates"))

    def program(self, builder: str) -> Program:
        """The program of one builder."""
        return Program.of(_CPU_PROGRAMS, builder, operation=self.call.operation, source=FLOATS[self.call.dtype])

    def spread(self, whole: tuple[int, int, int]) -> Spread:  # noqa: ARG002 - no slice is longer than others
        """A slice for each thread, worth waking it."""
        return Spread(slices=torch.get_num_threads(), columns=None, part=GRAIN, width=256)

    def search(self, each: Pass, x: Tensor, y: Tensor) -> None:
        """Run the first pass; programs take their sizes in alphabetical order."""
        run = self._loaded["arg_rows" if each.inner == 1 else "arg_columns"]
        sizes = (each.outer, each.reduced) if each.inner == 1 else (each.inner, each.outer, each.reduced)
        run(x.data_ptr(), y.data_ptr(), *sizes, torch.get_num_threads())

    def choose(self, choice: Choice, x: Tensor, found: Tensor, y: Tensor) -> None:
        """Run a later pass."""
        sizes = (choice.inner, choice.outer, choice.parts, choice.reduced)
        run = self._loaded["arg_candidates"]
        run(
            *(tensor.data_ptr() for tensor in (x, found, y)),
            *(choice.scale, choice.step),
            *sizes,
            torch.get_num_threads(),
        )


ARG_REDUCE_KERNELS: Mapping[str, KernelType] = {"arg_reduce": ArgReduceKernel, "arg_reduce_cpu": ArgReduceCPUKernel}
