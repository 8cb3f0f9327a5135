"""The CUDA text of the moe family's permutations and choices: whole accesses, wide offsets, warps without barriers."""

from __future__ import annotations

import re
import shutil

import pytest
import torch

from tests.kernels.test_fused_topk_kernels import CALL as CHOICE
from tests.kernels.test_placement_kernels import call_of
from tests.kernels.test_post_permute_kernels import CALL as SUM
from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.moe.fused_topk import FusedTopKKernel
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
