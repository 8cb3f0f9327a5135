"""Edge shapes of the pool family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileops.manifest.model import WorkloadRow

__all__ = ["ROWS"]


def _row(label: str, shape: Sequence[int], dtype: str, **window: object) -> WorkloadRow:
    return WorkloadRow(
        label=label,
        some=(),
        dtype_cases=({"T": dtype},),
        values={**window, **dict(zip("NCHW", shape, strict=True))},
    )


ROWS: Mapping[str, Sequence[WorkloadRow]] = {
    "MaxPool2dFwdOp": (
        _row("one-window", [2, 3, 5, 7], "float32", kernel_size=(5, 7)),
        _row("dilated", [1, 3, 17, 19], "float16", kernel_size=(3, 2), stride=1, padding=1, dilation=(2, 3)),
        _row("windows-outside", [2, 2, 3, 3], "bfloat16", kernel_size=2, stride=1, padding=1, dilation=2),
        _row("ceil-drops-last", [2, 2, 4, 4], "float32", kernel_size=1, stride=3, padding=0, ceil_mode=True),
        _row("large-window", [1, 2, 40, 41], "float16", kernel_size=(9, 8), stride=(4, 5), padding=(4, 3)),
        _row("no-channels", [3, 0, 8, 8], "float32", kernel_size=2),
    ),
}
