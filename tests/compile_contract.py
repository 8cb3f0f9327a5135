"""The cold compiles: each op with a compile boundary is registered here, and compiled with nothing built before.

A test fails when the ops registered and the implemented ops with a boundary differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from tileops_testing.cases import Case
from tileops_testing.catalog import implemented_ops
from tileops_testing.plugin import RunSuite
from tileops_testing.suites import CompileContractSuite

REGISTERED: Final = (
    "AdaLayerNormFwdOp",
    "AdaLayerNormZeroFwdOp",
    "AllFwdOp",
    "AmaxFwdOp",
    "AminFwdOp",
    "AnyFwdOp",
    "ArgmaxFwdOp",
    "ArgminFwdOp",
    "BatchNormBwdOp",
    "BatchNormFwdOp",
    "CountNonzeroFwdOp",
    "CumprodFwdOp",
    "CumsumFwdOp",
    "FusedAddLayerNormFwdOp",
    "FusedAddRMSNormFwdOp",
    "FusedTopKFwdOp",
    "GemmFwdOp",
    "GroupNormFwdOp",
    "IndexedExpertMLPFwdOp",
    "InstanceNormFwdOp",
    "LayerNormFwdOp",
    "LogSoftmaxFwdOp",
    "LogSumExpFwdOp",
    "LongRoPEFwdOp",
    "MaxPool2dFwdOp",
    "MeanFwdOp",
    "MoEGroupedGemmFwdOp",
    "MoEPermuteAlignFwdOp",
    "MoEPostPermuteFwdOp",
    "MoEPrePermuteFwdOp",
    "ProdFwdOp",
    "RMSNormFwdOp",
    "ReluFwdOp",
    "RoPEFwdOp",
    "RoPELlama31FwdOp",
    "RoPENeoxPositionIdsFwdOp",
    "SharedExpertMLPFwdOp",
    "SoftmaxFwdOp",
    "StdFwdOp",
    "SumFwdOp",
    "VarFwdOp",
    "VarMeanFwdOp",
    "VectorNormFwdOp",
    "YaRNFwdOp",
)
"""The op classes with a cold compile test, sorted."""

COMPOSITES: Final = ("FusedMoEExpertsFwdOp", "FusedMoEFwdOp", "FusedMoESharedExpertFwdOp", "MoEExpertMLPFwdOp")
"""The composites, sorted, whose graph holds their stages' nodes."""


def test_every_op_with_a_boundary_is_registered() -> None:
    """The ops registered here are exactly the implemented ops whose class has a compile boundary."""
    with_boundary = tuple(sorted(op.__name__ for op in implemented_ops() if op.compile_op_names))
    assert not listed_wrongly(with_boundary, REGISTERED, "REGISTERED")


def test_every_composite_is_registered() -> None:
    """The composites registered here are exactly the implemented ones that have a stage with a compile boundary."""
    found = [op for op in implemented_ops() if any(stage.compile_op_names for stage in op.delegate_types.values())]
    assert not listed_wrongly(sorted(op.__name__ for op in found), COMPOSITES, "COMPOSITES")


def listed_wrongly(wanted: Sequence[str], listed: Sequence[str], name: str) -> str:
    """What to do so that a list of this file names exactly the wanted ops, in order; empty where it does."""
    mends = [f"add {op!r}" for op in sorted({*wanted} - {*listed})]
    mends += [f"remove {op!r}, which is no such op" for op in sorted({*listed} - {*wanted})]
    if not mends and list(listed) != sorted(listed):
        mends = ["sort the names"]
    return f"{name} of tests/compile_contract.py: {', '.join(mends)}" if mends else ""


def test_a_list_that_lacks_an_op_says_what_to_do() -> None:
    """The names to add and to remove, and the list that they belong in; nothing where it is right."""
    assert listed_wrongly(["A", "C"], ("B", "C"), "REGISTERED") == (
        "REGISTERED of tests/compile_contract.py: add 'A', remove 'B', which is no such op"
    )
    assert listed_wrongly(["A", "B"], ("B", "A"), "COMPOSITES").endswith("compile_contract.py: sort the names")
    assert listed_wrongly(["A"], ("A",), "REGISTERED") == ""


@pytest.mark.op_cases("compile_contract", REGISTERED, full_size=False)
def test_cold_compile(op_case: Case, run_suite: RunSuite) -> None:
    """Every case compiles cold with fullgraph=True to one node, equals eager, and serves other sizes."""
    checks = run_suite(CompileContractSuite(), op_case)
    assert {check.outcome for check in checks} <= {"passed", "not applicable"}
    assert [check.name for check in checks[:2]] == ["cold", "one node"]


@pytest.mark.op_cases("compile_contract", COMPOSITES, full_size=False)
def test_cold_composite(op_case: Case, run_suite: RunSuite) -> None:
    """Every case of a composite compiles cold to its stages' nodes alone, equals eager, and serves other sizes."""
    checks = run_suite(CompileContractSuite(), op_case)
    assert {check.outcome for check in checks} <= {"passed", "not applicable"}
    assert [check.name for check in checks[:2]] == ["cold", "stages' nodes"]
