"""Rotary position embedding ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
    from tileops.rope.rope import LongRoPEFwdOp, RoPEFwdOp, RoPELlama31FwdOp, RoPENeoxPositionIdsFwdOp, YaRNFwdOp

__all__ = [
    "LongRoPEFwdOp",
    "RoPEFwdOp",
    "RoPELlama31FwdOp",
    "RoPENeoxPositionIdsFwdOp",
    "YaRNFwdOp",
]

_MODULES = {
    "LongRoPEFwdOp": "rope",
    "RoPEFwdOp": "rope",
    "RoPELlama31FwdOp": "rope",
    "RoPENeoxPositionIdsFwdOp": "rope",
    "YaRNFwdOp": "rope",
}


def __getattr__(name: str) -> object:
    return export(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
