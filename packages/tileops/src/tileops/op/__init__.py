"""The op layer: the base class of ops, one call of an op, and its compile boundary."""

from __future__ import annotations

from tileops.op.base import Op

__all__ = ["Op"]
