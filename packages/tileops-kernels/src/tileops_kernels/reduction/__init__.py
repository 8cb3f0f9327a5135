"""Reduction kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.reduction.argreduce import ARG_REDUCE_KERNELS
from tileops_kernels.reduction.interfaces import (
    ARG_REDUCE,
    REDUCE,
    SCAN,
    SOFTMAX,
    ArgOperation,
    ArgReduceCall,
    ArgReduceFwdInterface,
    Contribution,
    Operation,
    Outcome,
    ReduceCall,
    ReduceFwdInterface,
    ScanCall,
    ScanFwdInterface,
    ScanOperation,
    SoftmaxCall,
    SoftmaxFwdInterface,
)
from tileops_kernels.reduction.reduce import REDUCE_KERNELS
from tileops_kernels.reduction.scan import SCAN_KERNELS
from tileops_kernels.reduction.softmax import SOFTMAX_KERNELS
from tileops_kernels.table import KernelTable

__all__ = [
    "ARG_REDUCE",
    "ARG_REDUCE_KERNELS",
    "REDUCE",
    "REDUCE_KERNELS",
    "SCAN",
    "SCAN_KERNELS",
    "SOFTMAX",
    "SOFTMAX_KERNELS",
    "ArgOperation",
    "ArgReduceCall",
    "ArgReduceFwdInterface",
    "Contribution",
    "Operation",
    "Outcome",
    "ReduceCall",
    "ReduceFwdInterface",
    "ScanCall",
    "ScanFwdInterface",
    "ScanOperation",
    "SoftmaxCall",
    "SoftmaxFwdInterface",
    "arg_reduce_kernels",
    "reduce_kernels",
    "scan_kernels",
    "softmax_kernels",
]


def arg_reduce_kernels() -> KernelTable[ArgReduceCall, ArgReduceFwdInterface]:
    """A new table of the kernel types of positions of extremes, for use without an op.

    `arg_reduce_kernels().entry(ArgReduceCall(device=x.device, operation="argmax", dtype=x.dtype))(x, 0)`.
    """
    return KernelTable(ARG_REDUCE, ARG_REDUCE_KERNELS)


def reduce_kernels() -> KernelTable[ReduceCall, ReduceFwdInterface]:
    """A new table of the kernel types of reductions, for use without an op.

    `reduce_kernels().entry(ReduceCall(device=x.device, operation="sum", dtype=x.dtype, result=x.dtype))(x, (0,))`.
    """
    return KernelTable(REDUCE, REDUCE_KERNELS)


def scan_kernels() -> KernelTable[ScanCall, ScanFwdInterface]:
    """A new table of the kernel types of scans, for use without an op.

    `scan_kernels().entry(ScanCall(device=x.device, operation="sum", dtype=x.dtype, result=x.dtype))(x, axis)`.
    """
    return KernelTable(SCAN, SCAN_KERNELS)


def softmax_kernels() -> KernelTable[SoftmaxCall, SoftmaxFwdInterface]:
    """A new table of the softmax kernel types, for use without an op.

    `softmax_kernels().entry(SoftmaxCall(device=x.device, dtype=x.dtype, result=x.dtype))(x, axis)`.
    """
    return KernelTable(SOFTMAX, SOFTMAX_KERNELS)
