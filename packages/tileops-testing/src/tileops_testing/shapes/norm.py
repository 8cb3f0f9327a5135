"""Edge shapes of the norm family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tileops.manifest.model import WorkloadRow

__all__ = ["ROWS"]


def _row(
    label: str,
    normalized_shape: Sequence[int],
    batch: Sequence[int],
    *dtypes: str,
    some: tuple[str, ...] = ("weight",),
    **parameters: float,
) -> WorkloadRow:
    return WorkloadRow(
        label=label,
        some=some,
        dtype_cases=tuple({"T": dtype} for dtype in dtypes),
        values={**parameters, "normalized_shape": tuple(normalized_shape), "B": tuple(batch)},
    )


def _maps(
    label: str, shape: Sequence[int], *dtypes: str, some: tuple[str, ...] = (), **parameters: float
) -> WorkloadRow:
    batch, channels, *length = shape
    return WorkloadRow(
        label=label,
        some=some,
        dtype_cases=tuple({"T": dtype} for dtype in dtypes),
        values={**parameters, "B": batch, "C": channels, "L": tuple(length)},
    )


def _tokens(label: str, extent: int, batch: Sequence[int], *dtypes: str, **parameters: float) -> WorkloadRow:
    return WorkloadRow(
        label=label,
        some=(),
        dtype_cases=tuple({"T": dtype} for dtype in dtypes),
        values={**parameters, "N": extent, "B": tuple(batch)},
    )


def _weighted(*rows: WorkloadRow, always: bool = False) -> tuple[WorkloadRow, ...]:
    """The rows with a dtype of weights: that of the activations, and for half precision float32 too."""
    return tuple(
        WorkloadRow(label=row.label, some=row.some, dtype_cases=tuple(_weights_of(row.dtype_cases)), values=row.values)
        if always or {"weight", "bias"} & set(row.some)
        else row
        for row in rows
    )


def _weights_of(cases: Sequence[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
    for case in cases:
        for weights in dict.fromkeys((case["T"], "float32")):
            yield {**case, "W": weights}


_LAST_AXIS = (
    _tokens("one-element-rows", 1, [5], "float32"),
    _tokens("odd-rows", 7, [3], "float16"),
    _tokens("one-row", 300, [1], "bfloat16", "float32"),
    _tokens("below-a-tile", 4095, [33], "float16", "float32"),
    _tokens("no-batch-axis", 128, [], "float16"),
    _tokens("large-eps", 128, [5], "float16", eps=0.25),
    _tokens("three-batch-axes", 64, [2, 3, 5], "bfloat16"),
    _tokens("long-rows", 40000, [3], "float16"),
    _tokens("no-rows", 4096, [0], "float16"),
    _tokens("no-elements", 0, [3], "float32"),
)
_STATISTICS = ("running_mean", "running_var")
_AFFINE = ("weight", "bias")

ROWS: Mapping[str, Sequence[WorkloadRow]] = {
    "AdaLayerNormFwdOp": _LAST_AXIS,
    "AdaLayerNormZeroFwdOp": _LAST_AXIS,
    "BatchNormBwdOp": (
        _maps("columns", [33, 300], "float32", "float16"),
        _maps("odd-planes", [3, 5, 7, 7], "float32", "bfloat16"),
        _maps("one-channel", [4, 1, 33], "float16", "float32"),
        _maps("one-value", [1, 3, 1, 1], "float32"),
        _maps("one-entry", [1, 2, 1025], "float16"),
        _maps("volumes", [2, 3, 4, 5, 6], "bfloat16"),
        _maps("large-channels", [2, 3, 96, 256], "float32", "bfloat16"),
        _maps("no-entries", [0, 3, 4], "float32"),
        _maps("no-length", [2, 3, 0], "float16"),
    ),
    "BatchNormFwdOp": (
        _maps("columns-train", [33, 300], "float32", "float16", training=True, some=(*_STATISTICS, *_AFFINE)),
        _maps("columns-eval", [33, 300], "float32", "bfloat16", training=False, some=(*_STATISTICS, "bias")),
        _maps("odd-planes-train", [3, 5, 7, 7], "float32", "bfloat16", training=True, some=("weight",)),
        _maps("odd-planes-eval", [3, 5, 7, 7], "float16", training=False, some=(*_STATISTICS, "weight")),
        _maps("large-eps-train", [3, 5, 7, 7], "float32", training=True, some=_STATISTICS, eps=0.25, momentum=0.5),
        _maps("large-eps-eval", [3, 5, 7, 7], "float16", training=False, some=_STATISTICS, eps=0.25),
        _maps("one-entry", [1, 2, 1025], "float16", training=True, some=(*_STATISTICS, *_AFFINE)),
        _maps("one-value-eval", [1, 3, 1, 1], "float32", training=False, some=_STATISTICS),
        _maps("volumes", [2, 3, 4, 5, 6], "bfloat16", training=True, some=("bias",)),
        _maps("large-channels", [2, 3, 96, 256], "bfloat16", training=True, some=(*_STATISTICS, *_AFFINE)),
        _maps("no-entries-train", [0, 3, 4], "float32", training=True, some=_STATISTICS),
    ),
    "FusedAddLayerNormFwdOp": _weighted(*_LAST_AXIS, always=True),
    "FusedAddRMSNormFwdOp": _weighted(*_LAST_AXIS, always=True),
    "GroupNormFwdOp": _weighted(
        _maps("one-group", [3, 6, 7, 7], "float32", "float16", num_groups=1, some=_AFFINE),
        _maps("channels-alone", [33, 12], "float32", "bfloat16", num_groups=3, some=_AFFINE),
        _maps("large-eps", [33, 12], "float32", num_groups=3, eps=0.25),
        _maps("group-per-channel", [2, 5, 33], "float16", num_groups=5, some=("weight",)),
        _maps("one-entry", [1, 4, 1025], "bfloat16", num_groups=2, some=("bias",)),
        _maps("volumes", [2, 4, 3, 5, 7], "float32", num_groups=2, some=_AFFINE),
        _maps("large-groups", [2, 8, 64, 256], "float16", num_groups=2, some=_AFFINE),
        _maps("no-entries", [0, 4, 8], "float32", num_groups=2, some=_AFFINE),
        _maps("no-length", [2, 4, 0], "float32", num_groups=2),
    ),
    "InstanceNormFwdOp": _weighted(
        _maps("odd-maps", [3, 5, 7, 7], "float32", "bfloat16", some=("weight",)),
        _maps("odd-maps-moving", [3, 5, 7, 7], "float16", some=(*_STATISTICS, "bias")),
        _maps("large-eps-moving", [3, 5, 7, 7], "float16", some=_STATISTICS, eps=0.25, momentum=0.5),
        _maps("one-value-running", [2, 3, 1], "float32", use_input_stats=False, some=_STATISTICS),
        _maps("one-entry", [1, 2, 1025], "float16", some=(*_STATISTICS, *_AFFINE)),
        _maps("volumes", [2, 3, 4, 5, 6], "bfloat16", some=("bias",)),
        _maps("no-entries", [0, 3, 4], "float32", some=_STATISTICS),
    ),
    "LayerNormFwdOp": _weighted(
        _row("one-element-rows", [1], [5], "float32", some=_AFFINE),
        _row("odd-rows", [7], [3], "float16", some=_AFFINE),
        _row("below-a-tile", [4095], [33], "float16", "float32", some=_AFFINE),
        _row("two-axes", [16, 24], [2, 3], "bfloat16", some=("bias",)),
        _row("no-batch-axis", [128], [], "float16"),
        _row("large-eps", [128], [5], "float16", eps=0.25),
        _row("no-rows", [4096], [0], "float16", some=_AFFINE),
    ),
    "RMSNormFwdOp": _weighted(
        _row("one-element-rows", [1], [5], "float32"),
        _row("odd-rows", [7], [3], "float16"),
        _row("below-a-tile", [4095], [33], "float16", "float32"),
        _row("two-axes", [16, 24], [2, 3], "bfloat16"),
        _row("no-batch-axis", [128], [], "float16"),
        _row("large-eps", [128], [5], "float16", eps=0.25),
        _row("no-rows", [4096], [0], "float16"),
    ),
}
