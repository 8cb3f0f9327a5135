"""Rows of floats that a CPU combines in vector registers: every length, every place of a NaN, every processor."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tileops_kernels.build import compiler
from tileops_kernels.build.cache import CacheFolder
from tileops_kernels.build.cpu import CPUBuilder, load
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.macros.cpu_registers import RUNS, TURN, TURNS, WIDTH

BUILDER = "tileops_kernels.reduction.programs.reduce_cpu"
EDGES = (WIDTH, TURN, TURNS * TURN, RUNS * TURNS * TURN)
LENGTHS = sorted(
    {1, 2, 2 * RUNS * TURNS * TURN + 3 * TURN + 5, *(edge + step for edge in EDGES for step in (-1, 0, 1))}
)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def reduce_rows(operation: str, dtype: torch.dtype, of: str = "value") -> Program:
    name = str(dtype).removeprefix("torch.")
    return Program.of(
        BUILDER, "reduce_rows", operation=operation, of=of, gives="total", source=name, through=name, target="float32"
    )


def reduced(run: CPUFunction, x: Tensor) -> Tensor:
    """What a program makes of the rows of x, which may begin at any element."""
    y = torch.full(x.shape[:1], torch.nan)
    run(x.data_ptr(), y.data_ptr(), *x.shape, 1)
    return y


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("operation", "of"), [("sum", "value"), ("sum", "square"), ("amax", "value"), ("amin", "value")]
)
def test_rows_of_every_length(operation: str, of: str, dtype: torch.dtype) -> None:
    """Lengths beside each size at which the loops change, rows that begin anywhere, against float64."""
    run = load(reduce_rows(operation, dtype, of), owner="test")
    generator = torch.Generator().manual_seed(0)
    for length in LENGTHS:
        x = torch.randn(3 * length + 1, generator=generator).to(dtype)[1:].view(3, length)
        wide = x.double().square() if of == "square" else x.double()
        expected = wide.sum(1) if operation == "sum" else getattr(wide, operation)(1)
        error = (reduced(run, x).double() - expected).abs()
        bound = 1e-6 * wide.abs().sum(1) if operation == "sum" else torch.zeros(3, dtype=torch.float64)
        assert (error <= bound).all(), (length, error, bound)


def test_products_of_every_length() -> None:
    """Factors near one, so that the product of a long row stays finite."""
    run = load(reduce_rows("prod", torch.float32), owner="test")
    generator = torch.Generator().manual_seed(0)
    for length in LENGTHS:
        x = 1 + torch.randn(2, length, generator=generator) / (4 * length**0.5)
        torch.testing.assert_close(reduced(run, x).double(), x.double().prod(1), rtol=1e-7 * length**0.5 + 1e-6, atol=0)


def test_a_long_sum_of_one_sign_keeps_its_digits() -> None:
    """Errors of one sign would add up over 2**24 elements if each were added to the whole."""
    x = torch.full((1, 1 << 24), 0.1)

    total = reduced(load(reduce_rows("sum", torch.float32), owner="test"), x)

    assert abs(total.item() / (float(x[0, 0]) * (1 << 24)) - 1) < 6e-6


@pytest.mark.parametrize("operation", ["amax", "amin"])
def test_a_nan_is_kept_wherever_it_stands(operation: str) -> None:
    """One NaN in a row, at each place of rows that end in each part of the loops."""
    run = load(reduce_rows(operation, torch.float32), owner="test")
    for length in (1, WIDTH + 3, TURN + WIDTH + 1, 2 * TURN):
        x = torch.randn(length, length, generator=torch.Generator().manual_seed(0))
        x[range(length), range(length)] = torch.nan
        assert reduced(run, x).isnan().all()


@pytest.mark.parametrize("operation", ["amax", "amin"])
def test_infinities_stay(operation: str) -> None:
    """Infinities are values like others, beside one another too."""
    run = load(reduce_rows(operation, torch.float32), owner="test")
    x = torch.tensor([[torch.inf] * 70, [-torch.inf] * 70, [torch.inf, -torch.inf] * 35])
    assert torch.equal(reduced(run, x), getattr(x, operation)(1))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names processors of x86-64")
@pytest.mark.parametrize("processor", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("operation", ["sum", "amax", "amin"])
def test_processors_without_wide_registers(
    operation: str, processor: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program of a processor that has no AVX, or AVX2 alone, gives the same values, NaN included."""
    here = load(reduce_rows(operation, torch.float32), owner="test")
    flags = tuple(flag for flag in compiler.FLAGS if not flag.startswith("-march"))
    monkeypatch.setattr(compiler, "FLAGS", (*flags, f"-march={processor}"))
    builder = CPUBuilder(lambda: CacheFolder(tmp_path / "cache"))
    there = builder.load(reduce_rows(operation, torch.float32), owner="test")

    x = torch.randn(64, 5 * TURN + 3, generator=torch.Generator().manual_seed(0))
    x[range(32), range(0, 320, 10)] = torch.nan

    torch.testing.assert_close(reduced(there, x), reduced(here, x), equal_nan=True, rtol=0, atol=0)
