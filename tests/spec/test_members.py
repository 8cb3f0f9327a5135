"""The members of Op: those for callers, those for subclasses, and no others without an underscore."""

from __future__ import annotations

import inspect

import torch

from tileops.op import Op

from .composites import ones
from .toys import DoubleFwdOp

FOR_CALLERS = {
    "serving_target",
    "last_call",
    "eval_roofline",
    "request_tune",
    "kernel_config",
    "kernel_table",
    "iter_kernels",
    "built_entries",
    "assembled",
    "collective",
    "held_delegates",
    "signature_source",
    "shared",
    "compile_op_names",
    "dtype",
}
FOR_SUBCLASSES = {
    "kernel_types",
    "interfaces",
    "delegate_types",
    "injected_parameters",
    "forward",
    "computation",
    "kernel_for",
    "key_for",
    "delegate_for",
    "parameter_on",
    "roof_key",
}


def test_the_public_members_are_these() -> None:
    """A new member without an underscore is a promise: it is listed here and documented."""
    public = {name for name in vars(Op) if not name.startswith("_")}

    assert public == FOR_CALLERS | FOR_SUBCLASSES
    assert [name for name in public if inspect.isfunction(getattr(Op, name)) and not getattr(Op, name).__doc__] == []


def test_target_is_keyword_only() -> None:
    """Of every constructor the last parameter, None by default."""
    for signature in (inspect.signature(Op.__init__), inspect.signature(DoubleFwdOp)):
        target = signature.parameters["target"]
        assert (target.kind, target.default) == (inspect.Parameter.KEYWORD_ONLY, None)


def test_an_op_is_no_module() -> None:
    """It holds no weights."""
    assert not isinstance(DoubleFwdOp(), torch.nn.Module)


def test_the_compute_unit_is_that_of_plain_arithmetic() -> None:
    """Until an op class names another."""
    assert DoubleFwdOp().roof_key() == "cuda_core.fp32"


def test_the_generated_source_can_be_read() -> None:
    """The checks of the class, as tracebacks show them."""
    assert "def check_call" in DoubleFwdOp.signature_source()


def test_the_state_of_an_instance_stands_in_three_groups() -> None:
    """What is written once, what a selection binds, and what accumulates; a call adds no attribute to the instance."""
    op = DoubleFwdOp()
    before = set(vars(op))
    op(ones(2))

    assert set(vars(op)) == before == {"_construction", "_binding", "_running", "_effects", "_instance_key"}
