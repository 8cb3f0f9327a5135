"""Reduction ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
    from tileops.reduction.argreduce import ArgmaxFwdOp, ArgminFwdOp
    from tileops.reduction.log_sum_exp import LogSumExpFwdOp
    from tileops.reduction.reduce import (
        AllFwdOp,
        AmaxFwdOp,
        AminFwdOp,
        AnyFwdOp,
        CountNonzeroFwdOp,
        MeanFwdOp,
        ProdFwdOp,
        SumFwdOp,
        VectorNormFwdOp,
    )
    from tileops.reduction.scan import CumprodFwdOp, CumsumFwdOp
    from tileops.reduction.softmax import LogSoftmaxFwdOp, SoftmaxFwdOp
    from tileops.reduction.variance import StdFwdOp, VarFwdOp, VarMeanFwdOp

__all__ = [
    "AllFwdOp",
    "AmaxFwdOp",
    "AminFwdOp",
    "AnyFwdOp",
    "ArgmaxFwdOp",
    "ArgminFwdOp",
    "CountNonzeroFwdOp",
    "CumprodFwdOp",
    "CumsumFwdOp",
    "LogSoftmaxFwdOp",
    "LogSumExpFwdOp",
    "MeanFwdOp",
    "ProdFwdOp",
    "SoftmaxFwdOp",
    "StdFwdOp",
    "SumFwdOp",
    "VarFwdOp",
    "VarMeanFwdOp",
    "VectorNormFwdOp",
]

_MODULES = {
    "AllFwdOp": "reduce",
    "AmaxFwdOp": "reduce",
    "AminFwdOp": "reduce",
    "AnyFwdOp": "reduce",
    "ArgmaxFwdOp": "argreduce",
    "ArgminFwdOp": "argreduce",
    "CountNonzeroFwdOp": "reduce",
    "CumprodFwdOp": "scan",
    "CumsumFwdOp": "scan",
    "LogSoftmaxFwdOp": "softmax",
    "LogSumExpFwdOp": "log_sum_exp",
    "MeanFwdOp": "reduce",
    "ProdFwdOp": "reduce",
    "SoftmaxFwdOp": "softmax",
    "StdFwdOp": "variance",
    "SumFwdOp": "reduce",
    "VarFwdOp": "variance",
    "VarMeanFwdOp": "variance",
    "VectorNormFwdOp": "reduce",
}


def __getattr__(name: str) -> object:
    return export(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
