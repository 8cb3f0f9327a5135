"""Norm ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
    from tileops.norm.ada_layer_norm import AdaLayerNormFwdOp, AdaLayerNormZeroFwdOp
    from tileops.norm.batch_norm import BatchNormFwdOp
    from tileops.norm.batch_norm_bwd import BatchNormBwdOp
    from tileops.norm.fused_add_norm import FusedAddLayerNormFwdOp, FusedAddRMSNormFwdOp
    from tileops.norm.group_norm import GroupNormFwdOp, InstanceNormFwdOp
    from tileops.norm.layer_norm import LayerNormFwdOp
    from tileops.norm.rms_norm import RMSNormFwdOp

__all__ = [
    "AdaLayerNormFwdOp",
    "AdaLayerNormZeroFwdOp",
    "BatchNormBwdOp",
    "BatchNormFwdOp",
    "FusedAddLayerNormFwdOp",
    "FusedAddRMSNormFwdOp",
    "GroupNormFwdOp",
    "InstanceNormFwdOp",
    "LayerNormFwdOp",
    "RMSNormFwdOp",
]

_MODULES = {
    "AdaLayerNormFwdOp": "ada_layer_norm",
    "AdaLayerNormZeroFwdOp": "ada_layer_norm",
    "BatchNormBwdOp": "batch_norm_bwd",
    "BatchNormFwdOp": "batch_norm",
    "FusedAddLayerNormFwdOp": "fused_add_norm",
    "FusedAddRMSNormFwdOp": "fused_add_norm",
    "GroupNormFwdOp": "group_norm",
    "InstanceNormFwdOp": "group_norm",
    "LayerNormFwdOp": "layer_norm",
    "RMSNormFwdOp": "rms_norm",
}


def __getattr__(name: str) -> object:
    return export(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
