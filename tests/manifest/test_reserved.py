"""Reserved names: what the generated call and the op class use is refused as the name of an input or a parameter."""

from __future__ import annotations

import ast

import pytest

from tests.manifest.ops import plan_of
from tileops.manifest.reserved import is_lower_name, is_op_name, taken_by_call, taken_by_op
from tileops.op import Op
from tileops.op.boundary_source import boundary_source


@pytest.mark.parametrize("op", ["RMSNormFwdOp", "ReluFwdOp", "ClampTensorFwdOp", "GQAPagedFwdOp", "AddFwdOp"])
def test_names_of_the_generated_call_are_reserved(op: str) -> None:
    """Each name in the generated call is an input of the op, or one that no input may have."""
    plan = plan_of(op)
    tree = ast.parse(boundary_source(plan))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert {name for name in used - set(plan.inputs) if not taken_by_call(name)} == set()


def test_members_of_an_op_are_reserved() -> None:
    """Each public member of the op class is reserved, except dtype, which a parameter sets."""
    assert [name for name in dir(Op) if not name.startswith("_") and not taken_by_op(name)] == ["dtype"]


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("ToyFwdOp", True),
        ("Conv2dBwdOp", True),
        ("FwdOp", False),
        ("toyFwdOp", False),
        ("ÖlFwdOp", False),
        ("Toy", False),
    ],
)
def test_op_names(name: str, right: bool) -> None:
    """An op's name begins with a capital, is ASCII, and has words before FwdOp or BwdOp."""
    assert is_op_name(name) is right


@pytest.mark.parametrize(("name", "right"), [("norm", True), ("a_2", True), ("a b", False), ("is", False), ("", False)])
def test_family_names(name: str, right: bool) -> None:
    """A family's name is an identifier in lower case."""
    assert is_lower_name(name) is right
