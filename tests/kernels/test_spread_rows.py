"""LayerNorm of few rows has a thread for each access to a row, and adds up in the order of the program for many."""

from __future__ import annotations

import re
import shutil

import pytest
import torch

from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.norm import LayerNormCall
from tileops_kernels.norm.layer_norm import LayerNormOnChipKernel

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)


def kernel_for(n: int, dtype: torch.dtype = torch.float16) -> LayerNormOnChipKernel:
    return LayerNormOnChipKernel(
        LayerNormCall(device=torch.device("cuda", 0), n=n, eps=1e-5, dtype=dtype, facts=HOPPER)
    )


@pytest.mark.parametrize(
    ("n", "dtype", "builders"),
    [
        (4096, torch.float16, ["on_chip", "spread"]),
        (8192, torch.bfloat16, ["on_chip", "spread"]),
        (4096, torch.float32, ["on_chip", "spread"]),
        (256, torch.float32, ["on_chip"]),
        (264, torch.float16, ["on_chip"]),
        (1024, torch.float16, ["on_chip"]),
        (16384, torch.float16, ["on_chip"]),
    ],
)
def test_programs_for_few_rows(n: int, dtype: torch.dtype, builders: list[str]) -> None:
    """Each signature has two programs where a block has room for a thread for each of several accesses of a lane."""
    programs = kernel_for(n, dtype).programs()
    signatures = 4
    assert [program.builder for program in programs] == [
        f"row_norm_{builder}" for builder in builders for _ in range(signatures)
    ]
    assert len(set(programs)) == len(programs)


@pytest.mark.parametrize("rows", [1, 264, 265])
def test_few_rows_are_two_for_each_multiprocessor(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs are built by the first call; which one runs depends on the rows alone."""
    kernel = kernel_for(4096)
    loaded: list[str] = []

    def load(program: Program, **_: object) -> str:
        loaded.append(program.builder)
        return loaded[-1]

    monkeypatch.setattr(cuda, "load", load)
    chosen = kernel.load_for((True, True), rows)
    assert str(chosen) == ("row_norm_spread" if rows <= 264 else "row_norm_on_chip")
    assert loaded == ["row_norm_on_chip", "row_norm_spread"]


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize("n", [4096, 5120, 8192])
def test_a_block_has_a_thread_for_each_access(n: int) -> None:
    """Its first threads, as many as a row has among many rows, form the moments."""
    kernel = kernel_for(n)
    lanes = kernel.settings.lanes
    threads = -(-n // (8 * lanes)) * lanes
    text = cuda.cross_compile(kernel.spread_program(True, True), arch=90)
    assert f"__launch_bounds__({threads}, 1)" in text
    assert re.search(rf"< {lanes}\)", text)
