"""What the tests of a generated plan share: RMSNorm's plan, and an object with its parameters."""

from __future__ import annotations

from types import SimpleNamespace

from tileops.manifest import registry
from tileops.manifest.plan import build_plan
from tileops.manifest.record import ConstructionIndices

PLAN = build_plan(registry.entry("RMSNormFwdOp"))


def constructed(normalized_shape: object = (8,), eps: object = None) -> ConstructionIndices:
    """Return what constructing RMSNormFwdOp with these parameters settles."""
    return PLAN.check_construction(SimpleNamespace(normalized_shape=normalized_shape, eps=eps))
