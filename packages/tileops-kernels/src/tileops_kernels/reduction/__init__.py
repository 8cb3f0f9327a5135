"""Reduction kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.reduction.argreduce import ARG_REDUCE_KERNELS
from tileops_kernels.reduction.interfaces import (
    ARG_REDUCE,
    LOG_SUM_EXP,
    REDUCE,
    SCAN,
    SOFTMAX,
    VAR_MEAN,
    VARIANCE,
    ArgOperation,
    ArgReduceCall,
    ArgReduceFwdInterface,
    Contribution,
    LogSumExpCall,
    LogSumExpFwdInterface,
    Operation,
    Outcome,
    ReduceCall,
    ReduceFwdInterface,
    ScanCall,
    ScanFwdInterface,
    ScanOperation,
    SoftmaxCall,
    SoftmaxFwdInterface,
    VarianceCall,
    VarianceFwdInterface,
    VarMeanFwdInterface,
)
from tileops_kernels.reduction.log_sum_exp import LOG_SUM_EXP_KERNELS
from tileops_kernels.reduction.reduce import REDUCE_KERNELS
from tileops_kernels.reduction.scan import SCAN_KERNELS
from tileops_kernels.reduction.softmax import SOFTMAX_KERNELS
from tileops_kernels.reduction.variance import VAR_MEAN_KERNELS, VARIANCE_KERNELS
from tileops_kernels.table import KernelTable

__all__ = [
    "ARG_REDUCE",
    "ARG_REDUCE_KERNELS",
    "LOG_SUM_EXP",
    "LOG_SUM_EXP_KERNELS",
    "REDUCE",
    "REDUCE_KERNELS",
    "SCAN",
    "SCAN_KERNELS",
    "SOFTMAX",
    "SOFTMAX_KERNELS",
    "VARIANCE",
    "VARIANCE_KERNELS",
    "VAR_MEAN",
    "VAR_MEAN_KERNELS",
    "ArgOperation",
    "ArgReduceCall",
    "ArgReduceFwdInterface",
    "Contribution",
    "LogSumExpCall",
    "LogSumExpFwdInterface",
    "Operation",
    "Outcome",
    "ReduceCall",
    "ReduceFwdInterface",
    "ScanCall",
    "ScanFwdInterface",
    "ScanOperation",
    "SoftmaxCall",
    "SoftmaxFwdInterface",
    "VarMeanFwdInterface",
    "VarianceCall",
    "VarianceFwdInterface",
    "arg_reduce_kernels",
    "log_sum_exp_kernels",
    "reduce_kernels",
    "scan_kernels",
    "softmax_kernels",
    "var_mean_kernels",
    "variance_kernels",
]


def arg_reduce_kernels() -> KernelTable[ArgReduceCall, ArgReduceFwdInterface]:
    """A new table of the kernel types of positions of extremes, for use without an op.

    `arg_reduce_kernels().entry(ArgReduceCall(device=x.device, operation="argmax", dtype=x.dtype))(x, 0)`.
    """
    return KernelTable(ARG_REDUCE, ARG_REDUCE_KERNELS)


def log_sum_exp_kernels() -> KernelTable[LogSumExpCall, LogSumExpFwdInterface]:
    """A new table of the kernel types of log-sum-exps, for use without an op.

    `log_sum_exp_kernels().entry(LogSumExpCall(device=x.device, dtype=x.dtype, result=x.dtype))(x, (0,))`.
    """
    return KernelTable(LOG_SUM_EXP, LOG_SUM_EXP_KERNELS)


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


def var_mean_kernels() -> KernelTable[VarianceCall, VarMeanFwdInterface]:
    """A new table of the kernel types of variances with means, for use without an op.

    `var_mean_kernels().entry(VarianceCall(device=x.device, dtype=x.dtype))(x, (0,), 1)`.
    """
    return KernelTable(VAR_MEAN, VAR_MEAN_KERNELS)


def variance_kernels() -> KernelTable[VarianceCall, VarianceFwdInterface]:
    """A new table of the kernel types of variances and standard deviations, for use without an op.

    `variance_kernels().entry(VarianceCall(device=x.device, dtype=x.dtype))(x, (0,), 1)`.
    """
    return KernelTable(VARIANCE, VARIANCE_KERNELS)
