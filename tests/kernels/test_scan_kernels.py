"""Kernel types of scans: which serves what, parts of rows, launch settings, programs, and what is launched."""

from __future__ import annotations

import itertools
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import NoImplementationError
from tileops_kernels.reduction import SCAN_KERNELS, ScanCall, ScanOperation, scan_kernels
from tileops_kernels.reduction.passes import Pass
from tileops_kernels.reduction.reduce import RowSettings
from tileops_kernels.reduction.scan import (
    LONG,
    ROWS,
    ColumnScanSettings,
    Scan,
    ScanCPUKernel,
    ScanKernel,
    Settings,
    is_shared,
    row_settings,
    shared_settings,
)

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CPU = torch.device("cpu")


def cuda_call(
    dtype: torch.dtype = torch.float16, result: torch.dtype | None = None, operation: ScanOperation = "sum"
) -> ScanCall:
    return ScanCall(
        device=torch.device("cuda", 0), operation=operation, dtype=dtype, result=result or dtype, facts=HOPPER
    )


def cpu_call(
    dtype: torch.dtype = torch.float32, result: torch.dtype | None = None, operation: ScanOperation = "sum"
) -> ScanCall:
    return ScanCall(device=CPU, operation=operation, dtype=dtype, result=result or dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.bool, torch.int8, torch.int64])
def test_selection(dtype: torch.dtype) -> None:
    """One kernel type serves every dtype on each device family."""
    result = dtype if dtype.is_floating_point else torch.int64
    assert scan_kernels().key_for(cuda_call(dtype, result)) == "scan"
    assert scan_kernels().key_for(cpu_call(dtype, result)) == "scan_cpu"


def test_other_dtypes_are_refused() -> None:
    """A dtype of elements or of results that no kernel type serves is an error that gives the reason."""
    with pytest.raises(NoImplementationError, match=r"scan_cpu: combines float16, .*, int64, not float64"):
        scan_kernels().key_for(cpu_call(torch.float64))
    with pytest.raises(NoImplementationError, match=r"scan_cpu: gives float16, bfloat16, float32, int64, not int8"):
        scan_kernels().key_for(cpu_call(torch.int8))


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(SCAN_KERNELS) == {"scan": ScanKernel, "scan_cpu": ScanCPUKernel}


def test_each_scan_has_an_entry_of_its_own() -> None:
    """Operation and dtypes are an entry's identity, and on a CPU nothing else is."""
    calls = [cpu_call(), cpu_call(operation="prod"), cpu_call(torch.float16), cpu_call(torch.float16, torch.float32)]
    for kernel_type in (ScanCPUKernel, ScanKernel):
        assert len({kernel_type.entry_for(call)[0] for call in calls}) == len(calls)
    facts = [DeviceFacts(arch=0, sm_count=count, smem_budget=0) for count in (2, 64)]
    assert len({ScanCPUKernel.entry_for(replace(cpu_call(), facts=each))[0] for each in facts}) == 1


@pytest.mark.parametrize(
    ("reduced", "vector", "expected"),
    [
        (1, 1, RowSettings(vector=1, lanes=4, rows=32, unroll=4)),
        (128, 8, RowSettings(vector=8, lanes=4, rows=32, unroll=4)),
        (136, 8, RowSettings(vector=8, lanes=32, rows=4, unroll=4)),
        (4096, 8, RowSettings(vector=8, lanes=128, rows=1, unroll=4)),
        (4104, 8, RowSettings(vector=8, lanes=256, rows=1, unroll=4)),
        (16384, 8, RowSettings(vector=8, lanes=512, rows=1, unroll=4)),
        (16392, 8, RowSettings(vector=8, lanes=1024, rows=1, unroll=2)),
        (2049, 1, RowSettings(vector=1, lanes=1024, rows=1, unroll=2)),
    ],
)
def test_row_settings(reduced: int, vector: int, expected: RowSettings) -> None:
    """A row is one chunk of a block while a block of half the threads there can be holds it."""
    assert row_settings(reduced, vector) == expected


def test_settings_rise_and_fit_a_block() -> None:
    """Each program takes longer rows than the one before, with a power of two of threads, in blocks of whole warps."""
    lengths = [lanes * unroll for lanes, _, unroll in ROWS]
    assert lengths == sorted(set(lengths))
    for lanes, rows, unroll in (*ROWS, LONG):
        assert lanes.bit_count() == 1
        assert (lanes * rows % 32, rows == 1 or lanes <= 32) == (0, True)
        assert lanes * rows <= 1024
        assert unroll <= 4


@pytest.mark.parametrize(
    ("whole", "dtype", "expected"),
    [
        (Pass(64, 32768, 1), torch.float16, 1),
        (Pass(2048, 4096, 1), torch.float16, 1),
        (Pass(16, 32768, 1), torch.float16, 4),
        (Pass(17, 32768, 1), torch.float16, 1),
        (Pass(4, 128256, 1), torch.float16, 16),
        (Pass(1, 262144, 1), torch.float16, 32),
        (Pass(1, 262144, 1), torch.float32, 64),
        (Pass(1, 32760, 1), torch.float16, 1),
        (Pass(1, 2048, 4096), torch.float16, 1),
        (Pass(1, 2048, 2048), torch.float16, 64),
        (Pass(1, 16, 4096), torch.float16, 1),
        (Pass(64, 2048, 4096), torch.float16, 1),
    ],
)
def test_parts(whole: Pass, dtype: torch.dtype, expected: int) -> None:
    """Few long rows and few columns are cut into parts, of whole accesses, that keep an H200 busy."""
    assert ScanKernel(cuda_call(dtype)).parts(whole) == expected


@pytest.mark.parametrize(
    ("whole", "vector", "size", "expected"),
    [
        (Pass(1, 64, 32 * 64), 8, 2, False),
        (Pass(1, 64, 32 * 64 + 8), 8, 2, True),
        (Pass(33, 64, 8), 8, 2, True),
        (Pass(1, 63, 4096), 8, 2, False),
        (Pass(1, 64, 256 * 132 * 8 - 8), 8, 2, True),
        (Pass(1, 64, 256 * 132 * 8), 8, 2, False),
        (Pass(1, 64, 32 * 32 + 4), 4, 4, True),
        (Pass(3, 64, 11 * 32 - 1), 1, 2, True),
    ],
)
def test_columns_are_shared(whole: Pass, vector: int, size: int, expected: bool) -> None:
    """Threads share columns that are deep, and plenty of blocks but too few for a thread each."""
    assert is_shared(whole, shared_settings(whole.reduced, vector, size, 4), HOPPER.sm_count) is expected


def test_shared_settings_fit_a_block() -> None:
    """A block has whole warps, neighbours of at most a warp, and no more accumulators than a thread has registers."""
    for size, accumulator_size in ((1, 8), (2, 8), (4, 8), (8, 8), (2, 4), (4, 4)):
        for vector, reduced in itertools.product({1, min(8, 16 // size)}, (64, 1023, 1024)):
            settings = shared_settings(reduced, vector, size, accumulator_size)
            assert settings.across * settings.down == 256
            assert 32 % settings.across == 0
            assert settings.unroll * vector * accumulator_size <= (512 if accumulator_size == 4 else 256)


@pytest.mark.parametrize(
    ("reduced", "vector", "size", "accumulator_size", "unroll"),
    [(1023, 8, 2, 4, 8), (1024, 8, 2, 4, 16), (1024, 4, 4, 4, 8), (1024, 8, 2, 8, 4), (1024, 1, 2, 4, 8)],
)
def test_deep_columns_of_half_precision_have_more_rows_at_a_time(
    reduced: int, vector: int, size: int, accumulator_size: int, unroll: int
) -> None:
    """Only whole accesses of half precision have sixteen, and only where every thread of a block then has rows."""
    assert shared_settings(reduced, vector, size, accumulator_size).unroll == unroll


def test_scans() -> None:
    """Elements are rounded before they are combined; totals of parts are accumulators until the end."""
    kernel = ScanCPUKernel(cpu_call(torch.float32, torch.float16))
    assert kernel.whole == Scan("float32", "float16", "float16")
    assert kernel.between == Scan("float32", "float32", "float32")
    assert kernel.carried == Scan("float32", "float16", "float16", carried=True)
    assert ScanCPUKernel(cpu_call(torch.bool, torch.int64)).whole == Scan("uint8", "int64", "int64", "nonzero")


def test_no_shape_is_compiled_in() -> None:
    """No program of either kernel type knows a size."""
    for kernel in (ScanKernel(cuda_call()), ScanCPUKernel(cpu_call(torch.float16))):
        names = {name for program in kernel.programs() for name, _ in program.arguments}
        assert names.isdisjoint({"outer", "reduced", "inner", "parts", "shape", "axis"})
        assert len(set(kernel.programs())) == len(kernel.programs())


@pytest.mark.parametrize(
    ("source", "result"), [(torch.float32, torch.float16), (torch.int32, torch.float32), (torch.bool, torch.int64)]
)
@pytest.mark.parametrize("shape", [(3, 40), (1, 1 << 17)])
def test_elements_are_converted_first(shape: tuple[int, int], source: torch.dtype, result: torch.dtype) -> None:
    """As torch's scans with a dtype: elements are rounded to that of the results before they are combined."""
    x = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 3).to(source)
    y = scan_kernels().entry(cpu_call(source, result))(x, 1)
    expected = x.to(result).to(torch.int64 if result is torch.int64 else torch.float64).cumsum(1)
    assert y.dtype is result
    assert torch.allclose(y.double(), expected.to(result).double(), rtol=2**-10)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_values(threads: int) -> None:
    """Sharing rows, their parts or columns among threads loses and repeats nothing."""
    before = torch.get_num_threads()
    entry = scan_kernels().entry(cpu_call(torch.int64))
    try:
        torch.set_num_threads(threads)
        for shape in ((6, 40, 1000), (2, 70_000), (70_000, 2), (300, 1500), (1, 1 << 17)):
            x = torch.randint(-9, 9, shape)
            assert all(torch.equal(entry(x, axis), x.cumsum(axis)) for axis in range(len(shape)))
    finally:
        torch.set_num_threads(before)


def test_programs_are_built_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry builds nothing when made or for no elements, then each program once, whatever the shapes."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert owner.startswith("ScanCPUKernel for ScanCall(")
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    entry = scan_kernels().entry(cpu_call(torch.float16))
    x = torch.ones(3, 5).half()
    assert entry(x[:0], 1).shape == (0, 5)
    assert built == []

    for _ in range(2):
        assert entry(x, 1)[2].tolist() == [1, 2, 3, 4, 5]
        assert entry(x, 0)[:, 4].tolist() == [1, 2, 3]
        assert entry(x.repeat(3, 4), 1)[8, 19].item() == 20

    assert [program.builder for program in built] == ["scan_rows", "scan_columns"]
    assert set(built) <= set(ScanCPUKernel(cpu_call(torch.float16)).programs())


class Launches:
    """Stands for loaded CUDA programs: computes what each launch should, and keeps what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.given: list[tuple[Tensor, ...]] = []
        monkeypatch.setattr(cuda, "load", self.load)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        assert owner.startswith(("ScanKernel for ScanCall(", "ReduceKernel for ReduceCall("))
        self.programs.append(program)
        rows = program.builder.endswith("_rows")

        def reduce(x: Tensor, y: Tensor) -> None:
            self.given.append((x, y))
            y.select(1, 0).copy_(x.double().sum((1, 2) if rows else 1))

        def scan(x: Tensor, *others: Tensor) -> None:
            y, before = others[-1], torch.zeros(())
            if dict(program.arguments).get("carried"):
                totals, y, parts = others
                assert isinstance(parts, int)
                before = totals.roll(1, 0)
                before[::parts] = 0
                before = before.view(-1, *([1] * (x.dim() - 1))) if rows else before.unsqueeze(1)
            self.given.append((x, y))
            scanned = x.double().flatten(1).cumsum(1).view(x.shape) if rows else x.double().cumsum(1)
            y.copy_(scanned + before)

        return scan if program.builder.startswith("scan") else reduce


@pytest.mark.parametrize(
    ("shape", "axis", "builders"),
    [
        ((6, 64), 1, ["scan_rows"]),
        ((6, 63), 1, ["scan_rows"]),
        ((6, 64), 0, ["scan_columns"]),
        ((2, 5, 7), 1, ["scan_columns"]),
        ((1, 65536), 1, ["reduce_rows", "scan_rows", "scan_rows"]),
        ((3, 40960), 1, ["reduce_rows", "scan_rows", "scan_rows"]),
        ((2, 1024, 12), 1, ["reduce_columns", "scan_columns", "scan_columns"]),
        ((1, 64, 1056), 1, ["scan_columns_shared"]),
        ((3, 1024, 352), 1, ["scan_columns_shared"]),
        ((1, 63, 1056), 1, ["reduce_columns", "scan_columns", "scan_columns"]),
        ((33, 64, 33), 1, ["scan_columns_shared"]),
        ((3, 1), 1, ["scan_rows"]),
        ((1, 3), 0, ["scan_columns"]),
    ],
)
@pytest.mark.parametrize("offset", [0, 1])
def test_launches_get_packed_views(
    shape: tuple[int, ...], axis: int, builders: list[str], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the shape and offset of x, programs get packed views whose accesses are aligned; one is the result."""
    launches = Launches(monkeypatch)
    kernel = ScanKernel(cuda_call(torch.float32))
    flat = torch.randint(-3, 4, (torch.Size(shape).numel() + 4,)).float()
    start = next(place for place in range(4) if (flat[place:].data_ptr() % 16 == 0) != bool(offset))
    x = flat[start : start + torch.Size(shape).numel()].view(shape)

    y = kernel.forward(x, axis)

    assert torch.equal(y, x.cumsum(axis))
    assert [program.builder for program in launches.programs] == builders
    assert launches.given[-1][1].data_ptr() == y.data_ptr()
    for program, (source, _) in zip(launches.programs, launches.given, strict=True):
        assert dict(program.arguments)["vector"] == source.shape[-1]
    for tensors in launches.given:
        for tensor in tensors:
            assert tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
        assert tensors[0].shape[-1] == 1 or tensors[0].data_ptr() % 16 == 0
    assert set(launches.programs) <= set(kernel.programs())


def test_an_unseen_row_count_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one length share one program, however many there are, where they are not so few that each is cut."""
    launches = Launches(monkeypatch)
    kernel = ScanKernel(cuda_call(torch.float32))
    for rows in (1, 2, 700):
        kernel.forward(torch.ones(rows, 4096), 1)
    assert len(launches.programs) == 1


def test_booleans_are_launched_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets booleans as the bytes that they are."""
    launches = Launches(monkeypatch)
    kernel = ScanKernel(cuda_call(torch.bool, torch.int64))
    assert kernel.forward(torch.tensor([[True, False, True]]), 1).tolist() == [[1, 1, 2]]
    assert launches.given[0][0].dtype is torch.uint8


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without elements returns without building or launching."""
    launches = Launches(monkeypatch)
    assert ScanKernel(cuda_call()).forward(torch.empty(2, 0).half(), 1).shape == (2, 0)
    assert launches.programs == []


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize(
    "settings",
    [row_settings(4096, 8), ColumnScanSettings(8), shared_settings(64, 8, 2, 4)],
    ids=lambda settings: type(settings).__name__,
)
def test_offsets_are_wide_and_accesses_whole(settings: Settings) -> None:
    """Offsets are computed in 64 bits, and elements are read and written 16 bytes at a time."""
    kernel = ScanKernel(cuda_call())
    text = cuda.cross_compile(kernel.program(kernel.whole, settings), arch=90)

    assert re.search(r"tileops_read_once\(\(&\(\w+\[.*&\(X\[.*\(int64_t\)blockIdx\.x", text)
    assert re.search(r"\*\(uint4\*\)\(Y \+ .*\(int64_t\)blockIdx\.x", text)
    assert "int blockIdx" not in text


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16], ids=str)
@pytest.mark.parametrize("n", [1, 7, 8, 31, 255, 256, 263, 20_001])
def test_short_integers_are_scanned_exactly(n: int, dtype: torch.dtype) -> None:
    """The greatest and the least values of a short integer dtype sum to what they do in int64, at every place."""
    limits = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    entry = scan_kernels().entry(cpu_call(dtype, torch.int64))
    places = torch.arange(1, n + 1).expand(3, n)
    for value in limits:
        assert torch.equal(entry(torch.full((3, n), value, dtype=dtype), 1), places * value)
    mixed = torch.randint(limits[0], limits[1] + 1, (3, n), generator=torch.Generator().manual_seed(n)).to(dtype)
    assert torch.equal(entry(mixed, 1), mixed.cumsum(1))
