"""Kernel types of the rope family: which serves what, their settings, their table, and parts of a head that stay."""

from __future__ import annotations

import math
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.division import divisor32
from tileops_kernels.errors import NoImplementationError
from tileops_kernels.rope import (
    Frequencies,
    InterpolatedFrequencies,
    RescaledFrequencies,
    RoPECall,
    SmoothedFrequencies,
    rope_kernels,
    table_positions,
)
from tileops_kernels.rope.rope import RotationCPUKernel, RotationKernel, RotationSettings, rotation_settings

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def rope_call(
    width: int = 64,
    rotated: int | None = None,
    *,
    dtype: torch.dtype = torch.float16,
    interleaved: bool = False,
    device: torch.device = CPU,
) -> RoPECall:
    return RoPECall(
        device=device,
        width=width,
        rotated=width if rotated is None else rotated,
        interleaved=interleaved,
        frequencies=Frequencies(10000.0),
        positions=4096,
        dtype=dtype,
        facts=HOPPER if device is GPU else None,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_selection(dtype: torch.dtype) -> None:
    """One kernel type serves every width on each of CPU and CUDA."""
    for width in (2, 70, 128):
        assert rope_kernels().key_for(rope_call(width, dtype=dtype)) == "rope_cpu"
        assert rope_kernels().key_for(rope_call(width, dtype=dtype, device=GPU)) == "rope"


def test_other_dtypes_are_refused() -> None:
    """A dtype that no kernel type serves is an error with the reason."""
    with pytest.raises(NoImplementationError, match=r"rope_cpu: serves float16, bfloat16, float32, not float64"):
        rope_kernels().key_for(rope_call(dtype=torch.float64))


@pytest.mark.parametrize(
    ("width", "rotated", "dtype", "vector"),
    [
        (128, 128, torch.bfloat16, 8),
        (128, 128, torch.float32, 4),
        (128, 96, torch.float16, 8),
        (80, 32, torch.float16, 8),
        (70, 70, torch.float16, 1),
        (12, 12, torch.float32, 2),
        (68, 64, torch.float16, 4),
    ],
)
def test_settings_divide_every_part(width: int, rotated: int, dtype: torch.dtype, vector: int) -> None:
    """The access divides both halves of the rotated part and the part beside it."""
    settings = rotation_settings(rope_call(width, rotated, dtype=dtype, device=GPU))
    assert settings == RotationSettings(vector=vector, threads=128)


@pytest.mark.parametrize(
    ("length", "positions"), [(1, 4096), (4096, 4096), (4097, 8192), (8192, 8192), (100_003, 1 << 17)]
)
def test_table_positions(length: int, positions: int) -> None:
    """Lengths up to 4096 share one table, and longer ones a table per doubling."""
    assert table_positions(length) == positions


def test_frequencies_and_positions_are_not_compiled_in() -> None:
    """Calls that differ in how fast pairs turn or in the table's length have the same programs, and other entries."""
    for kernel_type, device in ((RotationCPUKernel, CPU), (RotationKernel, GPU)):
        call = rope_call(device=device)
        other = replace(call, frequencies=RescaledFrequencies(1e4, (2.0,) * 32, 1.5), positions=8192)
        assert kernel_type(call).programs() == kernel_type(other).programs()
        assert kernel_type.entry_for(call)[0] != kernel_type.entry_for(other)[0]


def test_frequencies() -> None:
    """Pair k of n turns by base ** (-k / n); rescaled ones are divided by their factor."""
    assert Frequencies(16.0).of_pairs(4).tolist() == pytest.approx([1.0, 0.5, 0.25, 0.125])
    assert RescaledFrequencies(16.0, (1.0, 2.0, 4.0, 8.0), 1.5).of_pairs(4).tolist() == pytest.approx(
        [1.0, 0.25, 0.0625, 0.015625]
    )
    assert (Frequencies(16.0).amplitude, RescaledFrequencies(16.0, None, 1.5).amplitude) == (1.0, 1.5)
    assert Frequencies(16.0).of_pairs(4).dtype == torch.float64


def test_smoothed_frequencies() -> None:
    """Pairs with 512, 2 and 1 / 128 turns in the context stay, are a mixture of both, and turn 8 times slower."""
    exact = SmoothedFrequencies(256.0**3, 8.0, 1.0, 3.0, 3217).of_pairs(3)
    kept = (3217 / (2 * math.pi * 256) - 1) / 2
    assert exact.tolist() == pytest.approx([1.0, (kept + (1 - kept) / 8) / 256, 1 / 65536 / 8], rel=1e-15)
    assert exact.dtype == torch.float64


def test_interpolated_frequencies() -> None:
    """The ramp runs from the pair before the one that turns often to the one behind that which turns seldom."""
    ramp = InterpolatedFrequencies(2.0**8, 4.0, 1024, 20.0, 3.0, 1.5)
    # A pair k of 8 turns 1024 / (2 pi 2**k) times: 20 times at k = 3.03 and 3 times at k = 5.76
    slower = [0.0, 0.0, 0.0, 0.0, 1 / 3, 2 / 3, 1.0, 1.0]
    expected = [(1 - part + part / 4) / 2**k for k, part in enumerate(slower)]
    assert ramp.of_pairs(8).tolist() == pytest.approx(expected, rel=1e-15)
    assert (ramp.of_pairs(8).dtype, ramp.amplitude) == (torch.float64, 1.5)


def test_a_ramp_without_width_is_a_step() -> None:
    """Where both places are one pair, those up to it stay and those behind it turn slower."""
    step = InterpolatedFrequencies(2.0**8, 4.0, 1, 32.0, 1.0, 1.0)
    assert step.of_pairs(3).tolist() == pytest.approx(
        [1.0, *(frequency / 4 for frequency in (2 ** (-8 / 3), 2 ** (-16 / 3)))]
    )


def rotated_by_hand(x: Tensor, rotated: int, *, interleaved: bool) -> Tensor:
    """The rotation of tokens `[S, H, D]`, pair by pair, in float64."""
    y, half = x.double(), rotated // 2
    for token in range(x.shape[0]):
        for k in range(half):
            angle = token * 10000.0 ** (-k / half)
            a, b = (2 * k, 2 * k + 1) if interleaved else (k, k + half)
            first, second = x[token, :, a].double(), x[token, :, b].double()
            y[token, :, a] = first * math.cos(angle) - second * math.sin(angle)
            y[token, :, b] = second * math.cos(angle) + first * math.sin(angle)
    return y


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "rotated"), [(12, 12), (12, 8), (16, 2), (70, 64)])
def test_columns_past_the_rotated_part_are_copied_bit_by_bit(
    width: int, rotated: int, dtype: torch.dtype, interleaved: bool
) -> None:
    """A partly rotated head turns in its first columns; the others keep every bit, a NaN's payload among them."""
    entry = rope_kernels().entry(rope_call(width, rotated, dtype=dtype, interleaved=interleaved))
    x = torch.randn(5, 3, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    bits = torch.int32 if dtype is torch.float32 else torch.int16
    if rotated < width:
        x.view(bits)[0, 0, -1] = torch.iinfo(bits).max - 5
    y = entry(x, 5, 3)
    assert torch.equal(y.view(bits)[..., rotated:], x.view(bits)[..., rotated:])
    expected = rotated_by_hand(x, rotated, interleaved=interleaved)[..., :rotated]
    unit = torch.finfo(dtype).eps
    assert bool(((y[..., :rotated].double() - expected).abs() <= unit * (1 + expected.abs())).all())


def test_sequences_repeat_positions() -> None:
    """The position of a token is its place in its own sequence."""
    entry = rope_kernels().entry(rope_call(8, dtype=torch.float32))
    x = torch.randn(3, 4, 2, 8)
    assert torch.equal(entry(x, 4, 2)[1], entry(x[1:2].clone(), 4, 2)[0])


def test_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets rows of heads with plain strides at multiples of 16 bytes, and the sizes of a sequence."""
    launched: list[tuple[Tensor | int, ...]] = []
    programs: list[Program] = []

    def load(program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert (arch, owner.partition(" for ")[0]) == (90, "RotationKernel")
        programs.append(program)
        return lambda *given: launched.append(given)

    monkeypatch.setattr(cuda, "load", load)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    kernel = RotationKernel(rope_call(16, device=GPU))
    kernel._table = torch.zeros(2, 4096, 8)
    flat = torch.randn(2 * 5 * 3 * 16 + 8).half()
    start = next(k for k in range(1, 9) if flat[k:].data_ptr() % 16)
    for x in (flat[:480].view(2, 5, 3, 16), flat[start : start + 480].view(2, 5, 3, 16)):
        y = kernel.forward(x, 5, 3)
        source, table, result, *sizes = launched[-1]
        assert (sizes, y.shape) == ([*divisor32(3), *divisor32(5), 5], x.shape)
        assert isinstance(source, Tensor)
        assert isinstance(result, Tensor)
        assert table is kernel._table
        assert (source.shape, source.stride(), source.data_ptr() % 16) == ((30, 16), (16, 1), 0)
        assert torch.equal(source, x.reshape(30, 16))
        assert (result.shape, result.data_ptr()) == ((30, 16), y.data_ptr())
    assert [dict(program.arguments)["index"] for program in programs] == ["int32"]
    assert kernel.forward(flat[:0].view(0, 16), 0, 1).shape == (0, 16)
    assert len(launched) == 2


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize("interleaved", [False, True])
def test_accesses_are_whole_and_places_fast(interleaved: bool) -> None:
    """Both halves move 16 bytes at a time, and the position is found by 32-bit divisions."""
    kernel = RotationKernel(rope_call(128, 96, dtype=torch.bfloat16, interleaved=interleaved, device=GPU))
    text = cuda.cross_compile(kernel.program(wide=False), arch=90)
    assert len(re.findall(r"\*\(uint4\*\)\(Y \+ ", text)) == 3
    assert len(re.findall(r"= \*\(float4\*\)\(TABLE \+ ", text)) == 2
    assert "int position[1]" in text
