"""Reduction ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
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
    from tileops.reduction.softmax import LogSoftmaxFwdOp, SoftmaxFwdOp

__all__ = [
    "AllFwdOp",
    "AmaxFwdOp",
    "AminFwdOp",
    "AnyFwdOp",
    "CountNonzeroFwdOp",
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
    "CountNonzeroFwdOp": "reduce",
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
