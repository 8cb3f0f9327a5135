"""What tileops asks of this backend, checked by its testing kit."""

from __future__ import annotations

import pytest

from plain_torch import RMSNormShortRowsKernel
from tileops.backend import load_failures, registered_targets
from tileops_testing.cases import Case
from tileops_testing.conformance import check_kernel_type, check_target
from tileops_testing.plugin import RunSuite
from tileops_testing.suites import CompileContractSuite

OPS = ("RMSNormFwdOp", "ReluFwdOp", "SoftmaxFwdOp")


def test_it_is_found() -> None:
    """The entry point loads, and what it registers is there."""
    assert load_failures() == ()
    assert [op for op in OPS if "plain_torch" not in registered_targets(op)] == []


@pytest.mark.parametrize("op", OPS)
def test_the_target_conforms(op: str) -> None:
    """Every case of the op gives the reference's values, what the signature promises, and no other effect."""
    findings = check_target("plain_torch", ops=[op])
    assert {finding.outcome for finding in findings} == {"passed"}


def test_the_kernel_type_conforms() -> None:
    """Alone under the op's interface it serves every case that it does not refuse."""
    findings = check_kernel_type("RMSNormFwdOp", "rms_norm_short_rows", RMSNormShortRowsKernel)
    assert {finding.outcome for finding in findings} == {"passed", "not applicable"}


@pytest.mark.op_cases("compile_contract", ["ReluFwdOp"])
def test_compiled_calls(op_case: Case, run_suite: RunSuite) -> None:
    """Under torch.compile a call is one node; that the target serves it says `--tileops-target`, in pyproject.toml."""
    run_suite(CompileContractSuite(backend="aot_eager"), op_case)
