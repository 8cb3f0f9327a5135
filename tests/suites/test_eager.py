"""The eager suite over every implemented op: workload rows and edge shapes, against the reference."""

from __future__ import annotations

import pytest

from tileops_testing.cases import Case
from tileops_testing.plugin import RunSuite
from tileops_testing.suites import EagerSuite


@pytest.mark.op_cases("eager")
def test_eager(op_case: Case, run_suite: RunSuite) -> None:
    """Every case gives the reference's values, an exact record, and what its fake promised, in every layout."""
    checks = run_suite(EagerSuite(), op_case)
    assert {check.outcome for check in checks} <= {"passed", "not applicable"}
    assert checks[0].name == "output"
