"""Kernel types of RMSNorm: which serves what, their launch settings, and what an entry builds and launches."""

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
from tileops_kernels.errors import NoImplementationError, StorageError
from tileops_kernels.norm import RMS_NORM_KERNELS, LayerNormCall, rms_norm_kernels
from tileops_kernels.norm.rms_norm import (
    RMSNormClusteredKernel,
    RMSNormCPUKernel,
    RMSNormKernel,
    RMSNormOnChipKernel,
    RMSNormStreamingKernel,
)
from tileops_kernels.norm.rows import (
    OnChipSettings,
    general_settings,
    on_chip_settings,
    streaming_settings,
    vector_width,
)

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
ADA = DeviceFacts(arch=89, sm_count=142, smem_budget=101376)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def cuda_call(n: int, dtype: torch.dtype = torch.float16, facts: DeviceFacts = HOPPER) -> LayerNormCall:
    return LayerNormCall(device=torch.device("cuda", 0), n=n, eps=1e-6, dtype=dtype, facts=facts)


def cpu_call(n: int, dtype: torch.dtype = torch.float32, eps: float = 1e-6) -> LayerNormCall:
    return LayerNormCall(device=torch.device("cpu"), n=n, eps=eps, dtype=dtype)


@pytest.mark.parametrize(
    ("n", "dtype", "facts", "expected"),
    [
        (1, torch.float16, HOPPER, "rms_norm"),
        (7, torch.float32, HOPPER, "rms_norm"),
        (4095, torch.bfloat16, HOPPER, "rms_norm"),
        (4100, torch.float16, HOPPER, "rms_norm"),
        (4100, torch.float32, HOPPER, "rms_norm_on_chip"),
        (8, torch.float16, HOPPER, "rms_norm_on_chip"),
        (8192, torch.bfloat16, HOPPER, "rms_norm_on_chip"),
        (65536, torch.float16, HOPPER, "rms_norm_streaming"),
        (262140, torch.float16, HOPPER, "rms_norm"),
    ],
)
def test_selection_on_cuda(n: int, dtype: torch.dtype, facts: DeviceFacts, expected: str) -> None:
    """Rows of whole 16-byte accesses stay on chip while they fit, then are streamed; others go to the general type."""
    assert rms_norm_kernels().key_for(cuda_call(n, dtype, facts)) == expected


@pytest.mark.parametrize("n", [1, 7, 4096, 262144])
def test_selection_on_cpu(n: int) -> None:
    """One kernel type serves every row length on a CPU."""
    assert rms_norm_kernels().key_for(cpu_call(n)) == "rms_norm_cpu"


def test_other_dtypes_are_refused() -> None:
    """A dtype that no kernel type serves is an error that gives each one's reason."""
    with pytest.raises(NoImplementationError, match=r"rms_norm_cpu: serves float16, bfloat16, float32, not float64"):
        rms_norm_kernels().key_for(cpu_call(8, torch.float64))


def test_reasons_name_the_row() -> None:
    """Each refusal says what the kernel type needs and what the call has."""
    assert RMSNormStreamingKernel.refusal(cuda_call(4095)) == (
        "rows are read 16 bytes at a time; n=4095 is no multiple of 8 elements"
    )
    limit = next(n for n in range(1 << 20, 0, -8) if RMSNormOnChipKernel.refusal(cuda_call(n)) is None)
    assert RMSNormOnChipKernel.refusal(cuda_call(1 << 20)) == (
        f"a block holds rows of up to {limit} elements on chip; n=1048576 is longer"
    )


LENGTHS = [*range(8, 1200, 8), 4096, 5120, 8192, 8200, 12288, 16384, 18432, 32768, 40960, 50176, 65536]


@pytest.mark.parametrize("facts", [HOPPER, ADA], ids=["hopper", "ada"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_chip_settings_fit_the_chip(dtype: torch.dtype, facts: DeviceFacts) -> None:
    """Threads, registers and shared memory of every row length that is served stay within what a block may have."""
    for n in LENGTHS:
        call = cuda_call(n, dtype, facts)
        if RMSNormOnChipKernel.refusal(call) is not None:
            continue
        settings = on_chip_settings(call)
        vectors = n // vector_width(call)
        steps = -(-vectors // settings.lanes)
        threads = settings.lanes * settings.rows
        assert settings.lanes.bit_count() == 1 if settings.lanes < 32 else settings.lanes % 32 == 0, n
        assert 32 <= threads <= 1024, n
        assert steps <= 8, n
        assert settings.lanes * steps < vectors + max(32 * steps, settings.lanes), n
        assert steps == 1 or settings.blocks * threads <= 768, n


@pytest.mark.parametrize(
    ("n", "dtype", "settings"),
    [
        (128, torch.float16, OnChipSettings(lanes=16, rows=8, blocks=1)),
        (256, torch.bfloat16, OnChipSettings(lanes=32, rows=4, blocks=1)),
        (1024, torch.float16, OnChipSettings(lanes=128, rows=1, blocks=1)),
        (4096, torch.float16, OnChipSettings(lanes=64, rows=1, blocks=12)),
        (1152, torch.bfloat16, OnChipSettings(lanes=64, rows=1, blocks=12)),
        (5120, torch.bfloat16, OnChipSettings(lanes=96, rows=1, blocks=8)),
        (8192, torch.float16, OnChipSettings(lanes=128, rows=1, blocks=6)),
        (8192, torch.float32, OnChipSettings(lanes=256, rows=1, blocks=3)),
        (16384, torch.bfloat16, OnChipSettings(lanes=256, rows=1, blocks=3)),
    ],
)
def test_the_rows_of_models_have_the_settings_that_measured_best(
    n: int, dtype: torch.dtype, settings: OnChipSettings
) -> None:
    """A change of the heuristic that moves these lengths needs a measurement."""
    assert on_chip_settings(cuda_call(n, dtype)) == settings


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunked_settings_serve_any_row(dtype: torch.dtype) -> None:
    """The accesses of the general type divide the row; both types stay within a block's threads."""
    for n in [*range(1, 300), 4095, 4097, 100_003, 1 << 20]:
        call = cuda_call(n, dtype)
        choices = [general_settings(call)]
        if RMSNormStreamingKernel.refusal(call) is None:
            choices.append(streaming_settings(call))
        for settings in choices:
            assert n % settings.vector == 0, n
            assert settings.vector * dtype.itemsize <= 16, n
            assert settings.lanes.bit_count() == 1 if settings.lanes < 32 else settings.lanes % 32 == 0, n
            assert settings.lanes * settings.rows <= 1024, n


def test_eps_and_row_count_are_not_compiled_in() -> None:
    """Calls that differ in eps have the same programs, and no program knows the number of rows."""
    for kernel_type, call in (
        (RMSNormCPUKernel, cpu_call(64)),
        (RMSNormOnChipKernel, cuda_call(64)),
        (RMSNormStreamingKernel, cuda_call(64)),
        (RMSNormKernel, cuda_call(63)),
    ):
        programs = kernel_type(call).programs()
        assert kernel_type(replace(call, eps=0.5)).programs() == programs
        assert len(set(programs)) == 2
        assert {name for program in programs for name, _ in program.arguments}.isdisjoint({"m", "eps"})


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    expected = {
        "rms_norm": RMSNormKernel,
        "rms_norm_streaming": RMSNormStreamingKernel,
        "rms_norm_clustered": RMSNormClusteredKernel,
        "rms_norm_on_chip": RMSNormOnChipKernel,
        "rms_norm_cpu": RMSNormCPUKernel,
    }
    assert dict(RMS_NORM_KERNELS) == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [7, 256, 300])
def test_cpu_entry_agrees_with_float64(n: int, dtype: torch.dtype) -> None:
    """A downstream project gets right rows from an entry, with a weight and without, rounded once."""
    entry = rms_norm_kernels().entry(cpu_call(n, dtype))
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(3, 5, n, generator=random).to(dtype), torch.randn(n, generator=random).to(dtype)
    additions = (
        n / 32 + 32
    )  # in 32 lanes, then over the lanes; their roundings add up like a random walk, halved by the root
    float32_bound = (3 + additions**0.5 / 2) * 2**-24

    for scale in (weight, None):
        y = entry(x, scale)
        expected = torch.nn.functional.rms_norm(x.double(), (n,), None if scale is None else scale.double(), 1e-6)
        bound = float32_bound if dtype is torch.float32 else torch.finfo(dtype).eps / 2 * 1.01
        smallest = torch.finfo(dtype).tiny
        assert y.dtype == dtype
        assert bool(((y.double() - expected).abs() <= bound * expected.abs() + smallest).all())


def test_results_have_plain_strides() -> None:
    """The result is laid out row after row even where x has an odd stride on an axis of one."""
    entry = rms_norm_kernels().entry(cpu_call(16))
    x = torch.randn(1, 64)[:, :16]

    y = entry(x, None)

    assert x.is_contiguous()
    assert x.stride() == (64, 1)
    assert y.stride() == (16, 1)
    assert torch.equal(y, entry(x.clone(memory_format=torch.contiguous_format), None))


def test_programs_are_built_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry builds nothing when made or for no rows, then one program for each of its two signatures, once."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert owner.startswith("RMSNormCPUKernel for LayerNormCall(")
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    entry = rms_norm_kernels().entry(cpu_call(256, torch.float16))
    x, weight = torch.randn(2, 256).half(), torch.ones(256).half()
    assert entry(x[:0], weight).shape == (0, 256)
    assert built == []

    for _ in range(3):
        entry(x, weight)
        entry(x[:1], None)

    assert [dict(program.arguments)["weighted"] for program in built] == [True, False]


class Launches:
    """Stands for loaded CUDA programs, and keeps what each launch was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arguments: list[tuple[Tensor | float, ...]] = []
        self.loaded: list[Program] = []
        self.ran: list[Program] = []
        monkeypatch.setattr(cuda, "load", self.load)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        self.loaded.append(program)

        def run(*given: Tensor | float) -> None:
            self.ran.append(program)
            self.arguments.append(given)

        return run


@pytest.mark.parametrize(
    ("n", "dtype", "builders"),
    [
        (4096, torch.float16, ["on_chip", "spread"]),
        (8192, torch.bfloat16, ["on_chip", "spread"]),
        (4096, torch.float32, ["on_chip", "spread"]),
        (512, torch.float16, ["on_chip"]),
        (16384, torch.float16, ["on_chip"]),
    ],
)
def test_few_rows_have_a_thread_for_each_access(
    n: int, dtype: torch.dtype, builders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a block has room for them; both programs are built by the first call, whatever its rows are."""
    launches = Launches(monkeypatch)
    kernel = RMSNormOnChipKernel(cuda_call(n, dtype))
    weight = torch.ones(n, dtype=dtype)
    for rows in (1, 264, 265, 4000):
        kernel.forward(torch.empty(rows, n, dtype=dtype), weight)
        assert [program.builder.removeprefix("rms_norm_") for program in launches.loaded] == builders
    ran = [program.builder.removeprefix("rms_norm_") for program in launches.ran]
    assert ran == [builders[-1], builders[-1], "on_chip", "on_chip"]
    assert len(kernel.programs()) == 2 * len(builders)


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_few_rows_are_added_up_as_many_are(dtype: torch.dtype) -> None:
    """The program for few rows sums an access, then those of a lane, then lanes: the order of the other one."""
    kernel = RMSNormOnChipKernel(cuda_call(5120, dtype))
    many, few = (
        cuda.cross_compile(program, arch=90) for program in (kernel.program(True), kernel.spread_program(True))
    )
    lanes, vector = kernel.settings.lanes, vector_width(kernel.call)
    steps = -(-5120 // (vector * lanes))
    assert f"__launch_bounds__({steps * lanes}, 1)" in few
    assert f"for (int k = 0; k < {steps}; ++k)" in few
    for text in (many, few):
        assert f"for (int v = 0; v < {vector}; ++v) {{\n" in text
        assert "for (int step = 0; step < 5; ++step)" in text
        assert f"for (int warp = 0; warp < {lanes // 32}; ++warp)" in text


@pytest.mark.parametrize("kernel_type", [RMSNormOnChipKernel, RMSNormStreamingKernel, RMSNormKernel])
def test_launches_get_aligned_rows(
    kernel_type: type[RMSNormOnChipKernel | RMSNormStreamingKernel | RMSNormKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the shape and offset of its inputs, a program gets rows of plain strides at multiples of 16 bytes."""
    launches = Launches(monkeypatch)
    kernel = kernel_type(cuda_call(64))
    flat = torch.randn(6 * 64 + 8).half()
    offset = next(k for k in range(1, 9) if flat[k:].data_ptr() % 16)
    inputs = [
        flat[: 6 * 64].view(6, 64),
        flat[: 6 * 64].view(2, 3, 8, 8),
        flat[offset : offset + 6 * 64].view(6, 64),
        flat[: 2 * 64].view(2, 64)[:1],
        torch.randn(1, 128)[:, :64].half(),
    ]
    weights = [flat[:64], flat[:64].view(8, 8), flat[offset : offset + 64], None, None]
    for x, weight in zip(inputs, weights, strict=True):
        y = kernel.forward(x, weight)
        rows, *scale, results, eps = launches.arguments[-1]
        assert eps == 1e-6
        assert isinstance(rows, Tensor)
        assert isinstance(results, Tensor)
        assert (rows.shape, rows.stride()) == ((x.numel() // 64, 64), (64, 1))
        assert torch.equal(rows, x.reshape(-1, 64))
        assert (results.shape, results.stride(), results.data_ptr()) == (rows.shape, (64, 1), y.data_ptr())
        assert y.shape == x.shape
        assert [tensor.data_ptr() % 16 for tensor in (rows, results)] == [0, 0]
        assert len(scale) == (weight is not None)
        for tensor in scale:
            assert isinstance(tensor, Tensor)
            assert weight is not None
            assert (tensor.stride(), tensor.data_ptr() % 16) == ((1,), 0)
            assert torch.equal(tensor, weight.reshape(64))


def test_single_elements_have_unit_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one element are given to the program with stride one, whatever strides torch left on their axes."""
    launches = Launches(monkeypatch)
    kernel = RMSNormKernel(cuda_call(1))
    x = torch.randn(1, 5).half().t()

    kernel.forward(x, None)

    rows = launches.arguments[-1][0]
    assert x.stride() == (1, 5)
    assert isinstance(rows, Tensor)
    assert rows.stride() == (1, 1)


@pytest.mark.parametrize("n", [36326, 50257])
def test_long_rows_of_float16_build_on_a_cpu(n: int) -> None:
    """Lengths at which TileLang cannot simplify the address of an element inside a row, vocabularies among them."""
    x = torch.ones(2, n, dtype=torch.float16)

    assert torch.equal(rms_norm_kernels().entry(cpu_call(n, torch.float16, 0.0))(x, None), x)


def test_no_rows_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without rows returns without building or launching."""
    launches = Launches(monkeypatch)

    assert RMSNormOnChipKernel(cuda_call(64)).forward(torch.empty(0, 64).half(), None).shape == (0, 64)
    assert launches.arguments == []


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize(
    ("kernel_type", "n"), [(RMSNormOnChipKernel, 16384), (RMSNormStreamingKernel, 262144)], ids=["on_chip", "streaming"]
)
def test_offsets_are_wide_and_accesses_whole(
    kernel_type: type[RMSNormOnChipKernel | RMSNormStreamingKernel], n: int
) -> None:
    """Row offsets are computed in 64 bits, and x and y move 16 bytes at a time."""
    text = cuda.cross_compile(kernel_type(cuda_call(n)).program(True), arch=90)
    assert re.search(rf"X( \+ |\[).*\(int64_t\)blockIdx\.x\).*\* \(int64_t\){n}\)", text)
    assert re.search(
        rf"(\*\(uint4\*\)\(Y \+ |write_result\(\(&\(Y\[).*\(int64_t\)blockIdx\.x\).*\* \(int64_t\){n}\)", text
    )
    assert "*(uint4*)(x + " in text


@pytest.mark.parametrize("freed", ["x", "weight"])
def test_freed_storage_is_an_error_on_cpu(freed: str) -> None:
    """A tensor with elements and no memory is refused before its address is used; one without rows is not."""
    x, weight = torch.ones(3, 8), torch.ones(8)
    {"x": x, "weight": weight}[freed].untyped_storage().resize_(0)
    kernel = RMSNormCPUKernel(cpu_call(8))

    with pytest.raises(StorageError) as caught:
        kernel(x, weight)

    assert str(caught.value) == (
        f"RMSNormCPUKernel for {cpu_call(8)}: {freed} has elements and no storage; expected memory that holds them, "
        "received address 0; restore its storage before the call"
    )
    assert kernel(torch.ones(0, 8), weight).shape == (0, 8)
