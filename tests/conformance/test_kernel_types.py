"""Checking a kernel type of another distribution: a right one passes, and each wrong one is caught with the reason."""

from __future__ import annotations

import pytest

from tileops.norm import RMSNormFwdOp
from tileops_kernels.kernel import KernelType
from tileops_testing.conformance import check_kernel_type
from tileops_testing.errors import CheckFailedError

from . import kernels
from .kernels import few_cases


def check(kernel_type: KernelType, key: str = "acme") -> list[str]:
    """The outcomes of checking a kernel type of RMSNorm."""
    return [found.outcome for found in check_kernel_type("RMSNormFwdOp", key, kernel_type, cases=few_cases())]


def test_a_right_kernel_type_passes() -> None:
    """Its contract and every case."""
    assert check(kernels.PlainRMSNorm) == ["passed", "passed", "passed"]


def test_a_case_that_it_refuses_does_not_apply() -> None:
    """The refusal is the reason."""
    findings = check_kernel_type("RMSNormFwdOp", "short", kernels.ShortRMSNorm, cases=few_cases())

    assert [found.outcome for found in findings] == ["passed", "passed", "not applicable"]
    assert "refused by short: n is 384, it serves at most 200" in findings[2].reason


@pytest.mark.parametrize(
    ("kernel_type", "reason"),
    [
        (kernels.ForgetsEps, "output: output 0: "),
        (kernels.NarrowIdentity, "entry_for: expected an identity that can key a cache, received [7]"),
        (kernels.UnequalIdentity, "entry_for: expected equal identities for equal calls, received <object"),
        (kernels.WritesInput, "input x, which the call must not write"),
        (kernels.WrongArguments, "expected WrongArguments.forward(self, x, weight) as RMSNormFwdInterface declares it"),
    ],
)
def test_a_wrong_kernel_type_is_caught(kernel_type: KernelType, reason: str) -> None:
    """The error names the kernel type's key, the op, the case and what was found."""
    with pytest.raises(CheckFailedError) as caught:
        check(kernel_type)

    assert "kernel type acme of RMSNormFwdOp on cpu: " in str(caught.value)
    assert reason in str(caught.value)


def test_a_kernel_type_that_serves_no_case_is_caught() -> None:
    """One that refuses everything cannot be checked."""
    with pytest.raises(CheckFailedError) as caught:
        check(kernels.RefusesAll)
    assert "kernel type acme of RMSNormFwdOp on cpu: expected it to serve one of 2 cases, it serves none" in str(
        caught.value
    )
    assert "refused by acme: serves nothing yet" in str(caught.value)


def test_a_key_that_is_taken_by_the_contract_is_caught() -> None:
    """Its contract is checked beside the kernel types that the op has: a second fallback is refused."""
    general = type("General", (kernels.PlainRMSNorm,), {"general": True, "forward": kernels.PlainRMSNorm.forward})
    with pytest.raises(CheckFailedError, match="at most one general kernel type"):
        check(general)


def test_a_kernel_type_under_no_interface_is_caught() -> None:
    """It inherits an interface of the op."""
    with pytest.raises(CheckFailedError, match=r"expected exactly one of \['RMSNormFwdInterface'\] among its bases"):
        check(int)  # type: ignore[arg-type]


def test_what_a_kernel_raises_comes_through() -> None:
    """With a note that names the kernel type and the case."""
    with pytest.raises(ZeroDivisionError, match="no threads") as caught:
        check(kernels.Crashes)

    assert caught.value.__notes__ == ["while Crashes was checked on RMSNormFwdOp-odd-rows-float16"]


def test_checking_registers_nothing() -> None:
    """The op is as it was."""
    check(kernels.PlainRMSNorm)

    assert "acme" not in RMSNormFwdOp((4,)).kernel_table("rms_norm").types
