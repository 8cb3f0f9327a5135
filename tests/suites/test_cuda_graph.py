"""The CUDA-graph suite over every implemented op; without CUDA every op is listed as not run."""

from __future__ import annotations

import pytest

from tileops_testing.cases import Case
from tileops_testing.plugin import RunSuite
from tileops_testing.suites import CudaGraphSuite


@pytest.mark.op_cases("cuda_graph")
def test_cuda_graph(op_case: Case, run_suite: RunSuite) -> None:
    """Every case replays right on new data, after one warm call and no build or wait while it is captured."""
    checks = run_suite(CudaGraphSuite(), op_case)
    assert {check.outcome for check in checks} == {"passed"}
    assert checks[-1].name == "twice in one graph"
