"""Tiles of matrix products on Hopper: which are chosen, that they fit the chip, and what their programs consist of."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest

from tests.kernels.gemm_calls import HOPPER, gemm_call
from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.gemm import GemmCall
from tileops_kernels.gemm.gemm import GemmTMAKernel
from tileops_kernels.gemm.tiles import DIVIDED, WHOLE, divided_tile, predicted, serves, whole_tile
from tileops_kernels.products import ProductSettings, most_rows_of


@pytest.mark.parametrize(
    ("rows", "most"), [(0, 8), (1, 8), (8, 8), (9, 16), (64, 64), (65, 128), (4096, 4096), (1 << 20, 8192)]
)
def test_rows_are_told_by_powers_of_two(rows: int, most: int) -> None:
    """Calls differ by the least power of two that is no less than their rows, from 8 to 8192."""
    assert most_rows_of(rows) == most


def sizes(tile: ProductSettings) -> tuple[int, int]:
    return tile.rows, tile.columns


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (gemm_call(1024, 1024, most_rows=1024), (64, 128, 32)),
        (gemm_call(7168, 2048, most_rows=128), (128, 64, 32)),
        (gemm_call(2112, 7168), (192, 176, 8)),
        (gemm_call(2112, 7168, trans_b=False), (128, 192, 8)),
        (gemm_call(4096, 7168), (128, 256, 8)),
        (gemm_call(7168, 16384), (128, 256, 8)),
        (gemm_call(24576, 1536), (128, 256, 32)),
    ],
)
def test_tiles_are_those_that_measured_best(call: GemmCall, expected: tuple[int, int, int]) -> None:
    """Tiles fill the multiprocessors evenly, and are as large as that allows; a change needs a measurement."""
    tile = whole_tile(call)
    assert (*sizes(tile), tile.band) == expected


def test_the_least_predicted_time_is_chosen() -> None:
    """No tile that serves the call is predicted to take less; fewer multiprocessors take larger ones."""
    for call in (gemm_call(), gemm_call(2112, 7168, most_rows=128), gemm_call(trans_a=True, trans_b=False)):
        for divided, chosen, offered in ((False, whole_tile(call), WHOLE), (True, divided_tile(call), DIVIDED)):
            times = [predicted(call, each, divided=divided) for each in offered if serves(call, each)]
            assert predicted(call, chosen, divided=divided) == min(times)
    small = replace(gemm_call(1024, 1024, most_rows=1024), facts=replace(HOPPER, sm_count=4))
    assert sizes(whole_tile(small)) == (128, 256)


@pytest.mark.parametrize("tile", WHOLE, ids=sizes)
def test_tiles_fit_the_chip(tile: ProductSettings) -> None:
    """Stages, two strips of the result and barriers fit shared memory, and 128 sums of a thread its registers."""
    operands = (tile.rows + tile.columns) * tile.depth * tile.stages * 2
    assert operands + 2 * tile.rows * 128 + 1024 <= HOPPER.smem_budget
    assert tile.rows // (tile.threads // 128) == 64
    assert tile.columns % 16 == 0


def test_rows_of_swizzled_memory_are_whole() -> None:
    """An operand stored by rows or columns has tiles of whole swizzled rows."""
    for tile in (*WHOLE, *DIVIDED):
        assert serves(gemm_call(), tile)
        assert serves(gemm_call(trans_b=False), tile) is (tile.columns % 64 == 0)
        assert serves(gemm_call(trans_a=True), tile)


def test_up_to_128_rows_are_one_tile() -> None:
    """Tiles of fewer rows than a call of up to 128 has do not serve it: each would read the weights."""
    for tile in (*WHOLE, *DIVIDED):
        assert [serves(gemm_call(most_rows=most), tile) for most in (8, 64, 128, 256)] == [
            True,
            True,
            tile.rows >= 128,
            True,
        ]


needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]"
)


def body(program: Program) -> str:
    """Return the kernel's text without what TileLang includes and declares."""
    text = cuda.cross_compile(program, arch=90)
    return text[text.rindex('extern "C"') :]


@needs_nvcc
def test_warps_fetch_or_multiply() -> None:
    """Each by warps of their own, and the accelerator writes what they make."""
    text = body(GemmTMAKernel(gemm_call(4096, 7168)).program())
    fetching, multiplying = text.split("} else {\n    tl::warpgroup_reg_alloc<240>")
    assert fetching.count("tl::tma_load(") == 2
    assert "wgmma" not in fetching
    assert "tma_load" not in multiplying
    assert multiplying.index("tl::wgmma_ss") < multiplying.index("tma_store(")
    assert not re.search(r"\bD\[", text)


@needs_nvcc
def test_one_warp_group_keeps_its_registers() -> None:
    """Where 128 threads multiply, all have as many registers as they need from the beginning."""
    assert "warpgroup_reg" not in body(GemmTMAKernel(gemm_call(1024, 1024, most_rows=1024)).program())
