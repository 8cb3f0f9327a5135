"""`Finding`: what conformance found on one case, and the error that lists those that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tileops_testing.errors import CheckFailedError

__all__ = ["Finding", "finish"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One case of one op: whether it passed, failed or does not apply, and why."""

    case: str
    outcome: Literal["passed", "failed", "not applicable"]
    reason: str = ""


def finish(title: str, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings, or raise `CheckFailedError` listing those that failed."""
    failed = [finding for finding in findings if finding.outcome == "failed"]
    if failed:
        lines = "\n".join(f"  {finding.case}: {finding.reason}" for finding in failed)
        raise CheckFailedError(f"{title}: {len(failed)} of {len(findings)} findings failed\n{lines}")
    return tuple(findings)
