"""Reduction kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.reduction.interfaces import (
    REDUCE,
    SOFTMAX,
    Contribution,
    Operation,
    Outcome,
    ReduceCall,
    ReduceFwdInterface,
    SoftmaxCall,
    SoftmaxFwdInterface,
)
from tileops_kernels.reduction.reduce import REDUCE_KERNELS
from tileops_kernels.reduction.softmax import SOFTMAX_KERNELS
from tileops_kernels.table import KernelTable

__all__ = [
    "REDUCE",
    "REDUCE_KERNELS",
    "SOFTMAX",
    "SOFTMAX_KERNELS",
    "Contribution",
    "Operation",
    "Outcome",
    "ReduceCall",
    "ReduceFwdInterface",
    "SoftmaxCall",
    "SoftmaxFwdInterface",
    "reduce_kernels",
    "softmax_kernels",
]


def reduce_kernels() -> KernelTable[ReduceCall, ReduceFwdInterface]:
    """A new table of the kernel types of reductions, for use without an op.

    `reduce_kernels().entry(ReduceCall(device=x.device, operation="sum", dtype=x.dtype, result=x.dtype))(x, (0,))`.
    """
    return KernelTable(REDUCE, REDUCE_KERNELS)


def softmax_kernels() -> KernelTable[SoftmaxCall, SoftmaxFwdInterface]:
    """A new table of the softmax kernel types, for use without an op.

    `softmax_kernels().entry(SoftmaxCall(device=x.device, dtype=x.dtype, result=x.dtype))(x, axis)`.
    """
    return KernelTable(SOFTMAX, SOFTMAX_KERNELS)
