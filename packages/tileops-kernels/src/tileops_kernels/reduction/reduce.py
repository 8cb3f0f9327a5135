"""Kernel types of reductions to one value: one on CUDA and one on CPU, each for every shape and choice of axes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
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
from tileops_kernels.reduction.interfaces import Contribution, Outcome, ReduceCall, ReduceFwdInterface
from tileops_kernels.reduction.launches import (
    COMPLEXES,
    FLOATS,
    INTEGERS,
    WIDEST,
    ColumnSettings,
    bare,
    columns_view,
    packed_view,
    rows_view,
    spelled,
    vector_width,
)
from tileops_kernels.reduction.passes import Pass, Spread, passes, planes_of

DTYPES = {**FLOATS, **INTEGERS}
"""The dtypes of elements, with TileLang's names for them."""

_CUDA_PROGRAMS = "tileops_kernels.reduction.programs.reduce"
_CPU_PROGRAMS = "tileops_kernels.reduction.programs.reduce_cpu"


@dataclass(frozen=True, slots=True)
class RowSettings:
    """Launch settings of rows: elements of an access, threads of a row, rows of a block, accesses at a time."""

    vector: int
    lanes: int
    rows: int
    unroll: int


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """Launch settings of planes: elements of an access, threads of a channel, accesses at a time."""

    vector: int
    threads: int = 512
    unroll: int = 4


Settings: TypeAlias = RowSettings | ColumnSettings | PlaneSettings

BUILDERS: Mapping[type[Settings], str] = {
    RowSettings: "reduce_rows",
    ColumnSettings: "reduce_columns",
    PlaneSettings: "reduce_planes",
}
"""The builder that each kind of settings belongs to."""

LINE_BYTES = 128
"""What a plane has at least to be read by one block: less would leave parts of what memory hands over to others."""

TURNS = 4
"""Turns of a block through a channel at most; more would take longer than the second launch that is spared."""

ROWS = ((2, 1, 128, 2), (32, 4, 32, 8), (256, 32, 4, 8), (512, 64, 2, 8), (1024, 256, 1, 4))
"""Vectors that a row has at most, lanes, rows of a block and accesses at a time, of each program but the last."""

LONGEST_LANES = 512
"""Lanes of rows that are longer."""


def row_settings(
    outer: int, reduced: int, vector: int, sm_count: int, table: Sequence[tuple[int, int, int, int]] = ROWS
) -> RowSettings:
    """A lane for one or two accesses, up to 64 with eight each, then a block; few rows have as many as its last."""
    vectors = reduced // vector
    few = vectors > 32 and outer <= 2 * sm_count
    for longest, lanes, rows, unroll in table:
        if vectors <= longest and not (few and lanes < table[-1][1]):
            return RowSettings(vector=vector, lanes=lanes, rows=rows, unroll=unroll)
    return RowSettings(vector=vector, lanes=LONGEST_LANES, rows=1, unroll=4)


def column_settings(vectors: int, reduced: int, vector: int, sm_count: int) -> ColumnSettings:
    """A thread for each of `vectors` vectors where they are plenty or short; else as many share one as fill the device.

    Two vectors of a row are the least that memory hands over at once, four the least that it does well.
    """
    if reduced < 16 or vectors >= 512 * sm_count:
        return ColumnSettings(vector=vector, across=256, down=1, unroll=4)
    if vectors >= 64 * sm_count:
        return ColumnSettings(vector=vector, across=32, down=8, unroll=8)
    if vectors >= 3 * sm_count:
        return ColumnSettings(vector=vector, across=4, down=128, unroll=8)
    return ColumnSettings(vector=vector, across=2, down=256, unroll=8)


def settings_of(each: Pass, vector: int, sm_count: int) -> Settings:
    """The launch settings of one pass whose elements are read `vector` at a time.

    Where no multiprocessor has a second row, a thread has registers for more accesses at a time, and so fewer turns.
    """
    if each.inner == 1:
        rows, reduced = each.outer * each.parts, each.reduced // each.parts
        settings = row_settings(rows, reduced, vector, sm_count)
        turn = settings.lanes * settings.unroll
        alone = settings.lanes == LONGEST_LANES and rows <= sm_count and reduced // vector > turn
        return replace(settings, unroll=2 * settings.unroll) if alone else settings
    vectors = each.outer * each.inner // vector
    return column_settings(vectors * each.parts, each.reduced // each.parts, vector, sm_count)


def plane_settings(planes: tuple[int, int, int], dtype: torch.dtype, sm_count: int) -> PlaneSettings | None:
    """The settings of `[batch, channels, length]` where a block for each channel takes one launch, else None.

    It does where a block reads its channel at once, and where it takes a few turns but channels are as many as
    multiprocessors. Channels that leave threads idle are few.
    """
    batch, channels, length = planes
    settings = PlaneSettings(vector=vector_width(length, dtype))
    vectors = batch * length // settings.vector
    turns = -(-vectors // (settings.threads * settings.unroll))
    idle = vectors < settings.threads and channels > 4 * sm_count
    if length * dtype.itemsize < LINE_BYTES or turns > TURNS or (turns > 1 and channels < sm_count) or idle:
        return None
    return settings


def plenty_of(sm_count: int) -> int:
    """Rows that a block each takes in less time than parts and a second launch, as long as they are not very long."""
    return -(-sm_count // 16)


@dataclass(frozen=True, slots=True)
class Step:
    """One pass: the dtypes of its elements, what they are rounded to first, and of its results.

    The first pass alone takes something `of` its elements, and the last alone `gives` more than a total.
    """

    source: str
    through: str
    target: str
    of: Contribution = "value"
    gives: Outcome = "total"


class _PassesKernel(Kernel[ReduceCall], ReduceFwdInterface):
    """A reduction in passes; partial results between them are accumulators, and only the last pass rounds."""

    def __init__(self, call: ReduceCall) -> None:
        super().__init__(call)
        self._wide = torch.float32 if call.result in FLOATS else torch.int64
        source, result, wide = (_stored(dtype) for dtype in (call.dtype, call.result, self._wide))
        of = "nonzero" if call.dtype is torch.bool else call.of  # as torch takes bytes; CUDA blocks count in 32 bits
        self.first = Step(source, result, result, of, call.gives)
        self.later = Step(wide, wide, result, gives=call.gives)
        self._wide_name = wide

    @classmethod
    def refusal(cls, call: ReduceCall) -> str | None:
        """None for the dtypes that both kernel types serve."""
        if call.dtype in COMPLEXES and call.of != "nonzero":
            return f"counts elements of {bare(call.dtype)} that are not zero, and combines none of them"
        if call.dtype not in DTYPES and call.dtype not in COMPLEXES:
            return f"combines {spelled(DTYPES)}, not {bare(call.dtype)}"
        if call.result not in DTYPES:
            return f"gives {spelled(DTYPES)}, not {bare(call.result)}"
        return super().refusal(call)

    def forward(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """See `ReduceFwdInterface.forward`."""
        call, shape = self.call, tuple(x.shape)
        kept = [extent for axis, extent in enumerate(shape) if axis not in axes]
        if x.numel() == 0:
            return torch.full(kept, _of_nothing(call), dtype=call.result, device=x.device)
        y = torch.empty(kept, dtype=call.result, device=x.device)
        planned = passes(shape, tuple(axes), self.spread())
        source, result = _in_memory(x), _in_memory(y)
        step, count = self.first, [x.numel() / y.numel()] if call.gives == "mean" else []
        for each in planned[:-1]:
            target = torch.empty(each.outer * each.parts * each.inner, dtype=self._wide, device=x.device)
            self.run(each, replace(step, target=self._wide_name, gives="total"), source, target, [])
            source, step = target, self.later
        self.run(planned[-1], step, source, result, count)
        return y

    def steps(self) -> tuple[Step, ...]:
        """The dtypes of every pass that a call can have: first or later, before others or last."""
        both = (self.first, self.later)
        partial = (replace(step, target=self._wide_name, gives="total") for step in both)
        return tuple(dict.fromkeys((*both, *partial)))

    @abstractmethod
    def spread(self) -> Spread:
        """How far the device spreads one pass."""
        ...

    @abstractmethod
    def run(self, each: Pass, step: Step, source: Tensor, target: Tensor, count: Sequence[float]) -> None:
        """Run one pass on contiguous tensors; `count` is what a pass that gives a mean divides by, else nothing."""
        ...


class ReduceKernel(_PassesKernel):
    """Reductions on CUDA, for every shape."""

    general: ClassVar[bool] = True

    def __init__(self, call: ReduceCall) -> None:
        super().__init__(call)
        self._spread = Spread(
            slices=4 * call.sm_count,
            columns=32 * call.sm_count,
            part=4096,
            width=256,
            dealing=True,
            plenty=plenty_of(call.sm_count),
        )
        self._loaded: Loaded[tuple[Step, Settings], cuda.CUDAFunction] = Loaded(
            lambda key: cuda.load_for(self, self.program(*key))
        )

    def programs(self) -> Sequence[Program]:
        """Every pass's dtypes with every launch setting."""
        found: list[Program] = []
        for step in self.steps():
            widest = min(WIDEST, ACCESS_BYTES // getattr(torch, step.source).itemsize)
            for vector in dict.fromkeys((widest, 1)):
                lengths = [*(longest for longest, *_ in ROWS), ROWS[-1][0] + 1]
                found += (self.program(step, row_settings(3, length * vector, vector, 1)) for length in lengths)
                found.append(self.program(step, settings_of(Pass(1, LONGEST_LANES * 8 * vector, 1), vector, 1)))
                found += (self.program(step, column_settings(count, 16, vector, 1)) for count in (1, 3, 64, 512))
                if step == self.first and self.call.dtype not in COMPLEXES:
                    found.append(self.program(step, PlaneSettings(vector=vector)))
        return tuple(found)

    def program(self, step: Step, settings: Settings) -> Program:
        """The program of one pass."""
        arguments = {"operation": self.call.operation, **asdict(step), **asdict(settings)}
        return Program.of(_CUDA_PROGRAMS, BUILDERS[type(settings)], **arguments)

    def spread(self) -> Spread:
        """Sixteen parts of rows for each multiprocessor, or a block of columns."""
        return self._spread

    def forward(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """See `ReduceFwdInterface.forward`; the current device is what it was."""
        planes = None if x.dtype in COMPLEXES else planes_of(tuple(x.shape), tuple(axes))
        with made_current(x.device):
            if planes is not None:
                settings = plane_settings(planes, x.dtype, self.call.sm_count)
                if settings is not None:
                    return self._reduce_planes(x, axes, planes, settings)
            return super().forward(x, axes)

    def _reduce_planes(
        self, x: Tensor, axes: Sequence[int], planes: tuple[int, int, int], settings: PlaneSettings
    ) -> Tensor:
        batch, channels, length = planes
        kept = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
        y = torch.empty(kept, dtype=self.call.result, device=x.device)
        count = [float(batch * length)] if self.call.gives == "mean" else []
        view = packed_view(_in_memory(x), (batch, channels, length // settings.vector, settings.vector))
        self._loaded[self.first, settings](view, _in_memory(y).view(channels), *count)
        return y

    def run(self, each: Pass, step: Step, source: Tensor, target: Tensor, count: Sequence[float]) -> None:
        """Launch one pass."""
        outer, reduced, inner, parts = each.outer, each.reduced, each.inner, each.parts
        words = 2 if step.source == "complex128" else 1
        vector = vector_width((reduced if inner == 1 else inner) * words, source.dtype)
        settings = settings_of(each, vector // words, self.call.sm_count)
        run = self._loaded[step, settings]
        if inner == 1:
            run(rows_view(source, outer, reduced * words, vector), target.view(outer, parts), *count)
        else:
            results = columns_view(target, outer, parts, inner, settings.vector)
            run(columns_view(source, outer, reduced, inner * words, vector), results, *count)


class ReduceCPUKernel(_PassesKernel):
    """Reductions on a CPU, for every shape; slices are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: ReduceCall) -> None:
        super().__init__(call)
        self._spread = Spread(slices=1, columns=None, part=GRAIN, width=256)
        self._loaded: Loaded[tuple[Step, bool], CPUFunction] = Loaded(
            lambda key: cpu.load_for(self, self.program(key[0], rows=key[1]))
        )

    @classmethod
    def entry_for(cls, call: ReduceCall) -> tuple[Hashable, Callable[[], ReduceCPUKernel]]:
        """One entry for all threads and all shapes."""
        return (call.operation, call.of, call.gives, call.dtype, call.result), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """Every pass's dtypes, on rows and on columns."""
        return tuple(self.program(step, rows=rows) for step in self.steps() for rows in (True, False))

    def program(self, step: Step, *, rows: bool) -> Program:
        """The program of one pass."""
        builder = "reduce_rows" if rows else "reduce_columns"
        return Program.of(_CPU_PROGRAMS, builder, operation=self.call.operation, **asdict(step))

    def spread(self) -> Spread:
        """A slice for each thread, worth waking it."""
        threads, spread = torch.get_num_threads(), self._spread
        if spread.slices != threads:
            spread = self._spread = Spread(slices=threads, columns=None, part=GRAIN, width=256)
        return spread

    def run(self, each: Pass, step: Step, source: Tensor, target: Tensor, count: Sequence[float]) -> None:
        """Run one pass; programs take their sizes in alphabetical order."""
        run = self._loaded[step, each.inner == 1]
        sizes = (each.outer, each.reduced) if each.inner == 1 else (each.inner, each.outer, each.reduced)
        run(source.data_ptr(), target.data_ptr(), *count, *sizes, torch.get_num_threads())


def _stored(dtype: torch.dtype) -> str:
    """The name by which programs know elements of `dtype`: booleans are bytes."""
    return "uint8" if dtype is torch.bool else {**DTYPES, **COMPLEXES}[dtype]


def _in_memory(tensor: Tensor) -> Tensor:
    """The values of a contiguous tensor that programs take: bytes of booleans, and the bits of complex elements."""
    if tensor.dtype is torch.bool:
        return tensor.view(torch.uint8)
    if tensor.dtype not in COMPLEXES:
        return tensor
    plain = tensor.conj() if tensor.is_conj() else tensor  # conjugates are zero where elements are
    return torch.view_as_real(plain).view(torch.int64)


def _of_nothing(call: ReduceCall) -> float:
    """What the reduction of no elements gives."""
    if call.gives == "mean":
        return math.nan
    if call.operation in {"amax", "amin"}:
        least = call.operation == "amax"
        if call.result in FLOATS:
            return -math.inf if least else math.inf
        if call.result is torch.bool:
            return not least
        return torch.iinfo(call.result).min if least else torch.iinfo(call.result).max
    return 0 if call.operation == "sum" else 1


REDUCE_KERNELS: Mapping[str, KernelType] = {"reduce": ReduceKernel, "reduce_cpu": ReduceCPUKernel}
