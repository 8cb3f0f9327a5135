"""Kernel types of the elementwise family: which serves what, their settings, and what an entry keeps and launches."""

from __future__ import annotations

import re
import shutil

import pytest
import torch
from torch import Tensor

from tests.kernels.launches import load_instead
from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.elementwise import (
    ActivationCall,
    AlibiCall,
    SinusoidalCall,
    alibi_kernels,
    relu_kernels,
    sinusoidal_kernels,
)
from tileops_kernels.elementwise.activation import ElementSettings, ReluKernel, element_settings
from tileops_kernels.elementwise.generative import AlibiKernel, RowSettings, SinusoidalKernel, row_settings
from tileops_kernels.entry_tables import entry_table
from tileops_kernels.errors import BuildError, NoImplementationError

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_selection(dtype: torch.dtype) -> None:
    """Each interface has one kernel type for each of CPU and CUDA, whatever the sizes."""
    for device, suffix in ((CPU, "_cpu"), (GPU, "")):
        facts = HOPPER if device is GPU else None
        assert relu_kernels().key_for(ActivationCall(device=device, dtype=dtype, facts=facts)) == f"relu{suffix}"
        alibi = AlibiCall(device=device, num_heads=12, dtype=dtype, facts=facts)
        assert alibi_kernels().key_for(alibi) == f"alibi{suffix}"
        sinusoidal = SinusoidalCall(device=device, width=6, dtype=dtype, facts=facts)
        assert sinusoidal_kernels().key_for(sinusoidal) == f"sinusoidal{suffix}"


def test_other_dtypes_are_refused() -> None:
    """A dtype that no kernel type serves is an error with the reason."""
    with pytest.raises(NoImplementationError, match=r"relu_cpu: serves float16, bfloat16, float32, not float64"):
        relu_kernels().key_for(ActivationCall(device=CPU, dtype=torch.float64))
    with pytest.raises(NoImplementationError, match=r"alibi_cpu: serves float16, bfloat16, float32, not int32"):
        alibi_kernels().key_for(AlibiCall(device=CPU, num_heads=2, dtype=torch.int32))
    with pytest.raises(NoImplementationError, match=r"sinusoidal_cpu: serves .*, not float64"):
        sinusoidal_kernels().key_for(SinusoidalCall(device=CPU, width=2, dtype=torch.float64))


@pytest.mark.parametrize(("dtype", "vector"), [(torch.float16, 8), (torch.bfloat16, 8), (torch.float32, 4)])
def test_element_settings(dtype: torch.dtype, vector: int) -> None:
    """Aligned elements move 16 bytes at a time, others one by one; a thread handles as many of either."""
    assert element_settings(dtype, aligned=True) == ElementSettings(vector=vector, unroll=4, threads=256)
    assert element_settings(dtype, aligned=False) == ElementSettings(vector=1, unroll=4 * vector, threads=256)


@pytest.mark.parametrize(
    ("length", "dtype", "vector"),
    [
        (4096, torch.float16, 8),
        (4096, torch.float32, 4),
        (12, torch.bfloat16, 4),
        (6, torch.float32, 2),
        (7, torch.float16, 1),
    ],
)
def test_row_settings(length: int, dtype: torch.dtype, vector: int) -> None:
    """The access of a row divides it, so that every row begins at a multiple of it."""
    assert row_settings(length, dtype) == RowSettings(vector=vector, threads=128)


def test_sizes_are_not_compiled_in() -> None:
    """No program knows a number of elements, positions or heads; entries differ by what their tables hold."""
    relu = ReluKernel(ActivationCall(device=GPU, dtype=torch.float16, facts=HOPPER)).programs()
    assert {name for program in relu for name, _ in program.arguments} == {
        "dtype",
        "inplace",
        "threads",
        "unroll",
        "vector",
    }
    assert len(set(relu)) == 4
    few, many = (AlibiKernel(AlibiCall(device=GPU, num_heads=n, dtype=torch.float16, facts=HOPPER)) for n in (3, 12))
    assert few.programs() == many.programs()
    assert len(set(few.programs())) == 4
    narrow, wide = (SinusoidalKernel(SinusoidalCall(device=GPU, width=n, dtype=torch.float16)) for n in (64, 4096))
    assert narrow.programs() == wide.programs()


class Launches:
    """Stands for loaded CUDA programs, and keeps what each launch was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[dict[str, object]] = []
        self.arguments: list[tuple[Tensor, ...]] = []
        load_instead(monkeypatch, self.load)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert (arch, owner.partition(" for ")[0]) == (90, "ReluKernel")
        self.programs.append(dict(program.arguments))
        return lambda *given: self.arguments.append(given)


def test_relu_launches_by_alignment_and_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alignment and effect has a program of its own, loaded once; a program gets its elements as one axis."""
    launches = Launches(monkeypatch)
    kernel = ReluKernel(ActivationCall(device=GPU, dtype=torch.float16, facts=HOPPER))
    flat = torch.randn(65).half()
    start = next(k for k in range(8) if flat[k:].data_ptr() % 16 == 0)
    aligned, offset = flat[start : start + 48].view(6, 8), flat[start + 1 : start + 49].view(6, 8)
    for x in (aligned, offset, aligned):
        assert kernel.forward(x, None).shape == (6, 8)
        assert kernel.forward(x, x) is x
    assert [(each["vector"], each["inplace"]) for each in launches.programs] == [
        (8, False),
        (8, True),
        (1, False),
        (1, True),
    ]
    assert [len(given) for given in launches.arguments] == [2, 1] * 3
    assert {(tensor.shape, tensor.stride()) for given in launches.arguments for tensor in given} == {((48,), (1,))}
    assert kernel.forward(aligned[:0], None).shape == (0, 8)
    assert len(launches.arguments) == 6


@needs_nvcc
def test_relu_moves_whole_accesses_at_wide_offsets() -> None:
    """Offsets are 64 bits wide and whole vectors move 16 bytes at a time; a negative zero is not below zero."""
    kernel = ReluKernel(ActivationCall(device=GPU, dtype=torch.bfloat16, facts=HOPPER))
    text = cuda.cross_compile(kernel.program(aligned=True, inplace=False), arch=90)
    assert re.search(r"\*\(uint4\*\)\(Y \+ \(.*\(int64_t\)blockIdx\.x\)", text)
    assert re.search(r"one\[0\] < bfloat16_t\(0x0p\+0f", text)


@needs_nvcc
def test_generative_programs_write_whole_accesses() -> None:
    """Rows of a run-time length are written 16 bytes at a time; sines and cosines are those of float64."""
    alibi = AlibiKernel(AlibiCall(device=GPU, num_heads=12, dtype=torch.float16, facts=HOPPER))
    assert "*(uint4*)(Y + " in cuda.cross_compile(alibi.program(8), arch=90)
    sinusoidal = SinusoidalKernel(SinusoidalCall(device=GPU, width=64, dtype=torch.float16, facts=HOPPER))
    text = cuda.cross_compile(sinusoidal.programs()[0], arch=90)
    assert "double angle[1]" in text
    assert "*(uint4*)(Y + " in text


def test_entries_serve_without_an_op() -> None:
    """A downstream project makes tables of positions and activations from entries alone."""
    x = torch.tensor([-1.0, 2.0])
    relu = relu_kernels().entry(ActivationCall(device=CPU, dtype=torch.float32))
    assert relu(x, None).tolist() == [0.0, 2.0]
    alibi = alibi_kernels().entry(AlibiCall(device=CPU, num_heads=8, dtype=torch.float32))
    assert [alibi(n).shape for n in (0, 1, 5)] == [(8, 0, 0), (8, 1, 1), (8, 5, 5)]
    sinusoidal = sinusoidal_kernels().entry(SinusoidalCall(device=CPU, width=2, dtype=torch.float32))
    assert sinusoidal(1).tolist() == [[0.0, 1.0]]


def test_an_entry_table_is_an_ordinary_tensor() -> None:
    """It is rounded once from float64, also under inference mode and under another default device."""
    call = ActivationCall(device=CPU, dtype=torch.float32)
    with torch.inference_mode(), torch.device("meta"):
        table = entry_table(call, [1 / 3, 2.0], torch.float32)
    assert (table.device, table.is_inference(), table.dtype) == (CPU, False, torch.float32)
    assert table.tolist() == [torch.tensor(1 / 3).item(), 2.0]


def test_no_entry_table_is_made_during_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture's memory belongs to its graph: the first call is refused with one line that asks for a warm-up."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(BuildError) as failure:
        entry_table(AlibiCall(device=GPU, num_heads=1, dtype=torch.float32), [1.0], torch.float32)
    assert str(failure.value) == (
        "AlibiCall: the table of this call is not made yet and a CUDA graph is being captured; expected a warmed-up "
        "call, received the first one; make the same call once before capturing"
    )
