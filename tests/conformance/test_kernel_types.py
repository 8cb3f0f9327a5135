"""Checking a kernel type of another distribution: a right one passes, and each wrong one is caught with the reason."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plain_torch import RMSNormShortRowsKernel
from tileops.norm import RMSNormFwdOp
from tileops_kernels.kernel import KernelType
from tileops_testing.cases import Case
from tileops_testing.conformance import check_kernel_type
from tileops_testing.errors import CheckFailedError

from . import kernels
from .kernels import cases_of_two_dtypes, cases_of_two_eps, few_cases


def check(kernel_type: KernelType, key: str = "acme", cases: Sequence[Case] = ()) -> list[str]:
    """The outcomes of checking a kernel type of RMSNorm."""
    return [found.outcome for found in check_kernel_type("RMSNormFwdOp", key, kernel_type, cases=cases or few_cases())]


def test_a_right_kernel_type_passes() -> None:
    """Its contract, every case, and each case by an entry that was built for another call of its identity."""
    findings = check_kernel_type("RMSNormFwdOp", "short", RMSNormShortRowsKernel, cases=cases_of_two_dtypes())

    assert [(found.case.removeprefix("RMSNormFwdOp-"), found.outcome) for found in findings] == [
        ("contract", "passed"),
        ("odd-rows-float16", "passed"),
        ("qk-norm-float16", "passed"),
        ("qk-norm-bfloat16", "passed"),
        ("qk-norm-bfloat16 by the entry of qk-norm-float16", "passed"),
    ]


def test_a_case_that_it_refuses_does_not_apply() -> None:
    """The refusal is the reason."""
    findings = check_kernel_type("RMSNormFwdOp", "short", RMSNormShortRowsKernel, cases=few_cases())

    assert [found.outcome for found in findings] == ["passed", "passed", "not applicable"]
    assert "refused by short: serves rows of at most 256 elements; n=384" in findings[2].reason


@pytest.mark.parametrize(
    ("kernel_type", "reasons"),
    [
        (kernels.WrongValues, ["-odd-rows-float16: eager: ", "  output: output 0: "]),
        (
            kernels.WrongDtype,
            ["-odd-rows-float16: RMSNormFwdOp: y: expected float16 [3, 7]", "received float32 [3, 7]"],
        ),
        (
            kernels.WrongStrides,
            ["y: expected float16 [3, 7] on cpu, contiguous, received float16 [3, 7]", "strides [1, 3]"],
        ),
        (kernels.ReturnsInput, ["  effect: output 0 shares storage with x"]),
        (kernels.WritesInput, ["  effect: input x, which the call must not write: "]),
        (
            kernels.RefusesLate,
            ["refusal: expected a reason for a call that is not served, received None: no rows today"],
        ),
        (kernels.ClaimsLongRows, ["1 of 3 findings failed", "-two-axes-bfloat16: eager: ", "  output: output 0: "]),
        (kernels.IgnoresOffset, ["  layouts: offset inputs: output 0 against dense inputs: "]),
        (kernels.KeepsFirstInput, ["  second call: output 0: "]),
        (kernels.ReusesOutput, ["  second call: output 0 of the second call lies in the storage of the first call's"]),
        (kernels.UnhashableIdentity, ["entry_for: expected an identity that can key a cache, received [7]"]),
        (kernels.UnequalIdentity, ["entry_for: expected equal identities for equal calls, received <object"]),
        (kernels.SpeaksInNumbers, ["refusal: expected None or a reason, received 0"]),
        (
            kernels.WrongArguments,
            ["contract: ", "expected WrongArguments.forward(self, x, weight) as RMSNormFwdInterface declares it"],
        ),
    ],
)
def test_a_wrong_kernel_type_is_caught(kernel_type: KernelType, reasons: Sequence[str]) -> None:
    """The error names the kernel type's key, the op, the case, the check and what was found."""
    with pytest.raises(CheckFailedError) as caught:
        check(kernel_type)

    assert str(caught.value).startswith("kernel type acme of RMSNormFwdOp on cpu: ")
    assert [reason for reason in reasons if reason not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("kernel_type", "reason"),
    [
        (
            kernels.LengthLeftOut,
            "qk-norm-float16 by the entry of odd-rows-float16: entry_for: expected another identity",
        ),
        (
            kernels.DtypeLeftOut,
            "qk-norm-bfloat16 by the entry of qk-norm-float16: entry_for: expected another identity",
        ),
    ],
)
def test_an_identity_that_leaves_something_out_is_caught(kernel_type: KernelType, reason: str) -> None:
    """Each case passes by an entry of its own, and fails by the one that its identity finds."""
    with pytest.raises(CheckFailedError) as caught:
        check(kernel_type, cases=cases_of_two_dtypes())

    assert "kernel type acme of RMSNormFwdOp on cpu: 1 of 5 findings failed" in str(caught.value)
    assert reason in str(caught.value)


def test_an_identity_without_a_parameter_is_caught() -> None:
    """The kit's own shapes have rows that differ in nothing else."""
    with pytest.raises(CheckFailedError) as caught:
        check(kernels.EpsLeftOut, cases=cases_of_two_eps())

    assert "large-eps-float16 by the entry of no-batch-axis-float16: entry_for: expected another identity" in str(
        caught.value
    )


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
    general = type(
        "General",
        (RMSNormShortRowsKernel,),
        {"general": True, "preferred_over": frozenset(), "forward": RMSNormShortRowsKernel.forward},
    )
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
    check(RMSNormShortRowsKernel)

    assert "acme" not in RMSNormFwdOp((4,)).kernel_table("rms_norm").types
