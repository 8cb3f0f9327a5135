"""Kernel types of RoPE by stated positions: which serves what, their settings, their steps, and what is compiled in."""

from __future__ import annotations

import math
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch

from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.division import divisor32
from tileops_kernels.errors import NoImplementationError, StorageError
from tileops_kernels.rope import Frequencies, RoPEPositionIdsCall, rope_position_ids_kernels
from tileops_kernels.rope.frequencies import fixed_turns
from tileops_kernels.rope.rope import (
    TokenRotationCPUKernel,
    TokenRotationKernel,
    TokenRotationSettings,
    token_rotation_settings,
)

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def tokens_call(
    width: int = 64,
    rotated: int | None = None,
    *,
    dtype: torch.dtype = torch.float16,
    ids_dtype: torch.dtype = torch.int64,
    device: torch.device = CPU,
) -> RoPEPositionIdsCall:
    return RoPEPositionIdsCall(
        device=device,
        width=width,
        rotated=width if rotated is None else rotated,
        frequencies=Frequencies(10000.0),
        ids_dtype=ids_dtype,
        dtype=dtype,
        facts=HOPPER if device is GPU else None,
    )


@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_selection(dtype: torch.dtype, ids_dtype: torch.dtype) -> None:
    """One kernel type serves every width and both dtypes of positions on each of CPU and CUDA."""
    for width in (2, 70, 128):
        for device, key in ((CPU, "rope_position_ids_cpu"), (GPU, "rope_position_ids")):
            call = tokens_call(width, dtype=dtype, ids_dtype=ids_dtype, device=device)
            assert rope_position_ids_kernels().key_for(call) == key


def test_other_dtypes_are_refused() -> None:
    """A dtype of tokens or positions that no kernel type serves is an error with the reason."""
    with pytest.raises(NoImplementationError, match=r"rope_position_ids_cpu: serves float16, bfloat16, float32, not"):
        rope_position_ids_kernels().key_for(tokens_call(dtype=torch.float64))
    with pytest.raises(NoImplementationError, match=r"serves positions of int32, int64, not int16"):
        rope_position_ids_kernels().key_for(tokens_call(ids_dtype=torch.int16))


@pytest.mark.parametrize(
    ("width", "rotated", "dtype", "vector"),
    [
        (128, 128, torch.bfloat16, 4),
        (128, 128, torch.float32, 4),
        (128, 64, torch.float16, 4),
        (70, 70, torch.float16, 1),
        (71, 64, torch.float16, 1),
        (12, 12, torch.float32, 2),
    ],
)
def test_settings_divide_every_part(width: int, rotated: int, dtype: torch.dtype, vector: int) -> None:
    """The access divides both halves of the rotated part and the part beside it; a thread turns four heads."""
    settings = token_rotation_settings(tokens_call(width, rotated, dtype=dtype, device=GPU))
    assert settings == TokenRotationSettings(vector=vector, threads=128, shared=4)


def test_frequencies_are_not_compiled_in() -> None:
    """Calls that differ in how fast pairs turn have the same programs, and other entries."""
    for kernel_type, device in ((TokenRotationCPUKernel, CPU), (TokenRotationKernel, GPU)):
        call = tokens_call(device=device)
        other = replace(call, frequencies=Frequencies(500000.0))
        assert kernel_type(call).programs() == kernel_type(other).programs()
        assert kernel_type.entry_for(call)[0] != kernel_type.entry_for(other)[0]


def test_an_unrotated_head_needs_no_program() -> None:
    """Where nothing is rotated, nothing is built: the tokens are copied."""
    for kernel_type, device in ((TokenRotationCPUKernel, CPU), (TokenRotationKernel, GPU)):
        kernel = kernel_type(tokens_call(16, 0, device=device))
        x = torch.randn(3, 2, 16).half()
        y = kernel.forward(x, torch.arange(3))
        assert (kernel.programs(), torch.equal(y, x), y.data_ptr() == x.data_ptr()) == ((), True, False)


def pi_of(places: int) -> Fraction:
    """Pi to about `places` binary places, by the Gauss-Legendre iteration on integers."""
    one = 1 << (places + 64)
    a, b, t, p = one, math.isqrt(one * one // 2), one // 4, 1
    while abs(a - b) > 4:
        mean = (a + b) // 2
        a, b, t, p = mean, math.isqrt(a * b), t - p * (a - mean) ** 2 // one, 2 * p
    return Fraction((a + b) ** 2, 4 * t * one)


@pytest.mark.parametrize(
    "angle", [1.0, 10000 ** (-63 / 64), 1e-300, 5e-324, 3.5, 2 * math.pi, 1e22, 1.7976931348623157e308, math.inf]
)
def test_fixed_turns_are_the_nearest(angle: float) -> None:
    """An angle becomes the nearest multiple of 2 ** -64 turn, without whole turns, however large or small it is."""
    exact = Fraction(min(angle, 1.7976931348623157e308)) / (2 * pi_of(1400)) * (1 << 64)
    (found,) = fixed_turns([angle])
    assert -(1 << 63) <= found < 1 << 63
    distance = (exact - found) % (1 << 64)
    assert min(distance, (1 << 64) - distance) <= Fraction(1, 2) + Fraction(1, 1 << 20)


def test_fixed_turns_of_known_angles() -> None:
    """A half turn and a quarter have one bit; no angle is no turn."""
    assert fixed_turns([0.0]) == [0]
    half, quarter = fixed_turns([math.pi, math.pi / 2])
    # math.pi is 1.2e-16 below pi, which is 360 units of 2 ** -64 turn.
    assert (half - (1 << 63), quarter - (1 << 62)) == (-360, -180)


def test_the_last_bits_of_positions_count() -> None:
    """Neighbouring positions near 2 ** 31, and their negatives, turn by neighbouring angles."""
    entry = rope_position_ids_kernels().entry(tokens_call(2, dtype=torch.float32))
    x = torch.tensor([1.0, 0.0]).expand(4, 1, 2).contiguous()
    ids = torch.tensor([(1 << 31) - 1, (1 << 31) - 2, -((1 << 31) - 1), 3])
    y = entry(x, ids)[:, 0].double()
    for row, position in zip(y, ids.tolist(), strict=True):
        assert row.tolist() == pytest.approx([math.cos(position), math.sin(position)], abs=2e-7)


def test_tokens_without_storage_are_refused() -> None:
    """A tensor whose memory was freed is named, and nothing is read."""
    entry = rope_position_ids_kernels().entry(tokens_call(8))
    x, ids = torch.zeros(2, 1, 8).half(), torch.arange(2)
    ids.untyped_storage().resize_(0)
    with pytest.raises(StorageError, match="position_ids has elements and no storage"):
        entry(x, ids)


def test_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets tokens with plain strides at multiples of 16 bytes, positions, steps and the result."""
    launched: list[tuple[Any, ...]] = []
    programs: list[Program] = []

    def load(program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert (arch, owner.partition(" for ")[0]) == (90, "TokenRotationKernel")
        programs.append(program)
        return lambda *given: launched.append(given)

    monkeypatch.setattr(cuda, "load", load)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    kernel = TokenRotationKernel(tokens_call(16, device=GPU))
    kernel._steps = torch.zeros(8, dtype=torch.int64)
    flat, ids = torch.randn(5 * 3 * 16 + 8).half(), torch.arange(6)
    start = next(k for k in range(1, 9) if flat[k:].data_ptr() % 16)
    for x, positions in ((flat[:240].view(5, 3, 16), ids[:5]), (flat[start : start + 240].view(5, 3, 16), ids[1:])):
        y = kernel.forward(x, positions)
        source, given, steps, result, *divisor = launched[-1]
        assert (y.shape, steps is kernel._steps, tuple(divisor)) == (x.shape, True, divisor32(1))
        assert (source.shape, source.stride(), source.data_ptr() % 16) == ((5, 3, 16), (48, 16, 1), 0)
        assert torch.equal(source, x)
        assert (given.stride(), given.data_ptr() % 16) == ((1,), 0)
        assert torch.equal(given, positions)
        assert (result.shape, result.data_ptr()) == ((5, 3, 16), y.data_ptr())
    assert [dict(program.arguments)["index"] for program in programs] == ["int32"]
    assert kernel.forward(flat[:0].view(0, 3, 16), ids[:0]).shape == (0, 3, 16)
    assert len(launched) == 2


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
def test_accesses_are_whole_and_places_fast() -> None:
    """Both halves move 8 bytes at a time without a check of each, and the token is found by a 32-bit division."""
    kernel = TokenRotationKernel(tokens_call(128, 96, dtype=torch.bfloat16, device=GPU))
    text = cuda.cross_compile(kernel.program(wide=False), arch=90)
    assert len(re.findall(r"\*\(uint2\*\)\(Y \+ ", text)) == 3
    assert len(re.findall(r"\*\(uint2\*\)\(X \+ ", text)) == 3
    assert "condval" not in text
    assert "int token[1]" in text
