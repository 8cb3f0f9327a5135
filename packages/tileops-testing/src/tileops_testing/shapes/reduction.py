"""Edge shapes of the reduction family."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tileops.manifest.model import WorkloadRow

__all__ = ["ROWS"]


def _row(label: str, shape: Sequence[int], *dtypes: str, **parameters: object) -> WorkloadRow:
    return WorkloadRow(
        label=label,
        some=(),
        dtype_cases=tuple({"T": dtype} for dtype in dtypes),
        values={"S": tuple(shape), **parameters},
    )


_EXTREMES = (
    _row("no-axes", [], "float32", dim=-1),
    _row("empty-list", [3, 5], "float16", dim=[], keepdim=True),
    _row("one-element-axes", [5, 1, 3], "bfloat16", "bool", dim=1),
    _row("odd-rows", [7, 9], "float16", "int8", "uint8", "int32", dim=1),
    _row("first-and-last", [2, 5, 3], "float32", "int64", dim=[0, -1]),
    _row("outer-pair", [2, 3, 7], "int16", "bfloat16", dim=[0, 1]),
    _row("no-results", [0, 4], "float16", "int32", dim=1),
)
_LOGICAL = (
    _row("no-axes", [], "float32", dim=-1),
    _row("empty-list", [3, 5], "float16", "bool", dim=[], keepdim=True),
    _row("one-element-axes", [5, 1, 3], "bfloat16", "bool", dim=1),
    _row("odd-rows", [7, 9], "float16", "bool", "int32", "complex64", "complex128", dim=1),
    _row("complex-columns", [7, 9], "complex64", "complex128", dim=0),
    _row("first-and-last", [2, 5, 3], "float32", "int64", "complex64", dim=[0, -1]),
    _row("nothing-reduced", [4, 0], "float16", "bool", "complex128", dim=1),
)
_SOFTMAXES = (
    _row("no-axes", [], "float32", dim=-1),
    _row("one-element-rows", [5, 1], "float16", dim=-1),
    _row("odd-rows", [7, 9], "float16", "bfloat16", "float32", dim=1),
    _row("middle", [3, 5, 4], "bfloat16", "float32", dim=-2),
    _row("implicit-first", [3, 5, 4], "float32"),
    _row("implicit-second", [3, 5], "float16"),
    _row("narrower", [4, 16], "float32", dim=0, dtype="float16"),
)
_SPREADS = (
    _row("no-axes", [], "float32", dim=-1, correction=0.0),
    _row("empty-list", [3, 5], "float16", dim=[], keepdim=True),
    _row("one-element-axes", [5, 1, 3], "bfloat16", dim=1, correction=0.5),
    _row("odd-rows", [7, 9], "float16", "bfloat16", "float32", dim=1),
    _row("odd-columns", [7, 9], "float16", "float32", dim=0, correction=2.5),
    _row("first-and-last", [2, 5, 3], "float32", dim=[0, -1]),
    _row("nothing-to-divide-by", [4, 3], "float32", dim=1, correction=3.0),
    _row("no-results", [0, 4], "float16", dim=1),
)

_POSITIONS = (
    _row("no-axes", [], "float32", dim=-1),
    _row("no-axes-all", [], "float16", keepdim=True),
    _row("one-element-axes", [5, 1, 3], "bfloat16", dim=1),
    _row("odd-rows", [7, 9], "float16", "bfloat16", "float32", dim=1),
    _row("middle", [3, 5, 4], "float32", dim=-2, keepdim=True),
    _row("narrow-columns", [4096, 3], "float16", dim=0),
    _row("all-axes", [3, 5, 4], "float32", keepdim=True),
    _row("no-results", [0, 4], "float16", dim=1),
)

_SCANS = (
    _row("one-axis", [7], "float32", "int8"),
    _row("one-element-axes", [5, 1, 3], "bfloat16", "bool", dim=1),
    _row("odd-rows", [7, 9], "float16", "bfloat16", "float32", "uint8", "int32", dim=1),
    _row("middle", [3, 5, 4], "float32", "int16", dim=-2),
    _row("narrow-columns", [300, 3], "float16", "int64", dim=0),
)

ROWS: Mapping[str, Sequence[WorkloadRow]] = {
    "SumFwdOp": (
        _row("no-axes", [], "float32", dim=-1),
        _row("empty-list", [3, 5], "float16", dim=[], keepdim=True),
        _row("one-element-axes", [5, 1, 3], "bfloat16", dim=1),
        _row("odd-rows", [7, 9], "float16", "int8", "uint8", "int32", dim=1),
        _row("first-and-last", [2, 5, 3], "float32", "int64", dim=[0, -1]),
        _row("outer-pair", [2, 3, 7], "int16", "bfloat16", dim=[0, 1]),
        _row("narrower", [4, 16], "float32", "int64", dim=0, dtype="float16"),
        _row("counted", [4, 16], "bool", "float32", dim=0, dtype="int64"),
        _row("nothing-reduced", [4, 0], "float16", "int32", dim=1),
    ),
    "ProdFwdOp": (
        _row("no-axes", [], "float32", dim=0),
        _row("odd-rows", [7, 9], "float16", "bfloat16", "int64", dim=1),
        _row("middle", [3, 5, 4], "float32", "uint8", "bool", dim=-2, keepdim=True),
        _row("narrower", [4, 16], "float32", dim=1, dtype="bfloat16"),
        _row("nothing-reduced", [0, 4], "float16", "int32", dim=0),
    ),
    "MeanFwdOp": (
        _row("no-axes", [], "float32", dim=-1),
        _row("empty-list", [3, 5], "float16", dim=[], keepdim=True),
        _row("one-element-axes", [5, 1, 3], "bfloat16", dim=1),
        _row("odd-rows", [7, 9], "float16", "bfloat16", dim=1),
        _row("first-and-last", [2, 5, 3], "float32", dim=[0, -1]),
        _row("of-integers", [4, 16], "int64", "bool", "uint8", dim=0, dtype="float32"),
        _row("narrower", [4, 16], "float32", dim=1, dtype="float16"),
    ),
    "AmaxFwdOp": _EXTREMES,
    "AminFwdOp": _EXTREMES,
    "AllFwdOp": _LOGICAL,
    "AnyFwdOp": _LOGICAL,
    "ArgmaxFwdOp": _POSITIONS,
    "ArgminFwdOp": _POSITIONS,
    "CountNonzeroFwdOp": (
        _row("no-axes", [], "float32", dim=-1),
        _row("empty-list", [3, 5], "float16", dim=[]),
        _row("odd-rows", [7, 9], "float16", "bool", "int32", "complex64", "complex128", dim=1),
        _row("complex-columns", [7, 9], "complex64", "complex128", dim=0),
        _row("first-and-last", [2, 5, 3], "float32", "int64", "complex64", dim=[0, -1]),
        _row("nothing-reduced", [4, 0], "bfloat16", "bool", "complex128", dim=1),
    ),
    "VectorNormFwdOp": (
        _row("no-axes", [], "float32", dim=-1),
        _row("empty-list", [3, 5], "float16", dim=[], keepdim=True),
        _row("odd-rows", [7, 9], "float16", "bfloat16", dim=1),
        _row("odd-rows-absolute", [7, 9], "float16", "float32", dim=1, ord=1.0),
        _row("odd-columns-greatest", [7, 9], "bfloat16", "float32", dim=0, ord=math.inf),
        _row("first-and-last", [2, 5, 3], "float32", dim=[0, -1]),
        _row("wider", [4, 16], "float16", "bfloat16", dim=0, dtype="float32"),
        _row("nothing-reduced", [4, 0], "float16", dim=1),
    ),
    "CumsumFwdOp": _SCANS,
    "CumprodFwdOp": _SCANS,
    "SoftmaxFwdOp": _SOFTMAXES,
    "LogSoftmaxFwdOp": _SOFTMAXES,
    "VarFwdOp": _SPREADS,
    "StdFwdOp": _SPREADS,
    "VarMeanFwdOp": _SPREADS,
    "LogSumExpFwdOp": (
        _row("no-axes", [], "float32", dim=-1),
        _row("one-element-axes", [5, 1, 3], "bfloat16", "bool", dim=1),
        _row("odd-rows", [7, 9], "float16", "int8", "uint8", "int32", dim=1),
        _row("first-and-last", [2, 5, 3], "float32", "int64", dim=[0, -1], keepdim=True),
        _row("outer-pair", [2, 3, 7], "int16", "bfloat16", dim=[0, 1]),
        _row("nothing-reduced", [4, 0], "float16", "int32", dim=1),
    ),
}
