"""MoEPrePermuteFwdOp: places of pairs, rows, metadata that the grouped product takes, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.moe.by_hand import TOKENS, distinct_ids, placed, wild_ids
from tileops.errors import DTypeError, ParameterError, ParameterTypeError, ShapeError
from tileops.moe import (
    ContiguousLayout,
    ContiguousMetadata,
    ContiguousPacking,
    MaskedLayout,
    MoEGroupedGemmFwdOp,
    MoEPrePermuteFwdOp,
)
from tileops_testing.inputs import TensorInput, poisoned_allocations

pytestmark = pytest.mark.op("MoEPrePermuteFwdOp")


def layout_of(alignment: int, metadata_kind: str) -> ContiguousLayout:
    packing = ContiguousPacking.TIGHT if alignment == 1 else ContiguousPacking.ALIGNED
    return ContiguousLayout(packing=packing, metadata_kind=ContiguousMetadata(metadata_kind), alignment=alignment)


LAYOUTS = [layout_of(alignment, kind) for alignment in (1, 4, 128) for kind in ("physical_psum", "per_row")]
IDS = [f"{layout.alignment}-{layout.metadata_kind}" for layout in LAYOUTS]
ENDS = LAYOUTS[0]


def hidden(tokens: int, columns: int, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return TensorInput(shape=(tokens, columns), dtype=dtype).make(0, device)


def check(layout: ContiguousLayout, experts: int, x: Tensor, ids: Tensor) -> None:
    """Compare a call's three results with places found one after the other; rows that are no pair's are not read."""
    with poisoned_allocations():
        expert_input, metadata, inverse = MoEPrePermuteFwdOp(layout, experts)(x, ids)
    places, pairs = placed(ids, experts, layout.alignment), ids.numel()
    room = pairs if layout.alignment == 1 else pairs + experts * (layout.alignment - 1)
    assert expert_input.shape == (-(-room // layout.alignment) * layout.alignment, x.shape[1])
    assert (expert_input.dtype, metadata.dtype, inverse.dtype) == (x.dtype, torch.int32, torch.int32)
    assert inverse.tolist() == places.rows
    present = torch.tensor([row >= 0 for row in places.rows], dtype=torch.bool, device=x.device)
    tokens = torch.arange(pairs, device=x.device) // max(ids.shape[1], 1)
    assert torch.equal(expert_input[inverse[present].long()], x[tokens[present]])
    if layout.metadata_kind == ContiguousMetadata.PHYSICAL_PSUM:
        assert metadata.tolist() == places.ends
    else:
        expected = [experts] * len(expert_input)
        for expert, (start, stop) in enumerate(zip(places.starts, places.stops, strict=True)):
            expected[start:stop] = [expert] * (stop - start)
        assert metadata.tolist() == expected


@pytest.mark.parametrize("layout", LAYOUTS, ids=IDS)
@pytest.mark.parametrize("tokens", TOKENS)
def test_places_distinct_experts(tokens: int, layout: ContiguousLayout, tileops_device: torch.device) -> None:
    """Whatever the number of tokens, pairs stand by expert and in order, and carry their token's row."""
    check(layout, 16, hidden(tokens, 24, tileops_device), distinct_ids(tokens, 8, 16, tileops_device))


@pytest.mark.parametrize("layout", LAYOUTS, ids=IDS)
@pytest.mark.parametrize("tokens", [3, 512])
def test_ids_of_no_expert_have_no_row(tokens: int, layout: ContiguousLayout, tileops_device: torch.device) -> None:
    """Ids below zero, just beyond the experts and at the ends of int32 take no row, whatever stands around them."""
    check(layout, 40, hidden(tokens, 8, tileops_device), wild_ids(tokens, 6, 40, tileops_device))


@pytest.mark.parametrize("layout", LAYOUTS, ids=IDS)
@pytest.mark.parametrize("expert", [0, 3, 299])
def test_one_expert_has_every_row(expert: int, layout: ContiguousLayout, tileops_device: torch.device) -> None:
    """Where all tokens choose one expert, the others have no rows."""
    ids = torch.full((50, 1), expert, dtype=torch.int32, device=tileops_device)
    check(layout, 300, hidden(50, 8, tileops_device), ids)


@pytest.mark.parametrize("layout", LAYOUTS, ids=IDS)
def test_no_expert_is_here(layout: ContiguousLayout, tileops_device: torch.device) -> None:
    """Where no id is an expert's, every expert is empty and no pair has a row."""
    ids = torch.full((5, 2), -1, dtype=torch.int32, device=tileops_device)
    check(layout, 4, hidden(5, 8, tileops_device), ids)


@pytest.mark.parametrize("experts", [1, 256, 257, 1024, 1025, 2100])
def test_any_number_of_experts(experts: int, tileops_device: torch.device) -> None:
    """The number of experts is not bound by what is counted at a time."""
    check(ENDS, experts, hidden(64, 8, tileops_device), wild_ids(64, 5, experts, tileops_device))


def test_every_expert_of_every_token(tileops_device: torch.device) -> None:
    """With as many choices as experts each expert has each token."""
    check(LAYOUTS[3], 12, hidden(9, 8, tileops_device), distinct_ids(9, 12, 12, tileops_device))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("columns", [0, 1, 7, 8, 1000, 7168])
def test_any_row(columns: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Rows of any width and dtype are copied whole."""
    check(ENDS, 4, hidden(5, columns, tileops_device, dtype), distinct_ids(5, 2, 4, tileops_device))


def test_copies_bits(tileops_device: torch.device) -> None:
    """NaN, infinities and signed zeros arrive as they are."""
    x = torch.tensor([[math.nan, math.inf, -math.inf, -0.0, 2**-24, 1, 2, 3]], dtype=torch.float16).to(tileops_device)
    ids = torch.tensor([[1, 0]], dtype=torch.int32, device=tileops_device)
    expert_input, _, _ = MoEPrePermuteFwdOp(ENDS, 2)(x, ids)
    assert torch.equal(expert_input.view(torch.int16), x.view(torch.int16).expand(2, 8))


@pytest.mark.parametrize("layout", LAYOUTS, ids=IDS)
def test_the_grouped_product_takes_it(layout: ContiguousLayout, tileops_device: torch.device) -> None:
    """Rows and metadata go to the grouped product as they come, and each pair finds its expert's product."""
    x, ids = hidden(9, 16, tileops_device), wild_ids(9, 3, 5, tileops_device)
    weights = TensorInput(shape=(5, 24, 16), dtype=torch.bfloat16).make(1, tileops_device)
    expert_input, metadata, inverse = MoEPrePermuteFwdOp(layout, 5)(x, ids)
    product = MoEGroupedGemmFwdOp(layout, None, torch.float32)(expert_input, weights, metadata)
    for pair, (row, expert) in enumerate(zip(inverse.tolist(), ids.flatten().tolist(), strict=True)):
        if row >= 0:
            expected = weights[expert].float() @ x[pair // 3].float()
            assert torch.allclose(product[row], expected, rtol=1e-4, atol=1e-4)


def test_equal_calls_give_equal_places(tileops_device: torch.device) -> None:
    """Pairs of one expert stand in the same order every time."""
    x, ids = hidden(512, 8, tileops_device), wild_ids(512, 8, 7, tileops_device)
    op = MoEPrePermuteFwdOp(LAYOUTS[2], 7)
    _, ends, inverse = op(x, ids)
    for _ in range(3):
        _, again, places = op(x, ids)
        assert torch.equal(ends, again)
        assert torch.equal(inverse, places)


def test_refuses_a_masked_layout() -> None:
    """Slabs are not what it makes."""
    with pytest.raises(ParameterError, match=r"MoEPrePermuteFwdOp: layout: expected a ContiguousLayout, "):
        MoEPrePermuteFwdOp(MaskedLayout(max_m=4), 4)  # type: ignore[arg-type]


def test_refuses_no_experts() -> None:
    """There is an expert at least, and their number is whole."""
    with pytest.raises(ParameterError, match=r"MoEPrePermuteFwdOp: num_local_experts: expected at least 1, received 0"):
        MoEPrePermuteFwdOp(ENDS, 0)
    with pytest.raises(ParameterTypeError, match=r"MoEPrePermuteFwdOp.*num_local_experts"):
        MoEPrePermuteFwdOp(ENDS, 4.0)  # type: ignore[arg-type]


def test_refuses_other_ids() -> None:
    """Ids are int32, a row of them for each token."""
    op, x = MoEPrePermuteFwdOp(ENDS, 4), torch.ones(3, 8)
    with pytest.raises(DTypeError, match=r"MoEPrePermuteFwdOp: local_expert_ids: expected dtype int32.*int64"):
        op(x, torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ShapeError, match=r"MoEPrePermuteFwdOp.*local_expert_ids"):
        op(x, torch.zeros(4, 2, dtype=torch.int32))
