"""Norm kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.norm.interfaces import RMS_NORM, LayerNormCall, RMSNormFwdInterface
from tileops_kernels.norm.rms_norm import RMS_NORM_KERNELS
from tileops_kernels.table import KernelTable

__all__ = ["RMS_NORM", "RMS_NORM_KERNELS", "LayerNormCall", "RMSNormFwdInterface", "rms_norm_kernels"]


def rms_norm_kernels() -> KernelTable[LayerNormCall, RMSNormFwdInterface]:
    """A new table of the RMSNorm kernel types, for use without an op.

    `rms_norm_kernels().entry(LayerNormCall(device=x.device, n=4096, eps=1e-6, dtype=x.dtype))(x, weight)`.
    """
    return KernelTable(RMS_NORM, RMS_NORM_KERNELS)
