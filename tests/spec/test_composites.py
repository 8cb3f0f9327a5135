"""Sub-ops of a composite: declared, held once, injected, filed under one stage."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tileops.errors import DelegateError, GradientError
from tileops.op import Op

from .composites import CacheFwdOp, ChainFwdOp, MixedFwdOp, ones
from .toys import DoubleFwdOp, TripleFwdOp


def test_a_sub_op_is_built_once_per_stage_and_identity() -> None:
    """Asking again gives the one held; another identity builds another."""
    op = ChainFwdOp()
    first = op.delegate_for("second", 1)

    assert op.delegate_for("second", 1) is first
    assert op.delegate_for("second", 2) is not first
    assert len(op.held_delegates()) == 3


def test_a_built_sub_op_takes_the_stages_class_and_the_parameters() -> None:
    """It is constructed from the keywords, with the composite's target."""
    op = ChainFwdOp(target="builtin")
    sub_op = op.delegate_for("second", None)

    assert type(sub_op) is TripleFwdOp
    assert sub_op._construction.target == "builtin"


def test_an_injected_sub_op_is_the_one_held() -> None:
    """The given op runs, under its stage."""
    first = DoubleFwdOp()
    op = ChainFwdOp(first=first)
    op(ones(2))

    assert op.held_delegates() == (first,)
    assert op.last_call.stages["first"] == (first.last_call,)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda op: op.delegate_for("third", None),
            (
                "ChainFwdOp: stage: expected one of ['first', 'second'], received 'third'; declare it in "
                "delegate_types, as the manifest's composition does"
            ),
        ),
        (
            lambda op: op.delegate_for("first", ["only"]),
            (
                "ChainFwdOp: first: expected an identity that can key a table, received ['only']; use numbers, "
                "strings, dtypes and tuples"
            ),
        ),
        (
            lambda op: op.delegate_for("second", None, op.held_delegates()[0]),
            (
                "ChainFwdOp: second: expected a sub-op of this stage alone, received the one that stage 'first' holds; "
                "pass a second instance"
            ),
        ),
        (
            lambda op: op.delegate_for("first", "only", DoubleFwdOp()),
            (
                "ChainFwdOp: first: expected the sub-op already held under 'only', received another DoubleFwdOp; pass "
                "the same one, or another identity"
            ),
        ),
        (
            lambda op: op.delegate_for("second", None, cast("Op", torch.relu)),
            (
                "ChainFwdOp: second: expected another op instance, received builtin_function_or_method; pass an "
                "instance of an op class, and call what is not an op directly"
            ),
        ),
        (
            lambda op: op.delegate_for("second", None, op),
            (
                "ChainFwdOp: second: expected another op instance, received the composite itself; pass an instance of "
                "an op class, and call what is not an op directly"
            ),
        ),
    ],
)
def test_a_sub_op_that_cannot_be_held_is_refused(ask: Any, message: str) -> None:
    """The text names the composite, the stage, what was expected and received, and the mend; nothing is held."""
    op = ChainFwdOp()
    with pytest.raises(DelegateError) as caught:
        ask(op)

    assert str(caught.value) == message
    assert len(op.held_delegates()) == 1


def test_an_op_that_is_no_composite_holds_nothing() -> None:
    """It declares no stage."""
    with pytest.raises(DelegateError, match=r"DoubleFwdOp: stage: expected one of \[\], received 'first'"):
        DoubleFwdOp().delegate_for("first", None)


@pytest.mark.parametrize("make", [ChainFwdOp, MixedFwdOp])
def test_backward_through_a_composite_raises(make: type[ChainFwdOp | MixedFwdOp]) -> None:
    """Also where a kernel of its own computed, which autograd does not see; the forward is right."""
    x = torch.ones(2, requires_grad=True)
    y = make()(x)

    assert y.requires_grad
    with pytest.raises(GradientError, match=rf"{make.__name__}: backward through its output is not defined; .*no_grad"):
        (y.sum() + x.sum()).backward()
    assert x.grad is None
    with torch.no_grad():
        assert not make()(x).requires_grad


def test_backward_through_what_a_composite_wrote_raises() -> None:
    """Its written input and the caller's buffer depend on the call too, and are the caller's own objects."""
    p, cache, out = torch.ones(2, requires_grad=True), torch.zeros(2), torch.zeros(2)
    x = p * 2
    y = CacheFwdOp()(x, cache, out=out)

    assert (y is out, y.tolist(), cache.tolist()) == (True, [6.0, 6.0], [2.0, 2.0])
    for written in (cache, out):
        with pytest.raises(GradientError, match="CacheFwdOp: backward through its output"):
            (written.sum() + p.sum()).backward()
    assert p.grad is None


class ScriptFwdOp(ChainFwdOp, entry=ChainFwdOp._plan.entry):
    """A composite that calls held and strange sub-ops in the order that a test gives."""

    script: tuple[str, ...] = ()
    stranger: Op

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Any:
        y = x
        for step in self.script:
            y = (self.stranger if step == "stranger" else self.delegate_for(step, step))(y)
        return y.clone()


@given(script=st.lists(st.sampled_from(["first", "second", "stranger"]), max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_interleaving_files_every_call_under_one_stage_or_raises(script: list[str]) -> None:
    """Each completed sub-call stands once, under the stage that holds its op; a stranger's makes the call raise."""
    op = ScriptFwdOp()
    op.script, op.stranger = tuple(script), TripleFwdOp()
    if "stranger" in script:
        with pytest.raises(DelegateError, match="ScriptFwdOp: forward: expected calls of held sub-ops alone"):
            op(ones(2))
        assert op._running.last_call is None
        return
    op(ones(2))
    filed = {stage: len(calls) for stage, calls in op.last_call.stages.items()}

    assert filed == {stage: script.count(stage) for stage in dict.fromkeys(script)}
    factor = {"first": 2.0, "second": 3.0}
    inputs: dict[str, list[float]] = {}
    value = 1.0
    for step in script:
        inputs.setdefault(step, []).append(value)
        value *= factor[step]
    assert op(ones(2)).tolist() == [value, value]
