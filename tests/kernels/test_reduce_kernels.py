"""Kernel types of sums and products: which serves what, launch settings, programs, and what is launched."""

from __future__ import annotations

import itertools
import math
import re
import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import NoImplementationError
from tileops_kernels.reduction import REDUCE_KERNELS, Operation, ReduceCall, reduce_kernels
from tileops_kernels.reduction.launches import ColumnSettings, vector_width
from tileops_kernels.reduction.passes import Pass, planes_of
from tileops_kernels.reduction.reduce import (
    PlaneSettings,
    ReduceCPUKernel,
    ReduceKernel,
    RowSettings,
    Step,
    column_settings,
    plane_settings,
    row_settings,
    settings_of,
)

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CPU = torch.device("cpu")


def cuda_call(
    dtype: torch.dtype = torch.float16, result: torch.dtype | None = None, operation: Operation = "sum"
) -> ReduceCall:
    return ReduceCall(
        device=torch.device("cuda", 0), operation=operation, dtype=dtype, result=result or dtype, facts=HOPPER
    )


def cpu_call(dtype: torch.dtype = torch.float32, result: torch.dtype | None = None) -> ReduceCall:
    return ReduceCall(device=CPU, operation="sum", dtype=dtype, result=result or dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.bool, torch.int8, torch.int64])
def test_selection(dtype: torch.dtype) -> None:
    """One kernel type serves every dtype on each device family."""
    result = dtype if dtype.is_floating_point else torch.int64
    assert reduce_kernels().key_for(cuda_call(dtype, result)) == "reduce"
    assert reduce_kernels().key_for(cpu_call(dtype, result)) == "reduce_cpu"


def test_other_dtypes_are_refused() -> None:
    """A dtype of elements or of results that no kernel type serves is an error that gives the reason."""
    with pytest.raises(NoImplementationError, match=r"reduce_cpu: combines float16, .*, int64, not float64"):
        reduce_kernels().key_for(cpu_call(torch.float64))
    with pytest.raises(NoImplementationError, match=r"reduce_cpu: gives float16, .*, int64, not complex64"):
        reduce_kernels().key_for(cpu_call(torch.float32, torch.complex64))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_elements_are_counted_alone(dtype: torch.dtype) -> None:
    """Complex elements have no order and no sum here; whether they are zero is counted on both devices."""
    for call in (cpu_call(dtype, torch.int64), cuda_call(dtype, torch.int64)):
        assert reduce_kernels().key_for(replace(call, of="nonzero")).startswith("reduce")
        name = str(dtype).removeprefix("torch.")
        with pytest.raises(NoImplementationError, match=f"counts elements of {name} that are not zero, and combines"):
            reduce_kernels().key_for(call)


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(REDUCE_KERNELS) == {"reduce": ReduceKernel, "reduce_cpu": ReduceCPUKernel}


@pytest.mark.parametrize(
    ("outer", "reduced", "vector", "expected"),
    [
        (2048, 1, 1, RowSettings(vector=1, lanes=1, rows=128, unroll=2)),
        (2048, 16, 8, RowSettings(vector=8, lanes=1, rows=128, unroll=2)),
        (2048, 24, 8, RowSettings(vector=8, lanes=4, rows=32, unroll=8)),
        (2048, 256, 8, RowSettings(vector=8, lanes=4, rows=32, unroll=8)),
        (264, 256, 8, RowSettings(vector=8, lanes=4, rows=32, unroll=8)),
        (2048, 264, 8, RowSettings(vector=8, lanes=32, rows=4, unroll=8)),
        (2048, 2048, 8, RowSettings(vector=8, lanes=32, rows=4, unroll=8)),
        (265, 4096, 8, RowSettings(vector=8, lanes=64, rows=2, unroll=8)),
        (264, 4096, 8, RowSettings(vector=8, lanes=256, rows=1, unroll=4)),
        (2048, 8192, 8, RowSettings(vector=8, lanes=256, rows=1, unroll=4)),
        (2048, 8200, 8, RowSettings(vector=8, lanes=512, rows=1, unroll=4)),
        (2048, 1025, 1, RowSettings(vector=1, lanes=512, rows=1, unroll=4)),
    ],
)
def test_row_settings(outer: int, reduced: int, vector: int, expected: RowSettings) -> None:
    """Short rows share a block unless they are few, long ones have it to themselves."""
    assert row_settings(outer, reduced, vector, 132) == expected


def test_column_settings() -> None:
    """A thread has a vector of columns to itself where they are many or short; of few, many share one."""
    alone, few = ColumnSettings(8, across=256, down=1, unroll=4), ColumnSettings(8, across=4, down=128, unroll=8)
    assert column_settings(3 * 132 - 1, 2048, 8, 132) == ColumnSettings(8, across=2, down=256, unroll=8)
    assert column_settings(3 * 132, 2048, 8, 132) == few
    assert column_settings(64 * 132 - 1, 2048, 8, 132) == few
    assert column_settings(64 * 132, 2048, 8, 132) == ColumnSettings(8, across=32, down=8, unroll=8)
    assert column_settings(512, 15, 8, 132) == alone
    assert column_settings(512 * 132, 2048, 8, 132) == alone


@pytest.mark.parametrize(
    ("planes", "expected"),
    [
        ((4, 128, 4096), PlaneSettings(vector=8)),
        ((4, 1, 4096), PlaneSettings(vector=8)),
        ((5, 131, 4096), None),
        ((5, 132, 4096), PlaneSettings(vector=8)),
        ((16, 132, 4096), PlaneSettings(vector=8)),
        ((17, 132, 4096), None),
        ((64, 528, 56), None),
        ((64, 528, 64), PlaneSettings(vector=8)),
        ((63, 528, 64), PlaneSettings(vector=8)),
        ((63, 529, 64), None),
        ((64, 529, 64), PlaneSettings(vector=8)),
        ((2, 3, 1023), PlaneSettings(vector=1)),
        ((2, 3, 1025), None),
    ],
)
def test_plane_settings(planes: tuple[int, int, int], expected: PlaneSettings | None) -> None:
    """A block takes a channel of one turn, of few turns where channels are many, and no more blocks than have work."""
    assert plane_settings(planes, torch.float16, 132) == expected


def test_planes() -> None:
    """Reduced axes on both sides of one run of others; axes of one element count for none."""
    assert planes_of((4, 128, 4096), (0, 2)) == (4, 128, 4096)
    assert planes_of((1, 4, 2, 3, 1, 64, 2), (1, 5, 6)) == (4, 6, 128)
    for shape, axes in (((4, 128, 64), (0,)), ((1, 128, 64), (0, 2)), ((2, 3, 4, 5), (1, 3)), ((4, 0, 64), (0, 2))):
        assert planes_of(shape, axes) is None


def test_settings_are_those_of_a_part() -> None:
    """Where a slice has several results, a row is as long as a part, and columns are as many as parts make them."""
    assert settings_of(Pass(4, 1 << 16, 1, parts=16), 8, 132) == row_settings(64, 4096, 8, 132)
    assert settings_of(Pass(1, 1 << 16, 256, parts=33), 8, 132) == column_settings(32 * 33, 1 << 16, 8, 132)


def test_rows_alone_on_a_multiprocessor_are_read_in_fewer_turns() -> None:
    """Twice the accesses at a time where rows of more than one turn are no more than multiprocessors."""
    more = RowSettings(vector=8, lanes=512, rows=1, unroll=8)
    assert settings_of(Pass(132, 32768, 1), 8, 132) == more
    assert settings_of(Pass(64, 1 << 17, 1, parts=2), 8, 132) == more
    for rows, reduced in ((133, 32768), (132, 16384), (132, 8192)):
        assert settings_of(Pass(rows, reduced, 1), 8, 132) == row_settings(rows, reduced, 8, 132)


def test_vector_width() -> None:
    """An access is 16 bytes where that divides the length."""
    for dtype, expected in ((torch.float32, 4), (torch.float16, 8), (torch.int8, 16), (torch.int64, 2)):
        assert vector_width(64, dtype) == expected
        assert vector_width(63, dtype) == 1


@pytest.mark.parametrize(
    ("dtype", "result", "first", "later"),
    [
        (torch.float16, torch.float16, ("float16",) * 3, ("float32", "float32", "float16")),
        (torch.float32, torch.float32, ("float32",) * 3, ("float32",) * 3),
        (torch.float32, torch.float16, ("float32", "float16", "float16"), ("float32", "float32", "float16")),
        (torch.bool, torch.int64, ("uint8", "int64", "int64", "nonzero"), ("int64",) * 3),
        (torch.int64, torch.float16, ("int64", "float16", "float16"), ("float32", "float32", "float16")),
    ],
)
def test_only_elements_are_rounded_before_and_only_the_last_result_after(
    dtype: torch.dtype, result: torch.dtype, first: tuple[Any, ...], later: tuple[str, str, str]
) -> None:
    """The first pass converts elements, later ones take accumulators, and each can end in either."""
    kernel = ReduceCPUKernel(cpu_call(dtype, result))
    assert (kernel.first, kernel.later) == (Step(*first), Step(*later))
    wide = later[0]
    partial = replace(Step(*first), target=wide)
    assert set(kernel.steps()) == {Step(*first), partial, Step(*later), Step(wide, wide, wide)}


def test_only_the_first_pass_takes_of_its_elements_and_only_the_last_gives_more() -> None:
    """Partial results are totals of what the elements contributed, and take part as they are."""
    kernel = ReduceCPUKernel(replace(cpu_call(torch.float16), of="square", gives="root"))
    whole, first, last, between = (
        Step("float16", "float16", "float16", "square", "root"),
        Step("float16", "float16", "float32", "square", "total"),
        Step("float32", "float32", "float16", "value", "root"),
        Step("float32", "float32", "float32", "value", "total"),
    )
    assert set(kernel.steps()) == {whole, first, last, between}


def test_each_reduction_has_an_entry_of_its_own() -> None:
    """What elements contribute and what the whole gives are part of an entry's identity."""
    calls = [cpu_call(), replace(cpu_call(), of="absolute"), replace(cpu_call(), gives="mean")]
    calls.append(replace(cpu_call(), operation="amax"))
    for kernel_type in (ReduceCPUKernel, ReduceKernel):
        assert len({kernel_type.entry_for(call)[0] for call in calls}) == len(calls)


@pytest.mark.parametrize("axes", [(1,), (0,), (0, 1)])
def test_norms_of_vectors(axes: tuple[int, ...]) -> None:
    """Absolute values and squares, with and without a root, give the three norms that torch has."""
    x = torch.linspace(-3, 2, 40_000).view(2, 20_000)
    absolute = replace(cpu_call(), of="absolute")
    for call, order in (
        (absolute, 1.0),
        (replace(cpu_call(), of="square", gives="root"), 2.0),
        (replace(absolute, operation="amax"), math.inf),
    ):
        expected = torch.linalg.vector_norm(x.double(), order, axes)
        assert torch.allclose(reduce_kernels().entry(call)(x, axes).double(), expected, rtol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool], ids=str)
def test_extremes_of_nothing(dtype: torch.dtype) -> None:
    """The greatest of nothing is the least value there is, and the other way round; an op refuses to ask."""
    least: float = -math.inf if dtype is torch.float32 else False if dtype is torch.bool else -(2**15)
    greatest: float = math.inf if dtype is torch.float32 else True if dtype is torch.bool else 2**15 - 1
    empty = torch.empty(2, 0, dtype=dtype)
    for call, expected in (
        (replace(cpu_call(dtype), operation="amax"), least),
        (replace(cpu_call(dtype), operation="amin"), greatest),
    ):
        assert reduce_kernels().entry(call)(empty, (1,)).tolist() == [expected] * 2


def test_no_shape_is_compiled_in() -> None:
    """No program of either kernel type knows a size."""
    for kernel in (ReduceKernel(cuda_call()), ReduceCPUKernel(cpu_call())):
        names = {name for program in kernel.programs() for name, _ in program.arguments}
        assert names.isdisjoint({"outer", "reduced", "inner", "shape", "axes"})
        assert len(set(kernel.programs())) == len(kernel.programs())
        assert kernel.entry_for(kernel.call)[0] == kernel.entry_for(replace(kernel.call))[0]


def test_cpu_entries_do_not_depend_on_threads() -> None:
    """A CPU entry serves whatever number of threads torch has."""
    call = replace(cpu_call(), facts=DeviceFacts(arch=0, sm_count=2, smem_budget=0))
    other = replace(call, facts=DeviceFacts(arch=0, sm_count=64, smem_budget=0))
    assert ReduceCPUKernel.entry_for(call)[0] == ReduceCPUKernel.entry_for(other)[0]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_sums(threads: int) -> None:
    """Splitting among threads loses and repeats nothing, for rows, columns and everything."""
    before = torch.get_num_threads()
    x = torch.randint(-9, 9, (6, 40, 1000))
    entry = reduce_kernels().entry(cpu_call(torch.int64))
    try:
        torch.set_num_threads(threads)
        for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2), ()):
            assert torch.equal(entry(x, axes), x.sum(axes) if axes else x)
    finally:
        torch.set_num_threads(before)


def test_programs_are_built_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry builds nothing when made or for no elements, then one program for rows and one for columns, once."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert owner.startswith("ReduceCPUKernel for ReduceCall(")
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    entry = reduce_kernels().entry(cpu_call(torch.float16))
    x = torch.ones(3, 5).half()
    assert entry(x[:0], (0,)).tolist() == [0.0] * 5
    assert built == []

    for _ in range(2):
        assert entry(x, (1,)).tolist() == [5.0] * 3
        assert entry(x, (0,)).tolist() == [3.0] * 5
        assert entry(x.view(15), (0,)).item() == 15.0

    assert [program.builder for program in built] == ["reduce_rows", "reduce_columns"]
    assert set(built) <= set(ReduceCPUKernel(cpu_call(torch.float16)).programs())


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *itertools.product(("rows", "columns"), (torch.float16, torch.complex64, torch.complex128)),
        ("planes", torch.float16),
    ],
    ids=str,
)
def test_offsets_are_wide_and_accesses_whole(kind: str, dtype: torch.dtype) -> None:
    """Offsets are computed in 64 bits and elements read 16 bytes at a time."""
    vector = 16 // dtype.itemsize
    kernel = ReduceKernel(cuda_call() if vector == 8 else replace(cuda_call(dtype, torch.int64), of="nonzero"))
    every: dict[str, RowSettings | ColumnSettings | PlaneSettings] = {
        "rows": row_settings(999, 4096, vector, 132),
        "columns": column_settings(512, 2048, vector, 132),
        "planes": PlaneSettings(vector=vector),
    }
    text = cuda.cross_compile(kernel.program(kernel.first, every[kind]), arch=90)

    offset = r"int64_t offset = .*\(int64_t\)blockIdx\.x.*\s*" if kind == "planes" else ""
    place = "offset" if kind == "planes" else r".*\(int64_t\)blockIdx\.x"
    assert re.search(rf"{offset}tileops_read_once\(\(&\(x\[.*&\(X\[{place}", text)
    mask = {8: "", 2: " & (int64_t)9223372034707292159", 1: " & (int64_t)9223372036854775807"}[vector]
    assert mask in text
    assert "int blockIdx" not in text


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16], ids=str)
@pytest.mark.parametrize("n", [5, 31, 32, 255, 256, 8_449, 70_001])
def test_short_integers_are_summed_exactly(n: int, dtype: torch.dtype) -> None:
    """The greatest and the least values of a short integer dtype sum to what they do in int64, whatever the length."""
    limits = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    entry = reduce_kernels().entry(cpu_call(dtype, torch.int64))
    for value in limits:
        assert entry(torch.full((3, n), value, dtype=dtype), (1,)).tolist() == [n * value] * 3


@pytest.mark.parametrize("operation", ["amax", "amin"])
def test_nan_is_found_wherever_it_lies(operation: Operation) -> None:
    """A NaN at any place of a block, before and behind greater and lesser elements, is the extreme."""
    x = torch.randn(600, 600, generator=torch.Generator().manual_seed(0))
    x.fill_diagonal_(math.nan)
    entry = reduce_kernels().entry(replace(cpu_call(), operation=operation))
    assert entry(x, (1,)).isnan().all()
    assert entry(x, (0,)).isnan().all()
