"""Gemm kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.gemm.gemm import GEMM_KERNELS
from tileops_kernels.gemm.interfaces import GEMM, GemmCall, GemmFwdInterface
from tileops_kernels.table import KernelTable

__all__ = ["GEMM", "GEMM_KERNELS", "GemmCall", "GemmFwdInterface", "gemm_kernels"]


def gemm_kernels() -> KernelTable[GemmCall, GemmFwdInterface]:
    """A new table of the matrix product kernel types, for use without an op.

    `gemm_kernels().entry(GemmCall.of(a, b, trans_a=False, trans_b=True))(a, b)`.
    """
    return KernelTable(GEMM, GEMM_KERNELS)
