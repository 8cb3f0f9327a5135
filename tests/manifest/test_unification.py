"""Unification: what a shape is made of is found again, by the interpreter and by the generated check alike."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tileops.errors import ExpressionError, ShapeError
from tileops.manifest.expressions import parse_expression, parse_shape
from tileops.manifest.parse import parse_entry
from tileops.manifest.plan import build_plan
from tileops.manifest.source import evaluate
from tileops.manifest.unification import linear, unify

AXES = ["A", "B", "A", "3", "2 * C + 1", "4 * D", "E + A", "*S", "*P", "*(2, 3)"]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[str], dict[str, object]]:
    """Return the axes of a shape and a value of each index."""
    axes = draw(st.lists(st.sampled_from(AXES), max_size=5))
    spliced = [axis for axis in axes if axis == "*S"]
    kept = [axis for place, axis in enumerate(axes) if axis != "*S" or axes.index("*S") == place]
    assert len(spliced) >= len([axis for axis in kept if axis == "*S"])
    values: dict[str, object] = {name: draw(st.integers(0, 4)) for name in "ABCDE"}
    values["S"] = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    values["P"] = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    return kept, values


@settings(deadline=None, max_examples=150)
@given(shapes())
def test_solving_inverts_instantiating(drawn: tuple[list[str], dict[str, object]]) -> None:
    """A shape made from values gives those values again, and the generated check agrees with the interpreter."""
    axes, values = drawn
    text = f"[{', '.join(axes)}]"
    items = parse_shape(text)
    assert isinstance(items, tuple)
    shape = evaluate(parse_expression(f"({', '.join(axes)},)" if axes else "()"), values, {})
    assert isinstance(shape, tuple)
    if "E + A" in axes and "A" not in axes[: axes.index("E + A")]:
        with pytest.raises(ExpressionError, match=r"leaves A, E without a value|does not fit|is \d+, received"):
            unify(items, shape, {"P": values["P"]}, {})
        return
    found = unify(items, shape, {"P": values["P"]}, {})
    assert found == {name: values[name] for name in found}
    entry = parse_entry(
        {
            "signature": {
                "forall": {**dict.fromkeys("ABCDE", "Dim"), "S": "Shape"},
                "params": {"P": {"type": "tuple[int, ...]"}},
                "inputs": {"x": {"dtype": "float32", "shape": text}},
                "outputs": {"y": {"dtype": "float32", "shape": "[]"}},
            }
        },
        "ToyFwdOp",
        family="toy",
    )
    plan = build_plan(entry)
    settled = plan.check_construction(SimpleNamespace(P=values["P"]))
    record = plan.check_call(settled, torch.empty(shape, device="meta"))
    assert {name: record.indices[name] for name in found} == found
    wrong = (*shape, 1)
    try:
        again = unify(items, wrong, {"P": values["P"]}, {})
    except ExpressionError:
        with pytest.raises(ShapeError, match="ToyFwdOp: x: expected shape"):
            plan.check_call(settled, torch.empty(wrong, device="meta"))
    else:
        record = plan.check_call(settled, torch.empty(wrong, device="meta"))
        assert {name: record.indices[name] for name in again} == again


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("[A, A]", (2, 3), "the axis A is 2, received 3"),
        ("[2 * A]", (3,), "the axis 2 * A has no A for extent 3"),
        ("[A + 4]", (3,), "the axis A + 4 has no A for extent 3"),
        ("[A * B]", (6,), "the axis A * B leaves A, B without a value"),
        ("[A // 2]", (6,), "the axis A // 2 cannot be solved for A"),
        ("[3 - A]", (1,), "the axis 3 - A cannot be solved for A"),
        ("[A]", (1, 2), "the shape [1, 2] does not fit [A]"),
        ("[A, B]", (1,), "the shape [1] does not fit [A, B]"),
        ("[*S, *Q]", (1,), "*Q and another splice before it have no known length"),
        ("[*(1, 2)]", (1, 3), "the shape [1, 3] does not fit [*(1, 2)]"),
    ],
)
def test_a_shape_that_does_not_fit(text: str, shape: tuple[int, ...], message: str) -> None:
    """A shape that does not fit, or that leaves a name open, raises the language's error."""
    items = parse_shape(text)
    assert isinstance(items, tuple)
    with pytest.raises(ExpressionError) as caught:
        unify(items, shape, {}, {})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", (1, 0)),
        ("3 * A + B", (3, 5)),
        ("2 * (A + B) - A", (1, 10)),
        ("-(B - A)", (1, -5)),
        ("B", (0, 5)),
        ("A * A", None),
        ("A // 2", None),
        ("B * A", None),
    ],
)
def test_linear_forms(text: str, expected: tuple[int, int] | None) -> None:
    """An axis is linear in an index when it is a constant times it plus what does not read it."""
    found = linear(parse_expression(text), "A")
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (found[0], evaluate(found[1], {"B": 5}, {})) == expected
