"""Backends: how another distribution serves an op, and how a target is selected."""

from __future__ import annotations

from tileops.backend.targets import BUILTIN
from tileops.errors import UnknownTargetError
from tileops_kernels.errors import BackendError, OpNotAvailableError

__all__ = ["BUILTIN", "BackendError", "OpNotAvailableError", "UnknownTargetError"]
