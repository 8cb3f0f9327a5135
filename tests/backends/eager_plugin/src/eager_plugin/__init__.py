"""Imports tileops at its top, constructs an op while it is imported, and another while it registers."""

from __future__ import annotations

from tileops.backend import BackendRegistry
from tileops.norm import RMSNormFwdOp

SEEN: list[tuple[str, ...]] = []
OP = RMSNormFwdOp((4,))
SEEN.append(tuple(OP.kernel_table("rms_norm").types))


def register(registry: BackendRegistry) -> None:
    """Bring a target, after constructing an op."""
    other = RMSNormFwdOp((4,))
    SEEN.append(tuple(other.kernel_table("rms_norm").types))
    registry.register_kernel_builder("RMSNormFwdOp", "eager", lambda *specs, **parameters: lambda x, weight: x * 0)
