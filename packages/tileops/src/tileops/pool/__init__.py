"""Pool ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
    from tileops.pool.max_pool import MaxPool2dFwdOp

__all__ = ["MaxPool2dFwdOp"]

_MODULES = {"MaxPool2dFwdOp": "max_pool"}


def __getattr__(name: str) -> object:
    return export(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
