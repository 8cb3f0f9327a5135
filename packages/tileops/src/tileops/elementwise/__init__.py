"""Elementwise ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
    from tileops.elementwise.activation import ReluFwdOp
    from tileops.elementwise.generative import AlibiFwdOp, SinusoidalFwdOp

__all__ = ["AlibiFwdOp", "ReluFwdOp", "SinusoidalFwdOp"]

_MODULES = {"AlibiFwdOp": "generative", "ReluFwdOp": "activation", "SinusoidalFwdOp": "generative"}


def __getattr__(name: str) -> object:
    return export(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
