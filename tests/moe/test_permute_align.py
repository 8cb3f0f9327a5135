"""MoEPermuteAlignFwdOp: rows and blocks of experts, ids of no expert, any extents, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.moe.by_hand import TOKENS, distinct_ids, placed, wild_ids
from tileops.errors import DTypeError, ParameterError, ShapeError
from tileops.moe import MoEPermuteAlignFwdOp
from tileops_testing.inputs import poisoned_allocations

pytestmark = pytest.mark.op("MoEPermuteAlignFwdOp")


def check(experts: int, block_size: int, ids: Tensor) -> None:
    """Compare a call's three results with places found one after the other."""
    with poisoned_allocations():
        sorted_ids, expert_ids, filled = MoEPermuteAlignFwdOp(experts, block_size)(ids)
    places, pairs = placed(ids, experts, block_size), ids.numel()
    room = pairs + (experts + 1) * (block_size - 1)
    expected, blocks = [pairs] * room, [-1] * (-(-room // block_size))
    for pair, row in enumerate(places.rows):
        if row >= 0:
            expected[row] = pair
    for expert, (start, stop) in enumerate(zip(places.starts, places.stops, strict=True)):
        blocks[start // block_size : stop // block_size] = [expert] * ((stop - start) // block_size)
    assert all(result.dtype == torch.int32 for result in (sorted_ids, expert_ids, filled))
    assert sorted_ids.tolist() == expected
    assert expert_ids.tolist() == blocks
    assert filled.tolist() == places.stops[-1:]


@pytest.mark.parametrize("block_size", [1, 3, 16, 64, 128])
@pytest.mark.parametrize("tokens", TOKENS)
def test_blocks_of_distinct_experts(tokens: int, block_size: int, tileops_device: torch.device) -> None:
    """Whatever the number of tokens, each expert's pairs stand in order in blocks of its own."""
    check(16, block_size, distinct_ids(tokens, 8, 16, tileops_device))


@pytest.mark.parametrize("block_size", [1, 16, 128])
@pytest.mark.parametrize("tokens", [3, 512])
def test_ids_of_no_expert_have_no_row(tokens: int, block_size: int, tileops_device: torch.device) -> None:
    """Ids below zero, just beyond the experts and at the ends of int32 take no row, whatever stands around them."""
    check(40, block_size, wild_ids(tokens, 6, 40, tileops_device))


@pytest.mark.parametrize("expert", [-1, 0, 3, 299, 300])
def test_one_expert_has_every_row(expert: int, tileops_device: torch.device) -> None:
    """Where all tokens choose one expert, or one that is not here, the others have no blocks."""
    check(300, 16, torch.full((50, 2), expert, dtype=torch.int32, device=tileops_device))


@pytest.mark.parametrize("experts", [1, 256, 257, 1024, 1025, 2100])
def test_any_number_of_experts(experts: int, tileops_device: torch.device) -> None:
    """The number of experts is not bound by what is counted at a time."""
    check(experts, 4, wild_ids(64, 5, experts, tileops_device))


def test_every_expert_of_every_token(tileops_device: torch.device) -> None:
    """With as many choices as experts each expert has each token."""
    check(12, 8, distinct_ids(9, 12, 12, tileops_device))


def test_defaults_to_blocks_of_64(tileops_device: torch.device) -> None:
    """A block has 64 rows where nothing is said."""
    ids = torch.zeros(2, 1, dtype=torch.int32, device=tileops_device)
    sorted_ids, expert_ids, filled = MoEPermuteAlignFwdOp(3)(ids)
    assert (len(sorted_ids), len(expert_ids), filled.tolist()) == (2 + 4 * 63, 4, [64])


def test_equal_calls_give_equal_results(tileops_device: torch.device) -> None:
    """Pairs of one expert stand in the same order every time."""
    ids = wild_ids(512, 8, 7, tileops_device)
    op = MoEPermuteAlignFwdOp(7, 16)
    first = op(ids)
    for _ in range(3):
        assert all(torch.equal(once, again) for once, again in zip(first, op(ids), strict=True))


def test_refuses_no_experts_and_no_rows() -> None:
    """There is an expert and a row of a block at least."""
    with pytest.raises(ParameterError, match=r"MoEPermuteAlignFwdOp: num_experts: expected at least 1, received 0"):
        MoEPermuteAlignFwdOp(0)
    with pytest.raises(ParameterError, match=r"MoEPermuteAlignFwdOp: block_size: expected at least 1, received 0"):
        MoEPermuteAlignFwdOp(4, 0)


def test_refuses_other_ids() -> None:
    """Ids are int32, a row of them for each token."""
    op = MoEPermuteAlignFwdOp(4)
    with pytest.raises(DTypeError, match=r"MoEPermuteAlignFwdOp: topk_ids: expected dtype int32.*int64"):
        op(torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ShapeError, match=r"MoEPermuteAlignFwdOp.*topk_ids"):
        op(torch.zeros(6, dtype=torch.int32))
