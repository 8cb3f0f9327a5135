"""Kernel types of softmax: which serves what, launch settings, programs, and what is launched."""

from __future__ import annotations

import re
import shutil
import threading
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import CLUSTER_BLOCKS, DeviceFacts
from tileops_kernels.division import divisor64
from tileops_kernels.errors import NoImplementationError
from tileops_kernels.reduction import SOFTMAX_KERNELS, SoftmaxCall, softmax_kernels
from tileops_kernels.reduction.launches import ColumnSettings, shared_axis
from tileops_kernels.reduction.softmax import (
    CLUSTERED,
    ON_CHIP,
    SPREAD,
    ClusterSettings,
    OnChipColumnSettings,
    OnChipSettings,
    PartSettings,
    Rows,
    SoftmaxCPUKernel,
    SoftmaxKernel,
    StreamingSettings,
    column_settings,
    parts_of,
    row_settings,
    row_variants,
)

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def cuda_call(dtype: torch.dtype = torch.float16, result: torch.dtype | None = None) -> SoftmaxCall:
    return SoftmaxCall(device=torch.device("cuda", 0), dtype=dtype, result=result or dtype, facts=HOPPER)


def cpu_call(dtype: torch.dtype = torch.float32, result: torch.dtype | None = None) -> SoftmaxCall:
    return SoftmaxCall(device=torch.device("cpu"), dtype=dtype, result=result or dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_selection(dtype: torch.dtype) -> None:
    """One kernel type serves every dtype on each device family."""
    assert softmax_kernels().key_for(cuda_call(dtype)) == "softmax"
    assert softmax_kernels().key_for(cpu_call(dtype)) == "softmax_cpu"


@pytest.mark.parametrize(
    "call", [cpu_call(torch.int64), cpu_call(torch.float32, torch.int64)], ids=["elements", "result"]
)
def test_other_dtypes_are_refused(call: SoftmaxCall) -> None:
    """A dtype that no kernel type serves is an error that gives the reason."""
    with pytest.raises(NoImplementationError, match=r"softmax_cpu: serves float16, bfloat16, float32, not int64"):
        softmax_kernels().key_for(call)


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(SOFTMAX_KERNELS) == {"softmax": SoftmaxKernel, "softmax_cpu": SoftmaxCPUKernel}


@pytest.mark.parametrize(
    ("outer", "reduced", "vector", "expected"),
    [
        (9, 1, 1, OnChipSettings(vector=1, lanes=4, rows=32, steps=4, blocks=8)),
        (9, 256, 8, OnChipSettings(vector=8, lanes=16, rows=8, steps=2, blocks=12)),
        (9, 1024, 8, OnChipSettings(vector=8, lanes=64, rows=2, steps=2, blocks=16)),
        (9, 4096, 8, OnChipSettings(vector=8, lanes=256, rows=1, steps=2, blocks=6)),
        (9, 8192, 8, OnChipSettings(vector=8, lanes=256, rows=1, steps=4, blocks=4)),
        (67, 8200, 8, StreamingSettings(vector=8, lanes=512, unroll=4)),
        (66, 8200, 8, PartSettings(vector=8, lanes=256, unroll=1)),
        (9, 1024, 1, OnChipSettings(vector=1, lanes=256, rows=1, steps=4, blocks=4)),
        (67, 1025, 1, StreamingSettings(vector=1, lanes=512, unroll=4)),
    ],
)
def test_row_settings(outer: int, reduced: int, vector: int, expected: Rows) -> None:
    """A row stays in registers while a block can hold it; of longer ones, few are taken in parts."""
    assert row_settings(outer, reduced, vector, 132) == expected


def held(cluster: int, lanes: int, steps: int, blocks: int) -> ClusterSettings:
    return ClusterSettings(vector=8, lanes=lanes, steps=steps, blocks=blocks, cluster=cluster)


@pytest.mark.parametrize(
    ("outer", "reduced", "expected"),
    [
        (8, 8200, PartSettings(vector=8, lanes=256, unroll=1)),
        (9, 8200, held(8, 256, 2, 4)),
        (16, 32768, held(8, 256, 2, 4)),
        (16, 32776, held(8, 256, 4, 4)),
        (16, 65544, held(8, 512, 4, 2)),
        (16, 262144, held(8, 512, 8, 2)),
        (17, 8200, PartSettings(vector=8, lanes=256, unroll=1)),
        (66, 262144, PartSettings(vector=8, lanes=256, unroll=1)),
        (67, 8200, held(2, 128, 8, 8)),
        (67, 16392, held(2, 256, 8, 4)),
        (67, 32776, held(2, 512, 8, 2)),
        (67, 65544, held(4, 512, 8, 2)),
        (67, 131080, held(8, 512, 8, 2)),
        (67, 262144, held(8, 512, 8, 2)),
        (67, 262152, StreamingSettings(vector=8, lanes=512, unroll=4)),
        (16, 262152, PartSettings(vector=8, lanes=256, unroll=1)),
    ],
)
def test_row_settings_with_clusters(outer: int, reduced: int, expected: Rows) -> None:
    """Several blocks hold a row that one cannot, eight where rows are few; the fewest are taken in parts."""
    assert row_settings(outer, reduced, 8, 132, clusters=True) == expected
    assert expected in row_variants(reduced, 8, 132, clusters=True)


def test_clusters_hold_whole_accesses() -> None:
    """Rows that are read element by element are read twice, with clusters too."""
    assert row_settings(67, 8199, 1, 132, clusters=True) == row_settings(67, 8199, 1, 132)


def test_cluster_settings_fit_a_multiprocessor() -> None:
    """Each takes longer rows than the one before, its blocks leave a thread 64 registers, and clusters are portable."""
    for table in (CLUSTERED, SPREAD):
        lengths = [cluster * lanes * steps for cluster, lanes, steps, _ in table]
        assert lengths == sorted(set(lengths))
        for cluster, lanes, steps, blocks in table:
            assert cluster <= CLUSTER_BLOCKS
            assert lanes * blocks <= 1024
            assert steps <= 8


def test_an_unseen_row_count_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call with rows of a length builds the programs of any number of them; of short ones there is one."""
    launches = Launches(monkeypatch)
    kernel = SoftmaxKernel(cuda_call(torch.float32))
    kernel.forward(torch.randn(1, 20000), 1)
    built = [program.builder for program in launches.programs]
    assert built == ["softmax_weigh", "softmax_divide", "softmax_clustered", "softmax_clustered"]
    for rows in (8, 9, 16, 17, 66, 67, 200):
        kernel.forward(torch.randn(rows, 20000), 1)
    assert len(launches.programs) == len(built)
    for rows in (1, 9, 200):
        kernel.forward(torch.randn(rows, 512), 1)
    assert len(launches.programs) == len(built) + 1


@pytest.mark.parametrize(
    ("outer", "reduced", "expected"), [(4, 102400, 50), (1, 1 << 20, 256), (66, 65536, 8), (64, 40000, 8)]
)
def test_parts(outer: int, reduced: int, expected: int) -> None:
    """As many parts as fill the device, each of a chunk at least, and no more than a block can gather."""
    assert parts_of(outer, reduced, PartSettings(vector=8, lanes=256, unroll=1), 132) == expected


def test_column_settings() -> None:
    """A thread has a vector of columns to itself where they are many or short; of few, many share one, or hold it."""
    alone, few = ColumnSettings(8, across=256, down=1, unroll=4), ColumnSettings(8, across=4, down=64, unroll=2)
    held = OnChipColumnSettings(8, across=8, down=16, unroll=4)
    assert column_settings(1024, 65, 8, 132) == few
    assert column_settings(1024, 64, 8, 132) == column_settings(32 * 132 - 1, 16, 8, 132) == held
    assert held.down * held.unroll == 64
    assert column_settings(32 * 132, 64, 8, 132) == ColumnSettings(8, across=32, down=8, unroll=4)
    assert column_settings(1024, 15, 8, 132) == alone
    assert column_settings(512 * 132, 64, 8, 132) == alone


def test_on_chip_settings_rise_and_fit_a_block() -> None:
    """Each program holds longer rows than the one before, in whole warps, with up to 64 elements a thread."""
    lengths = [lanes * steps for lanes, _, steps, _ in ON_CHIP]
    assert lengths == sorted(set(lengths))
    for lanes, rows, steps, blocks in ON_CHIP:
        assert lanes.bit_count() == 1 if lanes < 32 else lanes % 32 == 0
        assert lanes * rows % 32 == 0
        assert lanes * rows * blocks <= 2048
        assert steps <= 8


def test_no_shape_is_compiled_in() -> None:
    """No program of either kernel type knows a size, so that an axis may grow from call to call."""
    for kernel in (SoftmaxKernel(cuda_call()), SoftmaxCPUKernel(cpu_call())):
        names = {name for program in kernel.programs() for name, _ in program.arguments}
        assert names.isdisjoint({"outer", "reduced", "inner", "shape", "axis", "n"})
        assert len(set(kernel.programs())) == len(kernel.programs())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_cpu_entry_agrees_with_float64(axis: int, dtype: torch.dtype) -> None:
    """A downstream project gets right values from an entry along any axis."""
    x = torch.randn(3, 40, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = softmax_kernels().entry(cpu_call(dtype))(x, axis)
    expected, facts = x.double().softmax(axis), torch.finfo(dtype)
    assert y.dtype == dtype
    assert bool(((y.double() - expected).abs() <= (facts.eps / 2 + 2**-20) * expected + facts.tiny * facts.eps).all())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_values(threads: int) -> None:
    """Slices are shared among threads without changing a bit."""
    before = torch.get_num_threads()
    x = torch.randn(7, 50, 300)
    entry = softmax_kernels().entry(cpu_call())
    expected = [entry(x, axis) for axis in range(3)]
    try:
        torch.set_num_threads(threads)
        assert all(torch.equal(entry(x, axis), expected[axis]) for axis in range(3))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("outer", "inner", "threads", "expected"),
    [(1, 4096, 2, "columns"), (1, 127, 2, "outer"), (2, 4096, 2, "outer"), (1, 4096, 1, "outer")],
)
def test_columns_of_few_slices_are_shared(outer: int, inner: int, threads: int, expected: str) -> None:
    """Threads share columns where they outnumber the slices and each is given 64 columns."""
    assert shared_axis(outer, inner, threads) == expected


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("n", [4095, 4096, 4097, 8200, 131_072, 131_073, 300_000])
def test_long_rows_keep_the_digits_of_short_ones(n: int, log: bool) -> None:
    """Rows that are held and rows that are read twice agree with float64, wherever the greatest element lies."""
    for rising in (True, False):
        x = torch.linspace(-60, 60, n).sort(descending=not rising).values.expand(2, n).contiguous()
        y = softmax_kernels().entry(replace(cpu_call(), log=log))(x, 1)
        exact = x.double().log_softmax(1) if log else x.double().softmax(1)
        torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-5 if log else 1e-37)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_logarithms(axis: int) -> None:
    """An entry of its own gives logarithms, also of what a softmax leaves as zero."""
    x = 100 * torch.randn(3, 40, 300, generator=torch.Generator().manual_seed(0))
    call = replace(cpu_call(), log=True)
    table = softmax_kernels()
    assert torch.allclose(table.entry(call)(x, axis).double(), x.double().log_softmax(axis), rtol=1e-6, atol=1e-4)
    assert torch.allclose(table.entry(cpu_call())(x, axis), x.softmax(axis))
    for kernel in (SoftmaxCPUKernel(call), SoftmaxKernel(replace(cuda_call(), log=True))):
        assert {dict(program.arguments)["log"] for program in kernel.programs()} == {True}
    for kernel_type in (SoftmaxCPUKernel, SoftmaxKernel):
        assert kernel_type.entry_for(call)[0] != kernel_type.entry_for(cpu_call())[0]
        assert {
            dict(program.arguments)["log"] for program in kernel_type(replace(cuda_call(), log=True)).programs()
        } == {True}


class Launches:
    """Stands for loaded CUDA programs: computes what each launch should, and keeps what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.launched: list[str] = []
        self.given: list[tuple[Tensor, ...]] = []
        monkeypatch.setattr(cuda, "load", self.load)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        assert owner.startswith("SoftmaxKernel for SoftmaxCall(")
        self.programs.append(program)
        columns = program.builder.startswith("softmax_columns")

        def run(x: Tensor, *others: Tensor | int) -> None:
            results = [other for other in others if isinstance(other, Tensor)]
            self.given.append((x, *results))
            self.launched.append(program.builder)
            divisor = divisor64(x.shape[2]) if columns else ()
            assert others == (*results, *divisor)
            if program.builder != "softmax_weigh":
                results[-1].copy_(x.softmax(1) if columns else x.flatten(1).softmax(1).view(x.shape))

        return run


@pytest.mark.parametrize(
    ("shape", "axis", "builders"),
    [
        ((6, 64), 1, ["softmax_on_chip"]),
        ((6, 64), 0, ["softmax_columns"]),
        ((16, 63), 0, ["softmax_columns_on_chip"]),
        ((64, 16), 0, ["softmax_columns_on_chip"]),
        ((65, 16), 0, ["softmax_columns"]),
        ((6, 63), 1, ["softmax_on_chip"]),
        ((2, 5, 7), 1, ["softmax_columns"]),
        ((67, 8200), 1, ["softmax_clustered"]),
        ((67, 8199), 1, ["softmax_streaming"]),
        ((2, 40000), 1, ["softmax_weigh", "softmax_divide"]),
        ((4, 1, 1), 0, ["softmax_on_chip"]),
    ],
)
@pytest.mark.parametrize("offset", [0, 1])
def test_launches_get_packed_views(
    shape: tuple[int, ...], axis: int, builders: list[str], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the shape and offset of x, programs get packed views whose accesses are aligned."""
    launches = Launches(monkeypatch)
    kernel = SoftmaxKernel(cuda_call(torch.float32))
    flat = torch.randn(torch.Size(shape).numel() + 4)
    start = next(place for place in range(4) if (flat[place:].data_ptr() % 16 == 0) != bool(offset))
    x = flat[start : start + torch.Size(shape).numel()].view(shape)

    y = kernel.forward(x, axis)

    assert torch.allclose(y, x.softmax(axis))
    assert launches.launched == builders
    assert set(launches.programs) <= set(kernel.programs())
    for tensor in {id(tensor): tensor for given in launches.given for tensor in given}.values():
        assert tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
        assert tensor.shape[-1] in {2, dict(launches.programs[0].arguments)["vector"]}
        assert tensor.shape[-1] <= 2 or tensor.data_ptr() % 16 == 0
    assert launches.given[0][0].shape[-1] == dict(launches.programs[0].arguments)["vector"]


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without elements returns without building or launching."""
    launches = Launches(monkeypatch)
    assert SoftmaxKernel(cuda_call()).forward(torch.empty(2, 0).half(), 1).shape == (2, 0)
    assert launches.programs == []


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize(
    "settings",
    [
        row_settings(99, 4096, 8, 132),
        row_settings(99, 1 << 17, 8, 132, clusters=True),
        row_settings(99, 1 << 17, 8, 132),
        row_settings(4, 1 << 17, 8, 132),
        column_settings(4096, 2048, 8, 132),
        column_settings(4096, 64, 8, 132),
    ],
    ids=["on_chip", "clustered", "streaming", "parts", "columns", "columns_on_chip"],
)
def test_offsets_are_wide_and_accesses_whole(settings: Rows | ColumnSettings) -> None:
    """Offsets are computed in 64 bits, and elements are read and written 16 bytes at a time."""
    kernel = SoftmaxKernel(cuda_call())
    program = kernel.programs_of(settings)[-1]
    text = cuda.cross_compile(program, arch=90)

    assert re.search(r"X( \+ |\[).*\(int64_t\)blockIdx\.x", text)
    assert "= *(uint4*)(X + " in text or "tileops_read_once((&(x[" in text
    assert re.search(r"(\*\(uint4\*\)\(Y \+ |tileops_write_result\(\(&\(Y\[).*\(int64_t\)blockIdx\.x", text)


def test_rows_fit_a_small_stack() -> None:
    """A thread with a stack of 256 KiB computes long rows too."""
    kernel, x = SoftmaxCPUKernel(cpu_call()), torch.randn(2, 100_000)
    expected, found = kernel.forward(x, 1), list[Tensor]()
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: found.append(kernel.forward(x, 1)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert torch.equal(found[0], expected)
