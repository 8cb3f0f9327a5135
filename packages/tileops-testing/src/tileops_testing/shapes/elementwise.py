"""Edge shapes of the elementwise family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileops.manifest.model import WorkloadRow

__all__ = ["ROWS"]


def _relu(label: str, shape: Sequence[int], *dtypes: str, inplace: bool = False) -> WorkloadRow:
    return WorkloadRow(
        label=label,
        some=(),
        dtype_cases=tuple({"T": dtype} for dtype in dtypes),
        values={"S": tuple(shape), **({"inplace": True} if inplace else {})},
    )


def _made(label: str, **values: object) -> WorkloadRow:
    return WorkloadRow(label=label, some=(), dtype_cases=({},), values=values)


ROWS: Mapping[str, Sequence[WorkloadRow]] = {
    "ReluFwdOp": (
        _relu("no-axis", [], "float32"),
        _relu("one-element", [1], "float16"),
        _relu("beside-an-access", [3, 5, 7], "float16", "bfloat16", "float32"),
        _relu("inplace-beside-an-access", [3, 5, 7], "float16", "bfloat16", "float32", inplace=True),
        _relu("no-elements", [3, 0], "float32"),
    ),
    "AlibiFwdOp": (
        _made("odd", seq_len=7, num_heads=12),
        _made("one-position", seq_len=1, num_heads=1, out_dtype="bfloat16"),
        _made("even", seq_len=50, num_heads=3, out_dtype="float16"),
    ),
    "SinusoidalFwdOp": (
        _made("one-pair", seq_len=5, d_model=2),
        _made("narrow-access", seq_len=3, d_model=6, out_dtype="float16"),
        _made("one-position", seq_len=1, d_model=64, out_dtype="bfloat16"),
    ),
}
