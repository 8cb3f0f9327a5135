"""Asking the registry for an op that the manifest does not have."""

from __future__ import annotations

from tileops.manifest import registry

registry.entry("RMSNormFwdOpp")  # error: arg-type
registry.cases("RMSNorm")  # error: arg-type
