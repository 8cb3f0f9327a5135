"""Reduction ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
    from tileops.reduction.argreduce import ArgmaxFwdOp, ArgminFwdOp
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
    "MeanFwdOp",
    "ProdFwdOp",
    "SoftmaxFwdOp",
    "SumFwdOp",
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
    "MeanFwdOp": "reduce",
    "ProdFwdOp": "reduce",
    "SoftmaxFwdOp": "softmax",
    "SumFwdOp": "reduce",
    "VectorNormFwdOp": "reduce",
}


def __getattr__(name: str) -> object:
    return export(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
