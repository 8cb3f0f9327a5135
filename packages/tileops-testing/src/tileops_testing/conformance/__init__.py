"""Conformance: what a kernel type or a target of another distribution must satisfy, for its author to run."""

from __future__ import annotations

from tileops_testing.conformance.findings import Finding
from tileops_testing.conformance.kernel_types import check_kernel_type
from tileops_testing.conformance.targets import check_target

__all__ = ["Finding", "check_kernel_type", "check_target"]
