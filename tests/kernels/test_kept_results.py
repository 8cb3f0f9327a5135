"""How norms and softmaxes write results: by a priority that their size decides when they run, 16 bytes at a time."""

from __future__ import annotations

import shutil

import pytest
import torch

from tileops_kernels.build import cuda
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.macros.cuda_rows import RESIDENT
from tileops_kernels.norm import GroupNormCall, LayerNormCall
from tileops_kernels.norm.group_norm import GroupNormNarrowKernel
from tileops_kernels.norm.layer_norm import LayerNormOnChipKernel

pytestmark = pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)

CUDA = torch.device("cuda", 0)
HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("n", [128, 4096])
def test_the_size_of_the_result_decides(n: int, dtype: torch.dtype) -> None:
    """The rows of a call are compared with those that L2 holds, and every vector is written by what that gives."""
    call = LayerNormCall(device=CUDA, n=n, eps=1e-5, dtype=dtype, facts=HOPPER)
    text = cuda.cross_compile(LayerNormOnChipKernel(call).program(True, True), arch=90)

    assert f"tileops_result_policy(((int)((int64_t){RESIDENT // (n * dtype.itemsize)} < m)))" in text
    assert "tileops_write_result((&(Y[" in text
    assert "*(uint4*)(Y" not in text


def test_narrow_accesses_have_no_priority() -> None:
    """Accesses of less than 16 bytes are written as they are."""
    call = GroupNormCall(device=CUDA, n=8 * 36, span=8, eps=1e-5, dtype=torch.float16, facts=HOPPER)
    text = cuda.cross_compile(GroupNormNarrowKernel(call).program(True, True), arch=90)

    assert "tileops_write_result((&(Y[" not in text
    assert "(Y + " in text
