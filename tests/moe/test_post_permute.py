"""MoEPostPermuteFwdOp: sums of tokens' rows, weights and scales, absent rows, buffers, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.moe.by_hand import TOKENS, distinct_ids, wild_ids
from tileops.errors import DTypeError, LayoutError, ParameterError, ParameterTypeError, ShapeError
from tileops.moe import (
    ContiguousLayout,
    ContiguousMetadata,
    MaskedLayout,
    MoEPostPermuteFwdOp,
    MoEPrePermuteFwdOp,
    RoutingEpilogue,
    RoutingWeighting,
)
from tileops_testing.inputs import TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_close

pytestmark = pytest.mark.op("MoEPostPermuteFwdOp")

ENDS = ContiguousLayout(metadata_kind=ContiguousMetadata.PHYSICAL_PSUM)
UNWEIGHTED = RoutingWeighting.UNWEIGHTED


def make(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype).make(seed, device)


def indices(*entries: int, device: torch.device) -> Tensor:
    return torch.tensor(entries, dtype=torch.int32, device=device)


def summed(rows: Tensor, weights: Tensor, places: Tensor, epilogue: RoutingEpilogue | None) -> Tensor:
    """Add up rows one choice after the other in float32."""
    epilogue, total = epilogue or RoutingEpilogue(), rows.new_zeros(len(weights), rows.shape[1], dtype=torch.float32)
    for k, column in enumerate(places.view(weights.shape).long().unbind(1)):
        present = column >= 0
        factor = weights[present, k, None] if epilogue.weighting == RoutingWeighting.WEIGHTED else 1
        total[present] += rows[column[present]].float() * factor
    return total * epilogue.scale


@pytest.mark.parametrize(
    "epilogue", [None, RoutingEpilogue(scale=2.5), RoutingEpilogue(scale=-0.5, weighting=UNWEIGHTED)], ids=str
)
@pytest.mark.parametrize("tokens", TOKENS)
def test_adds_up_the_rows_of_experts(
    tokens: int, epilogue: RoutingEpilogue | None, tileops_device: torch.device
) -> None:
    """What the permutation before experts has spread comes together again, weighted and scaled."""
    x = make(tokens, 40, device=tileops_device, dtype=torch.bfloat16)
    ids, weights = distinct_ids(tokens, 8, 16, tileops_device), make(tokens, 8, device=tileops_device, seed=1)
    rows, _, inverse = MoEPrePermuteFwdOp(ENDS, 16)(x, ids)
    rows = rows + make(*rows.shape, device=tileops_device, dtype=torch.bfloat16, seed=2)
    with poisoned_allocations():
        output = MoEPostPermuteFwdOp(ENDS, epilogue)(rows, weights, inverse)
    terms = summed(rows.abs(), weights.abs(), inverse, epilogue).abs()
    assert_close(output, summed(rows, weights, inverse, epilogue), dtype=torch.bfloat16, summed=8, terms=terms)


@pytest.mark.parametrize("out_dtype", [None, torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("columns", [1, 7, 8, 260, 7168])
def test_any_row_and_dtype(
    columns: int, dtype: torch.dtype, out_dtype: torch.dtype | None, tileops_device: torch.device
) -> None:
    """Rows of any width and dtype give sums of any dtype, rounded once."""
    rows, weights = make(9, columns, device=tileops_device, dtype=dtype), make(4, 3, device=tileops_device, seed=1)
    places = indices(8, 0, 3, -1, 2, 7, 1, 1, 1, -1, -1, -1, device=tileops_device)
    output = MoEPostPermuteFwdOp(ENDS, None, out_dtype)(rows, weights, places)
    terms = summed(rows.abs(), weights.abs(), places, None)
    assert_close(output, summed(rows, weights, places, None), dtype=out_dtype or dtype, summed=3, terms=terms)


def test_ids_of_no_expert_contribute_nothing(tileops_device: torch.device) -> None:
    """Pairs without a row leave their token's other pairs as they are; a token without any pair gives zeros."""
    x, ids = make(64, 24, device=tileops_device), wild_ids(64, 3, 3, tileops_device)
    rows, _, inverse = MoEPrePermuteFwdOp(ENDS, 3)(x, ids)
    rows[int((inverse >= 0).sum()) :] = math.nan
    output = MoEPostPermuteFwdOp(ENDS)(rows, torch.ones(64, 3, device=tileops_device), inverse)
    present = ((ids >= 0) & (ids < 3)).sum(1, keepdim=True)
    assert present.eq(0).any()
    assert torch.allclose(output, present * x, rtol=1e-6)
    assert output[present[:, 0] == 0].eq(0).all()


def test_masked_rows_are_counted_through_all_slabs(tileops_device: torch.device) -> None:
    """Under a masked layout row r of expert e is number e * max_m + r."""
    slabs = make(3, 4, 8, device=tileops_device)
    places = indices(0, 11, 5, -1, device=tileops_device)
    weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=tileops_device)
    output = MoEPostPermuteFwdOp(MaskedLayout(max_m=4))(slabs, weights, places)
    assert torch.allclose(output[0], slabs[0, 0] + 2 * slabs[2, 3], rtol=1e-6, atol=1e-6)
    assert torch.allclose(output[1], 3 * slabs[1, 1], rtol=1e-6)


def test_nan_stays_with_its_token(tileops_device: torch.device) -> None:
    """NaN and infinities of a row or a weight reach the tokens that have them, as in PyTorch."""
    rows = torch.ones(4, 8, device=tileops_device)
    rows[1], rows[2] = math.nan, math.inf
    weights = torch.tensor([[1.0, 1], [1, 1], [0, 1], [math.nan, 1]], device=tileops_device)
    output = MoEPostPermuteFwdOp(ENDS)(rows, weights, indices(0, 3, 1, 0, 2, 0, -1, 3, device=tileops_device))
    assert output[0].eq(2).all()
    assert output[1:3].isnan().all()
    assert output[3].eq(1).all()


def test_sums_are_rounded_once(tileops_device: torch.device) -> None:
    """Terms that a float16 sum would lose, or that leave its range, stay in the sum."""
    rows = torch.tensor([[2048.0], [1.0], [60000.0]], dtype=torch.float16, device=tileops_device).expand(3, 8)
    places = indices(0, 1, 1, 2, 2, -1, device=tileops_device)
    weights = torch.tensor([[1.0, 1, 1], [1, -0.5, 1]], device=tileops_device)
    output = MoEPostPermuteFwdOp(ENDS)(rows, weights, places)
    assert output[0].eq(2050).all()
    assert output[1].eq(30000).all()
    large = MoEPostPermuteFwdOp(ENDS, RoutingEpilogue(scale=0.25, weighting=UNWEIGHTED))
    assert large(rows, weights[1:], indices(2, 2, -1, device=tileops_device)).eq(30000).all()


@pytest.mark.parametrize(
    ("tokens", "top_k", "rows", "columns"), [(0, 2, 4, 8), (3, 0, 4, 8), (3, 2, 0, 8), (3, 2, 4, 0)]
)
def test_nothing_to_add(tokens: int, top_k: int, rows: int, columns: int, tileops_device: torch.device) -> None:
    """Without pairs or rows the result is zeros, and no program is needed."""
    weights = torch.ones(tokens, top_k, device=tileops_device)
    places = torch.full((tokens * top_k,), -1, dtype=torch.int32, device=tileops_device)
    with poisoned_allocations():
        output = MoEPostPermuteFwdOp(ENDS)(torch.ones(rows, columns, device=tileops_device), weights, places)
    assert torch.equal(output, torch.zeros(tokens, columns, device=tileops_device))


@pytest.mark.parametrize("start", [0, 1])
def test_out_is_returned(start: int, tileops_device: torch.device) -> None:
    """The caller's buffer, wherever it begins, is the object returned, and is written wholly."""
    rows, weights = make(6, 16, device=tileops_device, dtype=torch.float16), make(3, 2, device=tileops_device, seed=1)
    places = indices(0, 5, 2, -1, -1, -1, device=tileops_device)
    op = MoEPostPermuteFwdOp(ENDS)
    out = torch.full((3 * 16 + start,), math.nan, dtype=torch.float16, device=tileops_device)[start:].view(3, 16)
    assert op(rows, weights, places, out=out) is out
    assert torch.equal(out, op(rows, weights, places))


def test_refuses_a_buffer_within_an_input(tileops_device: torch.device) -> None:
    """A buffer that shares memory with what a kernel reads is refused and not written."""
    rows, weights = torch.ones(2, 2, device=tileops_device), torch.ones(2, 2, device=tileops_device)
    places = torch.zeros(4, dtype=torch.int32, device=tileops_device)
    given = {"expert_output": rows, "topk_weights": weights, "inverse_indices": places.view(torch.float32).view(2, 2)}
    for name, out in given.items():
        with pytest.raises(LayoutError) as caught:
            MoEPostPermuteFwdOp(ENDS)(rows, weights, places, out=out)
        assert str(caught.value) == (
            f"MoEPostPermuteFwdOp: out: expected memory of its own, received some of {name}; pass another buffer"
        )


@pytest.mark.parametrize(
    ("rows", "weights", "places", "error", "message"),
    [
        (torch.ones(4, 8), torch.ones(3, 2), torch.zeros(5).int(), ShapeError, r"inverse_indices: expected .*6"),
        (torch.ones(4, 8), torch.ones(3, 2), torch.zeros(6), DTypeError, "inverse_indices: expected dtype int32"),
        (torch.ones(4, 8), torch.ones(3, 2).half(), torch.zeros(6).int(), DTypeError, "topk_weights: .*float32"),
        (torch.ones(4, 8).int(), torch.ones(3, 2), torch.zeros(6).int(), DTypeError, "expert_output: .*float16"),
        (torch.ones(2, 4, 8), torch.ones(3, 2), torch.zeros(6).int(), ShapeError, "expert_output"),
    ],
)
def test_refuses_other_tensors(
    rows: Tensor, weights: Tensor, places: Tensor, error: type[Exception], message: str
) -> None:
    """Shapes and dtypes are those of the signature; the error names the tensor."""
    with pytest.raises(error, match=f"MoEPostPermuteFwdOp.*{message}"):
        MoEPostPermuteFwdOp(ENDS)(rows, weights, places)


def test_refuses_what_is_no_epilogue() -> None:
    """An epilogue is a RoutingEpilogue whose fields are a number and one of two words."""
    wrong: list[Any] = ["weighted", 2.5, RoutingEpilogue(scale="2"), RoutingEpilogue(weighting="mean")]  # type: ignore[arg-type]
    for epilogue in wrong:
        with pytest.raises(
            ParameterTypeError, match=r"MoEPostPermuteFwdOp: epilogue: expected RoutingEpilogue \| None"
        ):
            MoEPostPermuteFwdOp(ENDS, epilogue)


@pytest.mark.parametrize("scale", [1e39, math.inf, math.nan])
def test_refuses_a_scale_without_float32(scale: float) -> None:
    """A token without experts is zero times the scale."""
    expected = "a number that float32 holds" if math.isfinite(scale) else "a finite number"
    with pytest.raises(ParameterError) as failure:
        MoEPostPermuteFwdOp(ENDS, RoutingEpilogue(scale=scale))
    assert str(failure.value) == (
        f"MoEPostPermuteFwdOp: epilogue: expected scale to be {expected}, received {scale}; pass {expected} as scale"
    )
