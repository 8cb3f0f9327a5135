"""The CUDA text of the moe family: whole accesses, wide offsets, warps without barriers, the tensor cores' shapes."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
import torch

from tests.kernels.moe_calls import LAYOUTS, grouped_call
from tests.kernels.test_fused_topk_kernels import CALL as CHOICE
from tests.kernels.test_placement_kernels import call_of
from tests.kernels.test_post_permute_kernels import CALL as SUM
from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.moe.fused_topk import FusedTopKKernel
from tileops_kernels.moe.grouped_gemm import GroupedGemmTMAKernel
from tileops_kernels.moe.interfaces import RowLayout
from tileops_kernels.moe.placement import Placement
from tileops_kernels.moe.post_permute import PostPermuteKernel
from tileops_kernels.moe.pre_permute import PrePermuteKernel

pytestmark = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]"
)


def body(program: Program) -> str:
    """Return the kernel's text without what TileLang includes and declares."""
    text = cuda.cross_compile(program, arch=90)
    return text[text.rindex('extern "C"') :]


def test_rows_are_copied_by_whole_accesses() -> None:
    """A row is read once, 16 bytes at a time, and written alike to each place; places are 64 bits wide."""
    text = body(PrePermuteKernel(call_of(dtype=torch.bfloat16)).program())
    assert text.count("= *(uint4*)(X + ") == 1
    assert text.count("*(uint4*)(Y + ") == 1
    assert "((int64_t)row[0]) * vectors" in text


def test_rows_are_added_from_whole_accesses() -> None:
    """Reads of all rows under way come before the first sum, and the result is one access."""
    text = body(PostPermuteKernel(SUM).program())
    assert text.count("*(uint4*)(X + ") == 1
    assert text.count("*(uint4*)(Y + ") == 1
    assert text.index("*(uint4*)(X + ") < text.index("total[v_1] = (total[v_1] + ")
    assert re.search(r"\(\(int64_t\)row\[a_1\]\) \* vectors", text)


def test_a_choice_needs_no_barrier() -> None:
    """A warp chooses for its token alone, and reduces by single instructions."""
    text = body(FusedTopKKernel(CHOICE).program())
    assert "__syncthreads" not in text
    assert "__shared__" not in text
    assert text.count("tileops_greatest(") == 1
    assert text.count("tileops_least(") == 1


def test_places_are_counted_without_order() -> None:
    """Shared counters alone are added to atomically, and no result of that decides a place."""
    for program in Placement("per_row", 300, 4).cuda_programs():
        text = body(program)
        assert re.findall(r"AtomicAdd\(\(&\((\(\(int\*\)counts\)|counts)\[", text)
        assert text.count("AtomicAdd") == 1
        assert "= AtomicAdd" not in text


SHAPE = re.compile(r"wgmma_ss<[^;]*?kFloat32, (\d+), (\d+), 16,")
"""What one instruction of the tensor cores multiplies: rows of its first operand and of its second."""


def test_few_rows_share_a_multiprocessor() -> None:
    """Two blocks of few rows keep the registers that they begin with; weights are what an instruction has 64 of."""
    text = body(GroupedGemmTMAKernel(grouped_call(layout="masked", tile_rows=32)).program())
    assert "__launch_bounds__(384, 2)" in text
    assert "warpgroup_reg_alloc" not in text
    assert SHAPE.findall(text) == [("64", "32")]


def test_gates_and_their_factors_are_multiplied_as_one() -> None:
    """Both tiles of weights are fetched one below the other, for the widest instruction."""
    text = body(GroupedGemmTMAKernel(grouped_call(activation="silu_and_mul")).program())
    assert SHAPE.findall(text) == [("64", "256")]
    assert text.count("tma_load(B_desc") == 2


@pytest.mark.parametrize(("tile_rows", "layout"), [(16, "ends"), (128, "masked")])
def test_tiles_are_written_by_whole_accesses(tile_rows: int, layout: RowLayout) -> None:
    """Where D's rows are whole accesses, one of them a thread and turn; else element by element."""
    text = body(GroupedGemmTMAKernel(grouped_call(tile_rows=tile_rows, layout=layout)).program())
    assert text.count("tileops_store_access((&(D[") == 1
    assert "if ((n % (int64_t)8) == (int64_t)0)" in text


def test_what_warps_that_fetch_need_is_never_kept_in_an_array() -> None:
    """TileLang gives warps that fetch a copy of each local array, which it does not fill."""
    for layout in LAYOUTS:
        for tile_rows in (16, 128):
            call = grouped_call(layout=layout, tile_rows=tile_rows)
            assert "producer_ws" not in body(GroupedGemmTMAKernel(call).program())


def test_a_schedule_counts_an_expert_in_each_thread() -> None:
    """Threads take an expert each and add up by a scan; their windows are the one loop over experts."""
    text = body(GroupedGemmTMAKernel(grouped_call(layout="per_row")).schedule())
    assert "__launch_bounds__(1024, 1)" in text
    assert "window < ((experts + 1023) >> 10)" in text
    assert text.count("< experts") == 1


@pytest.mark.parametrize("tile_rows", [16, 128])
def test_early_tiles_read_nothing_before_they_wait(tile_rows: int) -> None:
    """The schedule lets them be launched; nothing but their place is read before the wait, nor may loads pass it."""
    schedule, tiles = GroupedGemmTMAKernel(grouped_call(tile_rows=tile_rows)).programs()
    assert "cudaTriggerProgrammaticLaunchCompletion();" in body(schedule)
    signature, inside = body(tiles).split("{", 1)
    before, behind = inside.split("cudaGridDependencySynchronize();")
    assert "S[" in behind
    for access in ("S[", "D[", "A_desc,", "B_desc,"):
        assert access not in before
    assert "__restrict__" not in signature


def test_blocks_that_stay_are_a_program_of_their_own() -> None:
    """It takes what it can use of the settings, and fetches before it multiplies, each by warps of their own."""
    kernel = GroupedGemmTMAKernel(grouped_call())
    kernel.settings = replace(kernel.settings, persistent=True)
    schedule, tiles = kernel.programs()
    assert schedule == GroupedGemmTMAKernel(grouped_call()).programs()[0]
    assert dict(tiles.arguments) == {
        "dtype": "float16",
        "out_dtype": "float16",
        "vector": 8,
        "rows": 128,
        "columns": 256,
        "depth": 64,
        "stages": 4,
        "threads": 256,
        "band": 8,
        "early": True,
    }
    fetching, multiplying = body(tiles).split("} else {\n    tl::warpgroup_reg_alloc<240>")
    assert "tl::tma_load(B_desc" in fetching
    assert "wgmma" not in fetching
    assert "tl::wgmma_ss" in multiplying
    assert "tma_load" not in multiplying
