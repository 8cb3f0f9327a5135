"""FusedTopKFwdOp: scores, the order of equal and of special values, weights, any extents, and what it refuses."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from tests.moe.by_hand import TOKENS
from tileops.errors import DTypeError, ParameterError, ParameterTypeError, RuleError, ShapeError
from tileops.moe import FusedTopKFwdOp
from tileops_testing.inputs import TensorInput, poisoned_allocations

pytestmark = pytest.mark.op("FusedTopKFwdOp")

Scoring = Literal["softmax", "sigmoid"]
INF, NAN = math.inf, math.nan


def make(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype).make(seed, device)


def scored(logits: Tensor, scoring: Scoring) -> Tensor:
    return logits.float().softmax(-1) if scoring == "softmax" else logits.float().sigmoid()


def goes_first(first: float, second: float) -> bool:
    """Whether one sum is chosen before another: a NaN before a number, the larger before the smaller."""
    return not math.isnan(second) and (math.isnan(first) or first > second)


def chosen(sums: list[float], top_k: int) -> list[int]:
    """Return the places of the largest sums, found one after the other."""
    left, found = list(range(len(sums))), []
    for _ in range(top_k):
        best = left[0]
        for place in left[1:]:
            if goes_first(sums[place], sums[best]):
                best = place
        left.remove(best)
        found.append(best)
    return found


def check(
    logits: Tensor,
    top_k: int,
    scoring: Scoring = "softmax",
    renormalize: bool = False,
    bias: Tensor | None = None,
) -> None:
    """Compare a call with torch's scores in float32, of which the largest are found one after the other."""
    with poisoned_allocations():
        weights, ids = FusedTopKFwdOp(top_k, scoring, renormalize)(logits, bias)
    scores = scored(logits, scoring)
    sums = (scores if bias is None else scores + bias).tolist()
    assert (weights.dtype, ids.dtype) == (torch.float32, torch.int32)
    assert weights.shape == ids.shape == (len(logits), top_k)
    assert ids.tolist() == [chosen(row, top_k) for row in sums]
    expected = scores.gather(-1, ids.long())
    if renormalize:
        expected = expected / expected.sum(-1, keepdim=True)
    assert torch.allclose(weights, expected, rtol=1e-5, atol=1e-37, equal_nan=True)


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("tokens", TOKENS)
def test_sigmoid_scores(tokens: int, biased: bool, renormalize: bool, tileops_device: torch.device) -> None:
    """The bias chooses and does not weigh; weights sum to 1 where that is asked for."""
    logits = make(tokens, 48, device=tileops_device)
    bias = make(48, device=tileops_device, seed=1) if biased else None
    check(logits, 8, "sigmoid", renormalize, bias)


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("tokens", TOKENS)
def test_softmax_scores(tokens: int, renormalize: bool, tileops_device: torch.device) -> None:
    """Weights are a row's softmax, and sum to 1 where that is asked for."""
    check(make(tokens, 48, device=tileops_device), 8, "softmax", renormalize)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("experts", "top_k"),
    [(1, 1), (2, 1), (7, 7), (31, 4), (33, 33), (128, 8), (256, 8), (384, 100), (1000, 6), (2500, 3)],
)
def test_any_extents_and_dtype(experts: int, top_k: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Any number of experts and choices up to all of them; narrow logits are often equal, and then go by id."""
    logits = make(5, experts, device=tileops_device, dtype=dtype)
    check(logits, top_k, "softmax", True)
    check(logits, top_k, "sigmoid", False, make(experts, device=tileops_device, seed=1))


def test_equal_sums_go_by_the_lowest_id(tileops_device: torch.device) -> None:
    """Equal logits anywhere in a row, zeros of both signs, and scores that vanish are chosen in the order of ids."""
    for experts in (40, 256, 300, 600, 2100):
        _, ids = FusedTopKFwdOp(40, "sigmoid")(torch.full((2, experts), 0.3, device=tileops_device))
        assert ids.tolist() == [list(range(40))] * 2
        logits = (torch.arange(experts, device=tileops_device) % 3).float()[None]
        check(logits, 40)
    signed = torch.tensor([[0.0, -0.0, 0.0, -0.0]], device=tileops_device)
    minus_half = torch.full((4,), -0.5, device=tileops_device)
    minus_half[2] = 0.5
    assert FusedTopKFwdOp(4, "sigmoid")(signed, minus_half)[1].tolist() == [[2, 0, 1, 3]]
    vanished = torch.tensor([[-300.0, -200.0, 0.0, -250.0]], device=tileops_device)
    assert FusedTopKFwdOp(4)(vanished)[1].tolist() == [[2, 0, 1, 3]]


SPECIAL = (
    (0.0, NAN, 1.0, -INF, NAN),
    (-INF, -INF, -INF, -INF, -INF),
    (INF, 0.0, INF, -INF, 1.0),
    (-INF, 2.0, -INF, 1.0, -INF),
    (3e38, -3e38, 3e38, 88.0, -120.0),
    (NAN, NAN, NAN, NAN, NAN),
)
"""Rows of logits with NaN, infinities and numbers near the end of float32."""


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_nan_and_infinities(scoring: Scoring, renormalize: bool, tileops_device: torch.device) -> None:
    """Scores are what PyTorch makes of such rows, NaN is chosen first, and no id is out of range."""
    logits = torch.tensor(SPECIAL, device=tileops_device)
    for top_k in (1, 3, 5):
        check(logits, top_k, scoring, renormalize)


def test_nan_and_infinities_of_a_bias(tileops_device: torch.device) -> None:
    """A bias that is NaN or infinite decides the choice and does not reach weights."""
    bias = torch.tensor([-INF, 0.0, NAN, INF, -INF], device=tileops_device)
    logits = torch.tensor([[1.0, 2, 3, 4, 5]], device=tileops_device)
    check(logits, 5, "sigmoid", True, bias)
    weights, ids = FusedTopKFwdOp(5, "sigmoid")(logits, bias)
    assert ids.tolist() == [[2, 3, 1, 0, 4]]
    assert weights.isfinite().all()


def test_a_sum_of_zero_gives_nan(tileops_device: torch.device) -> None:
    """Dividing by a sum of zero is NaN, as the formula says."""
    logits = torch.full((1, 4), -200.0, device=tileops_device)
    weights, ids = FusedTopKFwdOp(2, "sigmoid", renormalize=True)(logits)
    assert weights.isnan().all()
    assert ids.tolist() == [[0, 1]]


def test_chooses_as_torch_does(tileops_device: torch.device) -> None:
    """Of distinct float32 scores the choice is that of torch.topk."""
    logits = make(512, 256, device=tileops_device)
    values, places = logits.softmax(-1).topk(8)
    weights, ids = FusedTopKFwdOp(8)(logits)
    assert torch.equal(ids.long(), places)
    assert torch.allclose(weights, values, rtol=1e-5)


@pytest.mark.parametrize("top_k", [0, -1])
def test_refuses_no_choice(top_k: int) -> None:
    """There is a choice at least: construction says so."""
    with pytest.raises(ParameterError) as failure:
        FusedTopKFwdOp(top_k)
    assert str(failure.value) == (
        f"FusedTopKFwdOp: top_k: expected at least 1, received {top_k}; pass top_k of at least 1"
    )


@pytest.mark.parametrize("top_k", [True, 2.0, None])
def test_refuses_what_is_no_number_of_choices(top_k: object) -> None:
    """A truth and a fraction count nothing."""
    with pytest.raises(ParameterTypeError) as failure:
        FusedTopKFwdOp(top_k)  # type: ignore[arg-type]
    assert str(failure.value) == f"FusedTopKFwdOp: top_k: expected int, received {top_k}; pass top_k as int"


def test_refuses_more_choices_than_experts() -> None:
    """There is an expert for each choice; the error says where their number comes from."""
    with pytest.raises(RuleError) as failure:
        FusedTopKFwdOp(5)(torch.ones(3, 4))
    assert str(failure.value) == (
        "FusedTopKFwdOp: top_k: expected at most 4 for E=4 (axis 1 of gating_output), received 5; "
        "pass top_k of at most 4"
    )


def test_refuses_a_bias_of_a_softmax() -> None:
    """A bias belongs to sigmoid scores."""
    with pytest.raises(RuleError) as failure:
        FusedTopKFwdOp(2)(torch.ones(3, 4), torch.zeros(4))
    assert str(failure.value) == (
        "FusedTopKFwdOp: scoring_func: expected 'sigmoid' with correction_bias, received 'softmax'; "
        "pass 'sigmoid', or leave correction_bias out"
    )


def test_refuses_other_arguments() -> None:
    """Scores have one of two names; a bias is float32, one for each expert."""
    with pytest.raises(ParameterError, match=r"FusedTopKFwdOp: scoring_func: expected 'softmax' \| 'sigmoid'"):
        FusedTopKFwdOp(2, "tanh")  # type: ignore[arg-type]
    op = FusedTopKFwdOp(2, "sigmoid")
    with pytest.raises(ShapeError, match=r"FusedTopKFwdOp.*correction_bias"):
        op(torch.ones(3, 4), torch.zeros(5))
    with pytest.raises(DTypeError, match=r"FusedTopKFwdOp: correction_bias: expected dtype float32"):
        op(torch.ones(3, 4), torch.zeros(4).half())
