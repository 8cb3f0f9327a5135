"""Pool kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.pool.interfaces import MAX_POOL2D, MaxPool2dCall, MaxPool2dFwdInterface
from tileops_kernels.pool.max_pool import MAX_POOL2D_KERNELS
from tileops_kernels.table import KernelTable

__all__ = ["MAX_POOL2D", "MAX_POOL2D_KERNELS", "MaxPool2dCall", "MaxPool2dFwdInterface", "max_pool2d_kernels"]


def max_pool2d_kernels() -> KernelTable[MaxPool2dCall, MaxPool2dFwdInterface]:
    """A new table of the max pooling kernel types, for use without an op.

    An entry of it is called as `entry(planes, height, width)` with the extents of the output.
    """
    return KernelTable(MAX_POOL2D, MAX_POOL2D_KERNELS)
