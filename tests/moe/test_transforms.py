"""Function transforms of torch around mixtures: what computes as without them, and what raises an error of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.moe.test_fused_moe import Arguments, arguments
from tileops.errors import GradientError
from tileops.moe import FusedMoEExpertsFwdOp, FusedMoEFwdOp, FusedMoESharedExpertFwdOp
from tileops.op.base import Op
from tileops_testing.numerics import assert_identical

pytestmark = [
    pytest.mark.op("FusedMoEFwdOp", "FusedMoESharedExpertFwdOp", "FusedMoEExpertsFwdOp"),
    pytest.mark.filterwarnings(
        "ignore:There is a performance drop"
    ),  # torch's own, of operators without batching rules
]


def batches(device: torch.device, h: int = 64, f: int = 32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Three batches of tokens and of their scores, and weights of six experts."""
    x, logits, gate_up, down = arguments(12, device, h=h, f=f)
    return x.view(3, 4, h), logits.view(3, 4, 6), gate_up, down


@pytest.mark.parametrize(("h", "f"), [(64, 32), (128, 256)], ids=["permuted", "indexed"])
@pytest.mark.parametrize("mapped", [(0, 0), (0, None), (None, 0)], ids=str)
def test_vmap_computes_each_call(
    mapped: tuple[int | None, int | None], h: int, f: int, tileops_device: torch.device
) -> None:
    """A mapped mixture gives for each entry of the batch what a call on it gives, by permuted rows as all of them."""
    x, logits, gate_up, down = batches(tileops_device, h, f)
    function: Callable[..., Tensor] = FusedMoEFwdOp(2)
    given = [x if mapped[0] == 0 else x[0], logits if mapped[1] == 0 else logits[0]]
    over: Callable[..., Tensor] = torch.vmap(function, in_dims=(*mapped, None, None))
    y = over(*given, gate_up, down)
    for entry in range(3):
        each = [tensor[entry] if place == 0 else tensor for tensor, place in zip(given, mapped, strict=True)]
        torch.testing.assert_close(y[entry], function(*each, gate_up, down), rtol=1e-2, atol=1e-2)


def test_vmap_over_weights(tileops_device: torch.device) -> None:
    """Experts of several layers, mapped, give each layer's result."""
    x, logits, gate_up, down = arguments(4, tileops_device)
    op, layers = FusedMoEFwdOp(2), torch.stack((gate_up, -gate_up))
    y = torch.vmap(op, in_dims=(None, None, 0, None))(x, logits, layers, down)
    assert_identical(y, torch.stack([op(x, logits, layer, down) for layer in layers]))


def test_functionalize_changes_nothing(tileops_device: torch.device) -> None:
    """`torch.func.functionalize` around a mixture, with and without a shared expert, gives what the call gives."""
    x, logits, gate_up, down = arguments(24, tileops_device)
    shared = gate_up[0].contiguous(), down[0].contiguous()
    op, with_shared = FusedMoEFwdOp(2), FusedMoESharedExpertFwdOp(2)
    assert_identical(torch.func.functionalize(op)(x, logits, gate_up, down), op(x, logits, gate_up, down))
    given = x, logits, gate_up, down, None, *shared
    function: Callable[..., tuple[Tensor, Tensor]] = torch.func.functionalize(with_shared)
    expected_shared, expected = with_shared(*given)
    assert expected_shared is not None
    for found, right in zip(function(*given), (expected_shared, expected), strict=True):
        assert_identical(found, right)


def test_functionalized_experts_write_their_buffer(tileops_device: torch.device) -> None:
    """The caller's buffer holds the result behind the transform."""
    x, logits, gate_up, down = arguments(24, tileops_device)
    weights, ids = logits.softmax(-1).topk(2)
    op, expected = FusedMoEExpertsFwdOp(), torch.empty_like(x)
    op(expected, x, gate_up, down, weights, ids.int())
    output = torch.full_like(x, float("nan"))
    torch.func.functionalize(op)(output, x, gate_up, down, weights, ids.int())
    assert_identical(output, expected)


def summed(op: Op, given: Arguments) -> Callable[[Tensor], Tensor]:
    """The sum of a mixture's result as a function of its tokens."""
    return lambda x: op(x, *given[1:]).sum()


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev])
def test_derivatives_are_refused_by_name(
    transform: Callable[..., Callable[[Tensor], Tensor]], tileops_device: torch.device
) -> None:
    """A transform that differentiates meets the mixture's own error, as backward does."""
    given = arguments(4, tileops_device)
    with pytest.raises(GradientError, match=r"^FusedMoEFwdOp: backward through its output is not defined"):
        transform(summed(FusedMoEFwdOp(2), given))(given[0])


def test_tangents_are_refused_by_name(tileops_device: torch.device) -> None:
    """Forward-mode differentiation too names the mixture, and not one of its stages."""
    given = arguments(4, tileops_device)
    with pytest.raises(GradientError, match=r"^FusedMoEFwdOp: a forward-mode derivative of its output is not defined"):
        torch.func.jvp(summed(FusedMoEFwdOp(2), given), (given[0],), (given[0],))
