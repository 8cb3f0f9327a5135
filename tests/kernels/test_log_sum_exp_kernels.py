"""Kernel types of log-sum-exps: which serves what, programs, and what is launched."""

from __future__ import annotations

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
from tileops_kernels.reduction import LOG_SUM_EXP_KERNELS, LogSumExpCall, log_sum_exp_kernels
from tileops_kernels.reduction.folding import FoldStep
from tileops_kernels.reduction.log_sum_exp import LogSumExpCPUKernel, LogSumExpKernel
from tileops_kernels.reduction.reduce import column_settings, row_settings

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)


def cuda_call(dtype: torch.dtype = torch.float16, result: torch.dtype | None = None) -> LogSumExpCall:
    return LogSumExpCall(device=torch.device("cuda", 0), dtype=dtype, result=result or dtype, facts=HOPPER)


def cpu_call(dtype: torch.dtype = torch.float32, result: torch.dtype | None = None) -> LogSumExpCall:
    return LogSumExpCall(device=torch.device("cpu"), dtype=dtype, result=result or dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.bool, torch.int8, torch.int64])
def test_selection(dtype: torch.dtype) -> None:
    """One kernel type serves every dtype on each device family."""
    result = dtype if dtype.is_floating_point else torch.float32
    assert log_sum_exp_kernels().key_for(cuda_call(dtype, result)) == "log_sum_exp"
    assert log_sum_exp_kernels().key_for(cpu_call(dtype, result)) == "log_sum_exp_cpu"


def test_other_dtypes_are_refused() -> None:
    """A dtype of elements or of results that no kernel type serves is an error that gives the reason."""
    with pytest.raises(NoImplementationError, match=r"log_sum_exp_cpu: takes float16, .*, int64, not float64"):
        log_sum_exp_kernels().key_for(cpu_call(torch.float64))
    with pytest.raises(NoImplementationError, match=r"log_sum_exp_cpu: gives float16, bfloat16, float32, not int64"):
        log_sum_exp_kernels().key_for(cpu_call(torch.int64))


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(LOG_SUM_EXP_KERNELS) == {"log_sum_exp": LogSumExpKernel, "log_sum_exp_cpu": LogSumExpCPUKernel}


def test_a_partial_result_is_an_element_of_the_next_pass() -> None:
    """Between passes stands one float32, and only the last pass rounds to the result."""
    kernel = LogSumExpCPUKernel(cpu_call(torch.int8, torch.float16))
    whole, later = (
        FoldStep("total", mean=False, source="int8", parts=1, target="float16"),
        FoldStep("total", mean=False, source="float32", parts=1, target="float16"),
    )
    assert (kernel.whole, kernel.later) == (whole, later)
    assert set(kernel.steps()) == {whole, later, replace(whole, target="float32"), replace(later, target="float32")}


def test_no_shape_is_compiled_in() -> None:
    """No program of either kernel type knows a size."""
    for kernel in (LogSumExpKernel(cuda_call()), LogSumExpCPUKernel(cpu_call())):
        names = {name for program in kernel.programs() for name, _ in program.arguments}
        assert names.isdisjoint({"outer", "reduced", "inner", "shape", "axes"})
        assert len(set(kernel.programs())) == len(kernel.programs())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_values(threads: int) -> None:
    """Splitting among threads loses and repeats nothing, for rows, columns and everything."""
    before = torch.get_num_threads()
    x = torch.randn(6, 40, 1000, generator=torch.Generator().manual_seed(0))
    entry = log_sum_exp_kernels().entry(cpu_call())
    try:
        torch.set_num_threads(threads)
        for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            assert torch.allclose(entry(x, axes).double(), x.double().logsumexp(axes), rtol=1e-6, atol=1e-6)
        assert torch.allclose(entry(x, ()), x, rtol=1e-6)
    finally:
        torch.set_num_threads(before)


def test_programs_are_built_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry builds nothing when made or for no elements, then one program for rows and one for columns, once."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert owner.startswith("LogSumExpCPUKernel for LogSumExpCall(")
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    entry = log_sum_exp_kernels().entry(cpu_call(torch.float16))
    x = torch.zeros(4, 4).half()
    assert entry(x[:0], (0,)).tolist() == [-torch.inf] * 4
    assert built == []

    for rows in (4, 3, 1, 4):
        assert torch.equal(entry(x[:rows], (1,)), x[:rows].logsumexp(1))
        assert torch.equal(entry(x[:rows], (0,)), x[:rows].logsumexp(0))

    assert [program.builder for program in built] == ["fold_rows", "fold_columns"]
    assert set(built) <= set(LogSumExpCPUKernel(cpu_call(torch.float16)).programs())


class Launches:
    """Stands for loaded CUDA programs: computes what each launch should, and keeps what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.given: list[tuple[Tensor, Tensor]] = []
        monkeypatch.setattr(cuda, "load", self.load)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        assert owner.startswith("LogSumExpKernel for LogSumExpCall(")
        self.programs.append(program)
        axes = {"fold_rows": (2, 3), "fold_columns": (2,), "fold_planes": (0, 2, 3)}[program.builder]

        def run(x: Tensor, y: Tensor) -> None:
            self.given.append((x, y))
            y.copy_(x.float().logsumexp(axes))

        return run


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((6, 64), (1,)),
        ((6, 64), (0,)),
        ((6, 63), (1,)),
        ((6, 63), (0,)),
        ((2, 33, 64), (0, 2)),
        ((2, 33, 16), (0, 2)),
        ((4, 32768), (1,)),
        ((4096, 2), (0,)),
        ((5,), (0,)),
        ((), ()),
        ((3, 1), (1,)),
    ],
)
@pytest.mark.parametrize("offset", [0, 1])
def test_launches_get_packed_views(
    shape: tuple[int, ...], axes: tuple[int, ...], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the shape and offset of x, programs get packed views whose accesses are aligned; one is the result."""
    launches = Launches(monkeypatch)
    kernel = LogSumExpKernel(cuda_call(torch.float32))
    flat = torch.randn(torch.Size(shape).numel() + 4)
    start = next(place for place in range(4) if (flat[place:].data_ptr() % 16 == 0) != bool(offset))
    x = flat[start : start + torch.Size(shape).numel()].view(shape)

    y = kernel.forward(x, axes)

    assert torch.allclose(y, x.logsumexp(axes) if axes else x, rtol=1e-6, atol=1e-6)
    assert launches.given[-1][1].data_ptr() == y.data_ptr()
    for program, (source, _) in zip(launches.programs, launches.given, strict=False):
        assert dict(program.arguments)["vector"] == source.shape[-1]
    for tensors in launches.given:
        for tensor in tensors:
            assert tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
        assert tensors[0].shape[-1] == 1 or tensors[0].data_ptr() % 16 == 0
    assert set(launches.programs) <= set(kernel.programs())


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without elements gives minus infinity without building or launching."""
    launches = Launches(monkeypatch)
    kernel = LogSumExpKernel(cuda_call())
    assert kernel.forward(torch.empty(2, 0).half(), (1,)).tolist() == [-torch.inf] * 2
    assert kernel.forward(torch.empty(2, 0).half(), (0,)).shape == (0,)
    assert launches.programs == []


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "columns"])
def test_offsets_are_wide_and_accesses_whole(rows: bool) -> None:
    """Offsets are computed in 64 bits and elements read 16 bytes at a time."""
    kernel = LogSumExpKernel(cuda_call())
    settings = row_settings(2048, 4096, 8, 132) if rows else column_settings(512, 2048, 8, 132)
    text = cuda.cross_compile(kernel.program(kernel.whole, settings), arch=90)

    assert re.search(r"tileops_read_once\(\(&\(x\[.*&\(X\[.*\(int64_t\)blockIdx\.x", text)
    assert "int blockIdx" not in text
