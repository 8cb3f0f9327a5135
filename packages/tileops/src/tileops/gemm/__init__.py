"""Gemm ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
    from tileops.gemm.gemm import GemmFwdOp

__all__ = ["GemmFwdOp"]

_MODULES = {"GemmFwdOp": "gemm"}


def __getattr__(name: str) -> object:
    return export(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
