"""The argument list of a call with a compile boundary."""

from __future__ import annotations

import pytest
import torch

from tileops.errors import ArgumentError, LayoutError, ParameterError, ShapeError
from tileops.rope import RoPENeoxPositionIdsFwdOp

from .toys import ScaledFwdOp, ScaledKernel


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda op, x: op(), r"ScaledFwdOp: x: expected a tensor, received nothing; call it as op\(x, bias=None\)"),
        (lambda op, x: op(x, x, x), r"expected at most 2 arguments \(x, bias=None\), received 3; call it as"),
        (
            lambda op, x: op(x, bais=x),
            r"ScaledFwdOp: bais: expected arguments \(x, bias=None\), received the keyword 'bais'",
        ),
        (
            lambda op, x: op([1.0]),
            r"ScaledFwdOp: x: expected a torch\.Tensor, received list; pass torch\.as_tensor\(x\) on the call's device",
        ),
        (lambda op, x: op(x, 1.0), r"ScaledFwdOp: bias: expected a torch\.Tensor, received float"),
        (lambda op, x: op(None), r"ScaledFwdOp: x: expected a torch\.Tensor, received NoneType"),
    ],
)
def test_wrong_arguments_of_a_call_are_named(call: object, message: str) -> None:
    """Missing, surplus, misspelled and non-tensor arguments are each one error, before anything runs."""
    with pytest.raises(ArgumentError, match=message):
        call(ScaledFwdOp(), torch.ones(2))  # type: ignore[operator]

    assert ScaledKernel.builds == 0


@pytest.mark.parametrize("place", ["x", "bias"])
def test_tensors_without_strides_are_refused(place: str) -> None:
    """A sparse tensor is named with its layout and the mend, before anything runs, and the op stays usable."""
    op = ScaledFwdOp()
    arguments = {"x": torch.ones(2, 2), "bias": torch.ones(2, 2)}
    op(**arguments)
    arguments[place] = arguments[place].to_sparse()
    with pytest.raises(LayoutError) as caught:
        op(**arguments)

    assert str(caught.value) == (
        f"ScaledFwdOp: {place}: expected a strided tensor, received layout sparse_coo; pass {place} as a dense tensor, "
        "with to_dense() where it is sparse and to_padded_tensor() where it is nested"
    )
    assert torch.equal(op(torch.ones(2)), torch.full((2,), 2.0))


def test_a_settled_parameter_cannot_be_changed() -> None:
    """Assigning a manifest parameter after construction is refused; other attributes are the op's own."""
    op = ScaledFwdOp(3.0)
    with pytest.raises(ParameterError) as caught:
        op.factor = 7.0
    assert str(caught.value) == (
        "ScaledFwdOp: factor: expected the value given at construction, received 7.0 later; construct another "
        "ScaledFwdOp"
    )
    op.note = "kept"

    assert (op.factor, repr(op)) == (3.0, "ScaledFwdOp(factor=3.0)")


def test_a_repeated_call_refers_to_its_own_metadata_tensors() -> None:
    """A call like one before is not checked again; its record refers to its own positions, and lets them go."""
    op, x = RoPENeoxPositionIdsFwdOp(8), torch.ones(2, 1, 4)
    first, second = torch.tensor([0, 1]), torch.tensor([2, 3])
    op(x, first)
    before = op.last_call
    op(x, second)

    assert before.metadata["position_ids"] is first
    assert op.last_call.metadata["position_ids"] is second
    assert (op.last_call.indices, len(op._running.seen)) == (before.indices, 1)
    del second
    with pytest.raises(KeyError, match="no longer exists"):
        op.last_call.metadata["position_ids"]
    with pytest.raises(ShapeError, match="RoPENeoxPositionIdsFwdOp: position_ids"):
        op(x, torch.tensor([0, 1, 2]))
