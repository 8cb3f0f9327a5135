"""The argument list of a call with a compile boundary."""

from __future__ import annotations

import pytest
import torch

from tileops.errors import ArgumentError

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
            r"ScaledFwdOp: x: expected a torch\.Tensor, received list; pass torch\.as_tensor\(x\)",
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
