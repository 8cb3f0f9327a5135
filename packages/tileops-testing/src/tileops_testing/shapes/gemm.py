"""Edge shapes of the gemm family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileops.manifest.model import WorkloadRow

__all__ = ["ROWS"]


def _row(label: str, m: int, n: int, k: int, *dtypes: str, trans_a: bool = False, trans_b: bool = True) -> WorkloadRow:
    return WorkloadRow(
        label=label,
        some=(),
        dtype_cases=tuple({"T": dtype} for dtype in dtypes),
        values={"trans_a": trans_a, "trans_b": trans_b, "M": m, "N": n, "K": k},
    )


ROWS: Mapping[str, Sequence[WorkloadRow]] = {
    "GemmFwdOp": (
        _row("one-element", 1, 1, 1, "float16", "bfloat16"),
        _row("odd-extents", 65, 33, 47, "float16"),
        _row("odd-terms", 64, 64, 257, "bfloat16", trans_a=True, trans_b=True),
        _row("odd-rows-tn", 63, 64, 64, "bfloat16", trans_a=True, trans_b=False),
        _row("no-terms", 5, 7, 0, "float16"),
        _row("no-rows", 0, 64, 64, "bfloat16"),
    ),
}
