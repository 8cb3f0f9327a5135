"""The CUDA text of programs that read rows of weights once: whole accesses, wide offsets, nothing waits for others."""

from __future__ import annotations

import re
import shutil

import pytest
import torch

from tests.kernels.gemm_calls import gemm_call
from tests.kernels.moe_calls import GPU, HOPPER
from tileops_kernels.build.cuda import cross_compile
from tileops_kernels.gemm.gemm import GemmDotsKernel, GemmPartsKernel
from tileops_kernels.moe import IndexedExpertMLPCall
from tileops_kernels.moe.indexed_expert_mlp import IndexedExpertMLPKernel

pytestmark = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]"
)


def indexed() -> IndexedExpertMLPKernel:
    return IndexedExpertMLPKernel(IndexedExpertMLPCall(device=GPU, vectors=True, dtype=torch.bfloat16, facts=HOPPER))


def assert_reads_weights_once(text: str) -> None:
    """Weights come 16 bytes at a time by offsets of 64 bits, rows likewise, and no barrier stands between warps."""
    assert re.search(r"int64_t offset\w* = .*\(line\[\w+\] \* k\)", text)
    assert re.search(r"tileops_read_once\(\(&\(w\[.*\]\)\), \(&\(W\[offset\w*\]\)\)\)", text)
    assert re.search(r"= \*\(uint4\*\)\(X \+ .*\(row\[\w+\] \* k\)", text)
    assert not re.search(r"\bW\[\(", text)
    assert "__syncthreads" not in text
    assert "__launch_bounds__(256, 2)" in text


def test_experts_rows_are_read_once() -> None:
    """Both products of indexed experts read weights as they lie; ids are looked at by whole warps."""
    for program in indexed().programs()[:2]:
        text = cross_compile(program, arch=90)
        assert_reads_weights_once(text)
        assert "__ballot_sync((uint)4294967295, " in text


def test_weighted_sums_are_whole_accesses() -> None:
    """Four results are read at a time from each of four pairs, and four are written."""
    text = cross_compile(indexed().programs()[2], arch=90)
    assert re.search(r"= \*\(float4\*\)\(Y \+ .*\* n\)", text)
    assert re.search(r"\*\(uint2\*\)\(D \+ .*\(\(int64_t\)blockIdx\.x\) \* n\)", text)


def test_a_handful_of_rows_reads_weights_once() -> None:
    """The product of a handful of rows has no barrier and no narrow offset."""
    assert_reads_weights_once(cross_compile(GemmDotsKernel(gemm_call()).programs()[0], arch=90))


def test_parts_begin_at_their_terms() -> None:
    """Blocks fetch the terms of their part by the tensor memory accelerator, and write float32 beside one another."""
    multiply, add = GemmPartsKernel(gemm_call()).programs()
    text = cross_compile(multiply, arch=90)
    assert len(re.findall(r"tl::tma_load\([AB]_desc, .*\* each\)", text)) == 2
    assert re.search(r"\*\(float2\*\)\(P \+ .*\* n\) \* m\)", text)
    assert re.search(r"\*\(float4\*\)\(P \+ .*\(int64_t\)part\) \* count\)", cross_compile(add, arch=90))
