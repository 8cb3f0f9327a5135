"""Kernel types of positions of extremes: which serves what, parts, launch settings, programs, and what is launched."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import NoImplementationError
from tileops_kernels.reduction import ARG_REDUCE_KERNELS, ArgOperation, ArgReduceCall, arg_reduce_kernels
from tileops_kernels.reduction.argreduce import (
    ArgReduceCPUKernel,
    ArgReduceKernel,
    Choice,
    ShortColumnSettings,
    candidate_settings,
    choices,
    column_settings,
    row_settings,
)
from tileops_kernels.reduction.launches import ColumnSettings
from tileops_kernels.reduction.passes import Pass, passes
from tileops_kernels.reduction.reduce import RowSettings

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def cuda_call(dtype: torch.dtype = torch.float16, operation: ArgOperation = "argmax") -> ArgReduceCall:
    return ArgReduceCall(device=torch.device("cuda", 0), operation=operation, dtype=dtype, facts=HOPPER)


def cpu_call(dtype: torch.dtype = torch.float32, operation: ArgOperation = "argmax") -> ArgReduceCall:
    return ArgReduceCall(device=torch.device("cpu"), operation=operation, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_selection(dtype: torch.dtype) -> None:
    """One kernel type serves every dtype on each device family."""
    assert arg_reduce_kernels().key_for(cuda_call(dtype)) == "arg_reduce"
    assert arg_reduce_kernels().key_for(cpu_call(dtype)) == "arg_reduce_cpu"


def test_other_dtypes_are_refused() -> None:
    """A dtype that no kernel type serves is an error that gives the reason."""
    with pytest.raises(NoImplementationError, match="arg_reduce_cpu: compares float16, bfloat16, float32, not int64"):
        arg_reduce_kernels().key_for(cpu_call(torch.int64))


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(ARG_REDUCE_KERNELS) == {"arg_reduce": ArgReduceKernel, "arg_reduce_cpu": ArgReduceCPUKernel}


def test_each_operation_and_dtype_has_an_entry_of_its_own() -> None:
    """Operation and dtype are an entry's identity, and on a CPU nothing else is."""
    calls = [cpu_call(), cpu_call(torch.float16), cpu_call(operation="argmin")]
    for kernel_type in (ArgReduceCPUKernel, ArgReduceKernel):
        assert len({kernel_type.entry_for(call)[0] for call in calls}) == len(calls)
    facts = [DeviceFacts(arch=0, sm_count=count, smem_budget=0) for count in (2, 64)]
    assert len({ArgReduceCPUKernel.entry_for(replace(cpu_call(), facts=each))[0] for each in facts}) == 1


@pytest.mark.parametrize(
    ("planned", "count", "expected"),
    [
        ([Pass(4, 100, 1)], 400, []),
        ([Pass(8, 50, 1), Pass(4, 2, 1)], 400, [Choice(4, 100, 1, 2, scale=1, step=50)]),
        ([Pass(4, 25, 12), Pass(4, 4, 3)], 1200, [Choice(4, 100, 3, 4, scale=4, step=1)]),
        (
            [Pass(20, 5, 12), Pass(4, 5, 12), Pass(4, 4, 3)],
            1200,
            [Choice(4, 25, 12, 5, scale=1, step=5), Choice(4, 100, 3, 4, scale=4, step=1)],
        ),
    ],
)
def test_choices(planned: list[Pass], count: int, expected: list[Choice]) -> None:
    """Parts behind one another begin `step` apart; columns laid side by side take turns."""
    assert list(choices(planned, count)) == expected


@pytest.mark.parametrize(
    ("outer", "reduced", "vector", "expected"),
    [
        (2048, 16, 8, RowSettings(vector=8, lanes=1, rows=128, unroll=2)),
        (2048, 24, 8, RowSettings(vector=8, lanes=4, rows=32, unroll=8)),
        (2048, 264, 8, RowSettings(vector=8, lanes=32, rows=4, unroll=8)),
        (265, 4096, 8, RowSettings(vector=8, lanes=64, rows=2, unroll=8)),
        (264, 4096, 8, RowSettings(vector=8, lanes=128, rows=1, unroll=8)),
        (264, 256, 8, RowSettings(vector=8, lanes=4, rows=32, unroll=8)),
        (2048, 4096, 4, RowSettings(vector=4, lanes=128, rows=1, unroll=8)),
        (2048, 8192, 8, RowSettings(vector=8, lanes=128, rows=1, unroll=8)),
        (2048, 8200, 8, RowSettings(vector=8, lanes=512, rows=1, unroll=4)),
        (2048, 1025, 1, RowSettings(vector=1, lanes=512, rows=1, unroll=4)),
    ],
)
def test_row_settings(outer: int, reduced: int, vector: int, expected: RowSettings) -> None:
    """A thread has up to eight accesses to a row; few rows have a block of 128 threads each."""
    assert row_settings(outer, reduced, vector, 132) == expected


def test_column_settings() -> None:
    """A thread has columns to itself where they are many or short; else 128 compare chunks of four rows."""
    few, alone = ColumnSettings(8, across=4, down=128, unroll=4), ShortColumnSettings(8, across=256, unroll=4)
    assert column_settings(1, 16, 8, 132) == few
    assert column_settings(64 * 132 - 1, 2048, 8, 132) == few
    assert column_settings(64 * 132, 2048, 8, 132) == ColumnSettings(8, across=32, down=8, unroll=8)
    assert column_settings(512, 15, 8, 132) == alone
    assert column_settings(512 * 132, 2048, 8, 132) == alone


@pytest.mark.parametrize(
    ("dtype", "whole", "expected"),
    [
        (torch.bfloat16, (1, 64 * 32768, 1), [Pass(256, 8192, 1), Pass(1, 256, 1)]),
        (torch.float32, (1, 64 * 32768, 1), [Pass(512, 4096, 1), Pass(1, 512, 1)]),
        (torch.bfloat16, (1, 32768, 1), [Pass(1, 32768, 1)]),
        (torch.bfloat16, (4, 102400, 1), [Pass(100, 4096, 1), Pass(4, 25, 1)]),
        (torch.bfloat16, (1, 2048, 2112), [Pass(1, 2048, 2112)]),
        (torch.bfloat16, (1, 2048, 2104), [Pass(2, 1024, 2104), Pass(1, 2, 2104)]),
    ],
)
def test_parts(dtype: torch.dtype, whole: tuple[int, int, int], expected: list[Pass]) -> None:
    """Parts of one row have 16 KiB, those of several rows 4096 elements; columns that fill half the device stay."""
    assert list(passes(whole, (1,), ArgReduceKernel(cuda_call(dtype)).spread(whole))) == expected


def test_no_shape_is_compiled_in() -> None:
    """No program of either kernel type knows a size."""
    for kernel in (ArgReduceKernel(cuda_call()), ArgReduceCPUKernel(cpu_call())):
        names = {name for program in kernel.programs() for name, _ in program.arguments}
        assert names.isdisjoint({"outer", "reduced", "inner", "parts", "shape", "axis"})
        assert len(set(kernel.programs())) == len(kernel.programs())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_positions(threads: int) -> None:
    """Splitting among threads finds the first position, for rows, columns and everything."""
    before = torch.get_num_threads()
    entries = {name: arg_reduce_kernels().entry(cpu_call(operation=name)) for name in ("argmax", "argmin")}
    try:
        torch.set_num_threads(threads)
        for shape in ((6, 40, 1000), (2, 70_000), (70_000, 2)):
            x = torch.randint(-9, 9, shape).float()
            for axis in (None, *range(len(shape))):
                assert torch.equal(entries["argmax"](x, axis), x.argmax(axis))
                assert torch.equal(entries["argmin"](x, axis), x.argmin(axis))
    finally:
        torch.set_num_threads(before)


def test_programs_are_built_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry builds nothing when made or for no elements, then each program once, whatever the shapes."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert owner.startswith("ArgReduceCPUKernel for ArgReduceCall(")
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    entry = arg_reduce_kernels().entry(cpu_call(torch.float16))
    x = torch.tensor([[1, 3, 3], [2, 0, 3]]).half()
    assert entry(x[:0], 1).shape == (0,)
    assert built == []

    for _ in range(2):
        assert entry(x, 1).tolist() == [1, 2]
        assert entry(x, 0).tolist() == [1, 0, 0]
        assert entry(x, None).item() == 1
        assert entry(x.repeat(3, 4), 1).tolist() == [1, 2] * 3

    assert [program.builder for program in built] == ["arg_rows", "arg_columns"]
    assert set(built) <= set(ArgReduceCPUKernel(cpu_call(torch.float16)).programs())


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
        assert owner.startswith("ArgReduceKernel for ArgReduceCall(")
        self.programs.append(program)

        def search(x: Tensor, y: Tensor) -> None:
            self.given.append((x, y))
            y.copy_(x.flatten(1).argmax(1) if program.builder == "arg_rows" else x.argmax(1))

        def choose(x: Tensor, found: Tensor, y: Tensor, scale: int, step: int) -> None:
            self.given.append((x, found, y))
            places = found * scale + step * torch.arange(found.shape[1]).view(1, -1, 1)
            ordered = places.sort(1).values  # of equal candidates the first position counts
            y.copy_(ordered.gather(1, x.gather(1, ordered).argmax(1, keepdim=True)).squeeze(1))

        return choose if program.builder == "arg_candidates" else search


@pytest.mark.parametrize(
    ("shape", "axis", "builders"),
    [
        ((6, 64), 1, ["arg_rows"]),
        ((6, 63), 0, ["arg_columns"]),
        ((16, 63), 0, ["arg_columns_by_chunks"]),
        ((6, 64), None, ["arg_rows"]),
        ((4, 32768), 1, ["arg_rows", "arg_candidates"]),
        ((1 << 20,), 0, ["arg_rows", "arg_candidates"]),
        ((4096, 2), 0, ["arg_columns_by_chunks", "arg_candidates"]),
        ((1 << 20, 2), 0, ["arg_columns_by_chunks", "arg_candidates", "arg_candidates"]),
        ((), None, ["arg_rows"]),
        ((3, 1), 1, ["arg_columns"]),
    ],
)
@pytest.mark.parametrize("offset", [0, 1])
def test_launches_get_packed_views(
    shape: tuple[int, ...], axis: int | None, builders: list[str], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the shape and offset of x, programs get packed views whose accesses are aligned; one is the result."""
    launches = Launches(monkeypatch)
    kernel = ArgReduceKernel(cuda_call(torch.float32))
    flat = torch.randint(-3, 3, (torch.Size(shape).numel() + 4,)).float()
    start = next(place for place in range(4) if (flat[place:].data_ptr() % 16 == 0) != bool(offset))
    x = flat[start : start + torch.Size(shape).numel()].view(shape)

    y = kernel.forward(x, axis)

    assert torch.equal(y, x.argmax(axis))
    assert [dict.fromkeys(builders), len(launches.given)] == [
        dict.fromkeys(program.builder for program in launches.programs),
        len(builders),
    ]
    assert launches.given[-1][-1].data_ptr() == y.data_ptr()
    for tensors in launches.given:
        for tensor in tensors:
            assert tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
    first = launches.given[0][0]
    assert first.shape[-1] == dict(launches.programs[0].arguments)["vector"]
    assert first.shape[-1] == 1 or first.data_ptr() % 16 == 0
    assert set(launches.programs) <= set(kernel.programs())


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without elements returns without building or launching."""
    launches = Launches(monkeypatch)
    assert ArgReduceKernel(cuda_call()).forward(torch.empty(0, 4).half(), 1).shape == (0,)
    assert launches.programs == []


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize(
    "settings",
    [row_settings(999, 4096, 8, 132), column_settings(512, 2048, 8, 132), column_settings(512, 15, 8, 132)],
    ids=["rows", "columns", "short"],
)
def test_offsets_are_wide_and_accesses_whole(settings: RowSettings | ColumnSettings | ShortColumnSettings) -> None:
    """Offsets are computed in 64 bits and elements read 16 bytes at a time."""
    text = cuda.cross_compile(ArgReduceKernel(cuda_call()).program(settings), arch=90)

    assert re.search(r"tileops_read_once\(\(&\(x\[.*&\(X\[.*\(int64_t\)blockIdx\.x", text)
    assert "int blockIdx" not in text
    if not isinstance(settings, ShortColumnSettings):
        assert "max.NaN.f16x2" in text


def test_many_candidates_have_a_block() -> None:
    """A warp shares a result of few parts, without shared memory; of more, no thread compares several in turn."""
    assert asdict(candidate_settings(64)) == {"lanes": 32, "rows": 4}
    assert asdict(candidate_settings(65)) == asdict(candidate_settings(10**6)) == {"lanes": 256, "rows": 1}
