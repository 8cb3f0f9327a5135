"""Kernel types of variances: which serves what, programs, partial results, and what is launched."""

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
from tileops_kernels.reduction import (
    VAR_MEAN_KERNELS,
    VARIANCE_KERNELS,
    VarianceCall,
    var_mean_kernels,
    variance_kernels,
)
from tileops_kernels.reduction.folding import FoldStep
from tileops_kernels.reduction.reduce import PlaneSettings, Settings, column_settings, row_settings
from tileops_kernels.reduction.variance import VarianceCPUKernel, VarianceKernel, VarMeanCPUKernel, VarMeanKernel

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)


def cuda_call(dtype: torch.dtype = torch.float16) -> VarianceCall:
    return VarianceCall(device=torch.device("cuda", 0), dtype=dtype, facts=HOPPER)


def cpu_call(dtype: torch.dtype = torch.float32) -> VarianceCall:
    return VarianceCall(device=torch.device("cpu"), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_selection(dtype: torch.dtype) -> None:
    """One kernel type serves every dtype on each device family."""
    assert variance_kernels().key_for(cuda_call(dtype)) == "variance"
    assert variance_kernels().key_for(cpu_call(dtype)) == "variance_cpu"
    assert var_mean_kernels().key_for(cuda_call(dtype)) == "var_mean"
    assert var_mean_kernels().key_for(cpu_call(dtype)) == "var_mean_cpu"


def test_other_dtypes_are_refused() -> None:
    """A dtype that no kernel type serves is an error that gives the reason."""
    with pytest.raises(NoImplementationError, match=r"variance_cpu: serves float16, bfloat16, float32, not int64"):
        variance_kernels().key_for(cpu_call(torch.int64))
    with pytest.raises(NoImplementationError, match=r"var_mean_cpu: serves float16, bfloat16, float32, not float64"):
        var_mean_kernels().key_for(cpu_call(torch.float64))


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(VARIANCE_KERNELS) == {"variance": VarianceKernel, "variance_cpu": VarianceCPUKernel}
    assert dict(VAR_MEAN_KERNELS) == {"var_mean": VarMeanKernel, "var_mean_cpu": VarMeanCPUKernel}


def test_partial_results_hold_a_mean_and_the_spread_about_it() -> None:
    """Between passes stand three float32 for each result; only the last pass rounds, and gives the mean."""
    kernel = VarMeanCPUKernel(cpu_call(torch.float16))
    whole = FoldStep("variance", mean=True, source="float16", parts=1, target="float16")
    later = FoldStep("variance", mean=True, source="float32", parts=3, target="float16")
    between = {"gives": "partial", "mean": False, "target": "float32"}
    assert (kernel.whole, kernel.later) == (whole, later)
    assert set(kernel.steps()) == {whole, later, replace(whole, **between), replace(later, **between)}  # type: ignore[arg-type]
    assert (whole.planes, replace(whole, gives="partial").planes) == (1, 3)


def test_each_call_has_an_entry_of_its_own() -> None:
    """A variance and its root are entries of their own; the correction is part of neither."""
    deviation = replace(cpu_call(), gives="deviation")
    for kernel_type in (VarianceCPUKernel, VarianceKernel):
        assert kernel_type.entry_for(cpu_call())[0] != kernel_type.entry_for(deviation)[0]
    x = torch.arange(12.0).view(3, 4)
    assert torch.equal(variance_kernels().entry(deviation)(x, (1,), 1.5), x.std(1, correction=1.5))


def test_no_shape_is_compiled_in() -> None:
    """No program of any kernel type knows a size or a correction."""
    for kernel in (VarianceKernel(cuda_call()), VarMeanKernel(cuda_call()), VarianceCPUKernel(cpu_call())):
        names = {name for program in kernel.programs() for name, _ in program.arguments}
        assert names.isdisjoint({"outer", "reduced", "inner", "shape", "axes", "correction"})
        assert len(set(kernel.programs())) == len(kernel.programs())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_right_values(threads: int) -> None:
    """Splitting among threads loses and repeats nothing, for rows, columns and everything, in up to three passes."""
    before = torch.get_num_threads()
    x = 1000 + torch.randn(6, 40, 1000, generator=torch.Generator().manual_seed(0))
    entry = var_mean_kernels().entry(cpu_call())
    try:
        torch.set_num_threads(threads)
        for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            for y, expected in zip(entry(x, axes, 1), torch.var_mean(x.double(), axes), strict=True):
                assert torch.allclose(y.double(), expected, rtol=1e-6)
        variance, mean = entry(x, (), 0)
        assert torch.equal(variance, torch.zeros_like(x))
        assert torch.equal(mean, x)
    finally:
        torch.set_num_threads(before)


def test_programs_are_built_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry builds nothing when made or for no elements, then one program for rows and one for columns, once."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert owner.startswith("VarianceCPUKernel for VarianceCall(")
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    entry = variance_kernels().entry(cpu_call(torch.float16))
    x = torch.arange(16.0).view(4, 4).half()
    assert entry(x[:0], (0,), 1).isnan().all()
    assert built == []

    for rows, correction in ((4, 1.0), (3, 0.5), (2, 0.0), (4, 3.0)):
        assert torch.equal(entry(x[:rows], (1,), correction), x[:rows].var(1, correction=correction))
        assert entry(x[:rows], (0,), correction).shape == (4,)

    assert [program.builder for program in built] == ["fold_rows", "fold_columns"]
    assert set(built) <= set(VarianceCPUKernel(cpu_call(torch.float16)).programs())


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
        assert owner.startswith("VarMeanKernel for VarianceCall(")
        self.programs.append(program)
        axes = {"fold_rows": (1, 2), "fold_columns": (1,), "fold_planes": (0, 2, 3)}[program.builder]

        def run(x: Tensor, y: Tensor, *others: Tensor | float) -> None:
            *means, divisor = others
            self.given.append((x, y, *(tensor for tensor in means if isinstance(tensor, Tensor))))
            values = x.double()[None] if program.builder == "fold_planes" else x.double()
            within = values[2] if len(values) == 3 else torch.zeros_like(values[0])
            values = values[0] + values[1] if len(values) == 3 else values[0]
            mean = values.mean(axes, keepdim=True)
            spread = ((values - mean).square() + within).sum(axes) / divisor
            mean = mean.squeeze(axes)
            y.copy_(torch.stack((mean, mean - mean.float(), spread)) if len(y) == 3 else spread[None])
            for tensor in means:
                assert isinstance(tensor, Tensor)
                tensor.copy_(mean)

        return run


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((6, 64), (1,)),
        ((6, 64), (0,)),
        ((6, 63), (1,)),
        ((6, 63), (0,)),
        ((2, 33, 64), (0, 2)),
        ((2, 33, 63), (0, 2)),
        ((2, 33, 16), (0, 2)),
        ((8, 4, 5, 3), (0, 2)),
        ((4, 32768), (1,)),
        ((4096, 2), (0,)),
        ((5,), (0,)),
    ],
)
@pytest.mark.parametrize("offset", [0, 1])
def test_launches_get_packed_views_and_divisors(
    shape: tuple[int, ...], axes: tuple[int, ...], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs get packed views whose accesses are aligned, and divisors under which passes give the whole variance."""
    launches = Launches(monkeypatch)
    kernel = VarMeanKernel(cuda_call(torch.float32))
    flat = torch.randn(torch.Size(shape).numel() + 4)
    start = next(place for place in range(4) if (flat[place:].data_ptr() % 16 == 0) != bool(offset))
    x = flat[start : start + torch.Size(shape).numel()].view(shape)

    variance, mean = kernel.forward(x, axes, 0.75)

    expected = torch.var_mean(x.double(), axes, correction=0.75)
    assert torch.allclose(variance.double(), expected[0], rtol=1e-6)
    assert torch.allclose(mean.double(), expected[1], rtol=1e-6, atol=1e-6)
    assert [tensor.data_ptr() for tensor in launches.given[-1][1:]] == [variance.data_ptr(), mean.data_ptr()]
    for program, (source, *_) in zip(launches.programs, launches.given, strict=False):
        assert dict(program.arguments)["vector"] == source.shape[-1]
        assert dict(program.arguments)["parts"] in (1, source.shape[0])
    for tensors in launches.given:
        for tensor in tensors:
            assert tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
        assert tensors[0].shape[-1] == 1 or tensors[0].data_ptr() % 16 == 0
    assert set(launches.programs) <= set(kernel.programs())


@pytest.mark.parametrize(
    ("shape", "axes", "builders"),
    [
        ((2, 3, 64), (0, 2), ["fold_planes"]),
        ((2, 3, 16), (0, 2), ["fold_rows", "fold_columns"]),
        ((9, 32768), (1,), ["fold_rows"]),
        ((8, 32768), (1,), ["fold_rows", "fold_rows"]),
    ],
)
def test_one_launch_where_it_suffices(
    shape: tuple[int, ...], axes: tuple[int, ...], builders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block for each channel of axes on both sides, and for each of enough rows; else passes."""
    launches = Launches(monkeypatch)
    kernel = VarMeanKernel(cuda_call(torch.float32))
    kernel.forward(torch.ones(shape), axes, 1)
    assert [program.builder for program in launches.programs] == builders
    assert set(launches.programs) <= set(kernel.programs())


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without elements gives NaN without building or launching."""
    launches = Launches(monkeypatch)
    kernel = VarMeanKernel(cuda_call())
    for y in kernel.forward(torch.empty(2, 0).half(), (1,), 1):
        assert y.isnan().tolist() == [True, True]
    assert [y.shape for y in kernel.forward(torch.empty(2, 0).half(), (0,), 1)] == [(0,), (0,)]
    assert launches.programs == []


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize("kind", ["rows", "columns", "planes"])
def test_offsets_are_wide_and_accesses_whole(kind: str) -> None:
    """Offsets are computed in 64 bits and elements read 16 bytes at a time, those of partial results too."""
    kernel = VarMeanKernel(cuda_call())
    for step, vector in ((kernel.whole, 8), (kernel.later, 4)):
        every: dict[str, Settings] = {
            "rows": row_settings(2048, 4096, vector, 132),
            "columns": column_settings(512, 2048, vector, 132),
            "planes": PlaneSettings(vector=8),
        }
        whole = kernel.whole if kind == "planes" else step  # the one pass of a channel
        text = cuda.cross_compile(kernel.program(whole, every[kind]), arch=90)
        offset = r"int64_t offset = .*\(int64_t\)blockIdx\.x.*\s*" if kind == "planes" else ""
        place = "offset" if kind == "planes" else r".*\(int64_t\)blockIdx\.x"
        assert re.search(rf"{offset}tileops_read_once\(\(&\(x\[.*&\(X\[{place}", text)
        assert "int blockIdx" not in text
