"""Edge shapes of the norm family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileops.manifest.model import WorkloadRow

__all__ = ["ROWS"]


def _row(
    label: str, normalized_shape: Sequence[int], batch: Sequence[int], *dtypes: str, weight: bool = True
) -> WorkloadRow:
    return WorkloadRow(
        label=label,
        some=("weight",) if weight else (),
        dtype_cases=tuple({"T": dtype} for dtype in dtypes),
        values={"normalized_shape": tuple(normalized_shape), "B": tuple(batch)},
    )


ROWS: Mapping[str, Sequence[WorkloadRow]] = {
    "RMSNormFwdOp": (
        _row("one-element-rows", [1], [5], "float32"),
        _row("odd-rows", [7], [3], "float16"),
        _row("below-a-tile", [4095], [33], "float16", "float32"),
        _row("two-axes", [16, 24], [2, 3], "bfloat16"),
        _row("no-batch-axis", [128], [], "float16"),
        _row("no-rows", [4096], [0], "float16"),
    ),
}
