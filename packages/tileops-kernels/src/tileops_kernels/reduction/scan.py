"""Kernel types of scans: one on CUDA and one on CPU, each for every shape and axis."""

from __future__ import annotations

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
from tileops_kernels.reduction.interfaces import Contribution, ReduceCall, ScanCall, ScanFwdInterface
from tileops_kernels.reduction.launches import (
    FLOATS,
    bare,
    columns_view,
    rows_view,
    shared_axis,
    slices,
    spelled,
    vector_width,
)
from tileops_kernels.reduction.passes import Pass, Spread, passes
from tileops_kernels.reduction.reduce import DTYPES, ReduceCPUKernel, ReduceKernel, RowSettings

RESULTS = {**FLOATS, torch.int64: "int64"}
"""The dtypes of results, with TileLang's names for them."""

_CUDA_PROGRAMS = "tileops_kernels.reduction.programs.scan"
_CPU_PROGRAMS = "tileops_kernels.reduction.programs.scan_cpu"

ROWS = ((4, 32, 4), (32, 4, 4), (128, 1, 4), (256, 1, 4), (512, 1, 4))
"""Lanes, rows of a block and accesses of a lane of the programs that take a row in one chunk, by its length."""
LONG = (1024, 1, 2)
"""The same of the program of longer rows: a block of every thread there can be, since such rows may be few."""
CHUNKS = 4096
"""Accesses of a row that are worth three launches instead of one where rows are too few for the multiprocessors."""
PART = 1024
"""Accesses that a part of such a row has at least."""
WIDEST = 8
"""The most elements of one access: those of all accesses of a thread are accumulators at once."""


@dataclass(frozen=True, slots=True)
class ColumnScanSettings:
    """Launch settings of columns: elements of an access, threads of a block, rows at a time."""

    vector: int
    across: int = 64
    unroll: int = 8


@dataclass(frozen=True, slots=True)
class SharedColumnScanSettings:
    """Launch settings of columns that threads share: as `ColumnScanSettings`, and the threads down each column."""

    vector: int
    across: int
    down: int
    unroll: int


Settings: TypeAlias = RowSettings | ColumnScanSettings | SharedColumnScanSettings

BUILDERS: Mapping[type, str] = {
    RowSettings: "scan_rows",
    ColumnScanSettings: "scan_columns",
    SharedColumnScanSettings: "scan_columns_shared",
}
"""The builder that each kind of settings belongs to."""

SEGMENT = 128
"""Bytes of neighbouring columns that a block shares out: half as many took 1.5 to 2.4 times as long."""
SHARERS = 256
"""Threads of such a block."""
DEEP = 64
"""Rows from which columns are worth sharing."""
DEEPER = 1024
"""Rows from which a thread has 16 of half precision at a time; fewer leave threads without any."""


def row_settings(reduced: int, vector: int) -> RowSettings:
    """The smallest program that takes the row in one chunk, else the one of long rows."""
    fitting = (each for each in ROWS if reduced <= each[0] * each[2] * vector)
    lanes, rows, unroll = next(fitting, LONG)
    return RowSettings(vector=vector, lanes=lanes, rows=rows, unroll=unroll)


def shared_settings(reduced: int, vector: int, size: int, accumulator_size: int) -> SharedColumnScanSettings:
    """Settings of columns that threads share: neighbouring vectors of SEGMENT bytes, but at most a warp of them."""
    across = min(32, SEGMENT // (vector * size))
    unroll = min(8, 256 // (vector * accumulator_size))
    if reduced >= DEEPER and vector * size == ACCESS_BYTES and size < accumulator_size < 8:
        unroll = 16
    return SharedColumnScanSettings(vector=vector, across=across, down=SHARERS // across, unroll=unroll)


def is_shared(whole: Pass, settings: SharedColumnScanSettings, sm_count: int) -> bool:
    """Whether the threads of a block share its columns: deep ones, too few for a thread each, yet plenty of blocks."""
    vectors = whole.inner // settings.vector
    blocks = whole.outer * -(-vectors // settings.across)
    return whole.reduced >= DEEP and whole.outer * vectors < 256 * sm_count and 4 * blocks >= sm_count


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan: the dtypes of its elements, what they are rounded to first, and of its results.

    `of` says what an element contributes. A scan that is `carried` begins every part of a slice with the total of the
    parts before it.
    """

    source: str
    through: str
    target: str
    of: Contribution = "value"
    carried: bool = False


class _ScanKernel(Kernel[ScanCall], ScanFwdInterface):
    """Whole slices, or parts of them: then the totals of the parts are scanned first."""

    def __init__(self, call: ScanCall) -> None:
        super().__init__(call)
        self._wide = torch.float32 if call.result in FLOATS else torch.int64
        source = "uint8" if call.dtype is torch.bool else DTYPES[call.dtype]
        result, wide = RESULTS[call.result], RESULTS[self._wide]
        of: Contribution = "nonzero" if call.dtype is torch.bool else "value"  # a byte of any value but zero is true
        self.whole = Scan(source, result, result, of)
        self.between = Scan(wide, wide, wide)
        self.carried = Scan(source, result, result, of, carried=True)

    @classmethod
    def refusal(cls, call: ScanCall) -> str | None:
        """None for the dtypes that both kernel types serve."""
        if call.dtype not in DTYPES:
            return f"combines {spelled(DTYPES)}, not {bare(call.dtype)}"
        if call.result not in RESULTS:
            return f"gives {spelled(RESULTS)}, not {bare(call.result)}"
        return super().refusal(call)

    def forward(self, x: Tensor, axis: int) -> Tensor:
        """See `ScanFwdInterface.forward`."""
        y = torch.empty_like(x, dtype=self.call.result, memory_format=torch.contiguous_format)
        if x.numel() == 0:
            return y
        whole = Pass(*slices(x.shape, axis))
        source = x.view(torch.uint8) if x.dtype is torch.bool else x
        parts = self.parts(whole)
        if parts == 1:
            self.run(whole, self.whole, source, y)
            return y
        part = Pass(whole.outer * parts, whole.reduced // parts, whole.inner)
        totals, carries = torch.empty((2, part.outer * part.inner), dtype=self._wide, device=x.device).unbind()
        reduction = self.totals()
        reduction.run(part, replace(reduction.first, target=self.between.source), source, totals, [])
        self.run(Pass(whole.outer, parts, whole.inner), self.between, totals, carries)
        self.run(part, self.carried, source, y, carries, parts)
        return y

    def totals_call(self) -> ReduceCall:
        """The reduction whose first pass gives the totals of parts."""
        call = self.call
        return ReduceCall(
            device=call.device, facts=call.facts, operation=call.operation, dtype=call.dtype, result=call.result
        )

    @abstractmethod
    def totals(self) -> ReduceKernel | ReduceCPUKernel:
        """The kernel that reduces the parts."""
        ...

    @abstractmethod
    def parts(self, whole: Pass) -> int:
        """How many parts a slice has, a divisor of its length."""
        ...

    @abstractmethod
    def run(
        self, each: Pass, scan: Scan, source: Tensor, target: Tensor, carries: Tensor | None = None, parts: int = 1
    ) -> None:
        """Scan contiguous tensors; `carries` are the scanned totals of slices that are parts of longer ones."""
        ...


class ScanKernel(_ScanKernel):
    """Scans on CUDA, for every shape."""

    general: ClassVar[bool] = True

    def __init__(self, call: ScanCall) -> None:
        super().__init__(call)
        self._totals = ReduceKernel(self.totals_call())
        self._loaded: Loaded[tuple[Scan, Settings], cuda.CUDAFunction] = Loaded(
            lambda key: cuda.load_for(self, self.program(*key))
        )

    def programs(self) -> Sequence[Program]:
        """Every scan with every launch setting, and the passes that give the totals of parts."""
        found: list[Program] = []
        for scan in dict.fromkeys((self.whole, self.between, self.carried)):
            for vector in (min(WIDEST, ACCESS_BYTES // getattr(torch, scan.source).itemsize), 1):
                longest = [lanes * unroll * vector for lanes, _, unroll in ROWS]
                found += (self.program(scan, row_settings(length, vector)) for length in (*longest, longest[-1] + 1))
                found.append(self.program(scan, ColumnScanSettings(vector)))
                if not scan.carried:
                    depths = (1, DEEPER) if vector > 1 else (1,)
                    found += dict.fromkeys(self.program(scan, self.shared(depth, vector, scan)) for depth in depths)
        step = replace(self._totals.first, target=self.between.source)
        of_parts = asdict(step).items()
        found += (program for program in self._totals.programs() if of_parts <= dict(program.arguments).items())
        return tuple(found)

    def program(self, scan: Scan, settings: Settings) -> Program:
        """The program of one launch setting."""
        arguments = {"operation": self.call.operation, **asdict(scan), **asdict(settings)}
        if isinstance(settings, SharedColumnScanSettings):
            del arguments["carried"]
        return Program.of(_CUDA_PROGRAMS, BUILDERS[type(settings)], **arguments)

    def shared(self, reduced: int, vector: int, scan: Scan) -> SharedColumnScanSettings:
        """The launch settings of columns of one scan that the threads of a block share."""
        return shared_settings(reduced, vector, getattr(torch, scan.source).itemsize, self._wide.itemsize)

    def forward(self, x: Tensor, axis: int) -> Tensor:
        """See `ScanFwdInterface.forward`; the current device is what it was."""
        with made_current(x.device):
            return super().forward(x, axis)

    def totals(self) -> ReduceKernel:
        """The kernel that reduces the parts."""
        return self._totals

    def parts(self, whole: Pass) -> int:
        """Parts for two blocks on each multiprocessor where rows are fewer than an eighth of them, or for columns.

        Columns that the threads of a block share have none.
        """
        outer, reduced, inner = whole.outer, whole.reduced, whole.inner
        sm_count = self.call.sm_count
        if inner > 1:
            if is_shared(whole, self.shared(reduced, _width(inner, self.call.dtype), self.whole), sm_count):
                return 1
            spread = Spread(slices=1, columns=512 * sm_count, part=4096, width=1)
            return _parts(whole, spread)
        vectors = reduced // _width(reduced, self.call.dtype)
        if vectors < CHUNKS or 8 * outer >= sm_count:
            return 1
        return _parts(Pass(outer, vectors, 1), Spread(slices=2 * sm_count, columns=None, part=PART, width=1))

    def run(
        self, each: Pass, scan: Scan, source: Tensor, target: Tensor, carries: Tensor | None = None, parts: int = 1
    ) -> None:
        """Launch one scan."""
        outer, reduced, inner = each.outer, each.reduced, each.inner
        vector = _width(reduced if inner == 1 else inner, source.dtype)
        if inner == 1:
            x, y = (rows_view(tensor, outer, reduced, vector) for tensor in (source, target))
            run = self._loaded[scan, row_settings(reduced, vector)]
        else:
            x, y = (columns_view(tensor, outer, reduced, inner, vector) for tensor in (source, target))
            shared = self.shared(reduced, vector, scan)
            together = carries is None and is_shared(each, shared, self.call.sm_count)
            run = self._loaded[scan, shared if together else ColumnScanSettings(vector)]
        if carries is None:
            run(x, y)
        else:
            run(x, carries if inner == 1 else rows_view(carries, outer, inner, vector), y, parts)


class ScanCPUKernel(_ScanKernel):
    """Scans on a CPU, for every shape; rows, their parts or columns are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: ScanCall) -> None:
        super().__init__(call)
        self._totals = ReduceCPUKernel(self.totals_call())
        self._rows: Loaded[Scan, CPUFunction] = Loaded(lambda scan: cpu.load_for(self, self.rows_program(scan)))
        self._columns: Loaded[str, CPUFunction] = Loaded(lambda axis: cpu.load_for(self, self.columns_program(axis)))

    @classmethod
    def entry_for(cls, call: ScanCall) -> tuple[Hashable, Callable[[], ScanCPUKernel]]:
        """One entry for all threads and all shapes."""
        return (call.operation, call.dtype, call.result), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The programs of rows, of their parts and of columns, and the pass that gives the totals of parts."""
        rows = (self.rows_program(scan) for scan in dict.fromkeys((self.whole, self.between, self.carried)))
        columns = (self.columns_program(shared) for shared in ("outer", "columns"))
        step = replace(self._totals.first, target=self.between.source)
        return *rows, *columns, self._totals.program(step, rows=True)

    def rows_program(self, scan: Scan) -> Program:
        """The program of rows."""
        return Program.of(_CPU_PROGRAMS, "scan_rows", operation=self.call.operation, **asdict(scan))

    def columns_program(self, shared: str) -> Program:
        """The program of columns whose threads share outer slices or columns."""
        stated = {name: value for name, value in asdict(self.whole).items() if name != "carried"}
        return Program.of(_CPU_PROGRAMS, "scan_columns", operation=self.call.operation, **stated, shared=shared)

    def totals(self) -> ReduceCPUKernel:
        """The kernel that reduces the parts."""
        return self._totals

    def parts(self, whole: Pass) -> int:
        """A part of a row for each thread where there are fewer rows, worth waking it; columns stay whole."""
        threads = torch.get_num_threads()
        if whole.inner > 1 or whole.outer >= threads:
            return 1
        return _parts(whole, Spread(slices=threads, columns=None, part=GRAIN, width=1))

    def run(
        self, each: Pass, scan: Scan, source: Tensor, target: Tensor, carries: Tensor | None = None, parts: int = 1
    ) -> None:
        """Run one scan; programs take their sizes in alphabetical order."""
        threads = torch.get_num_threads()
        if each.inner > 1:
            shared = shared_axis(each.outer, each.inner, threads)
            columns = self._columns[shared]
            sizes = each.inner, each.outer, each.reduced
            columns(source.data_ptr(), target.data_ptr(), each.inner, *sizes, threads)
            return
        rows = self._rows[scan]
        if carries is None:
            rows(source.data_ptr(), target.data_ptr(), each.outer, each.reduced, threads)
        else:
            addresses = (tensor.data_ptr() for tensor in (source, carries, target))
            rows(*addresses, parts, 0, each.outer, each.reduced, carries.numel(), threads)


def _width(length: int, dtype: torch.dtype) -> int:
    """Elements of the widest access that a scan has where it divides `length`, else 1."""
    return min(vector_width(length, dtype), WIDEST)


def _parts(whole: Pass, spread: Spread) -> int:
    """How many parts a slice has when it is spread so, or 1."""
    planned = passes((whole.outer, whole.reduced, whole.inner), (1,), spread)
    return planned[1].reduced if len(planned) > 1 else 1


SCAN_KERNELS: Mapping[str, KernelType] = {"scan": ScanKernel, "scan_cpu": ScanCPUKernel}
