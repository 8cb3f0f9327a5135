"""Generators of metadata: shapes as declared, contents that their predicates accept, the same in every run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tileops.errors import ExpressionError
from tileops.manifest import generators, predicates
from tileops.manifest.functions import GENERATOR_KINDS
from tileops.manifest.generators import GENERATORS, SHAPES
from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata, ContiguousPacking, MaskedLayout

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=5)
PER_ROW = ContiguousLayout(packing=ContiguousPacking.ALIGNED, alignment=4)
ENDS = ContiguousLayout(metadata_kind=ContiguousMetadata.PHYSICAL_PSUM)
ALIGNED_ENDS = ContiguousLayout(
    packing=ContiguousPacking.ALIGNED, metadata_kind=ContiguousMetadata.PHYSICAL_PSUM, alignment=4
)
SLAB = MaskedLayout(max_m=6)
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "as_tensor": ((3, 0, 2),),
    "prefix_sum": ((3, 0, 2),),
    "exclusive_prefix_sum": ((3, 0, 2),),
    "chunk_indices": ((3, 0, 5), 2),
    "token_indices": ((3, 0, 2),),
    "packed_positions": ((3, 0, 2),),
    "chunk_offsets": ((3, 0, 5), 2),
    "paged_block_table": (3, 4, 20),
    "nsa_block_indices": ((9, 0, 4), 2, 3, 2),
    "nsa_block_counts": (7, 2, 3),
    "topk_ids": (5, 3, 8),
    "random_ids": (5, 3, 2),
    "sample_indices": (5, 9),
    "moe.layout_metadata": (PER_ROW, 24, 3),
    "moe.masked_routed_metadata": (SLAB, 4, 12),
    "moe.inverse_indices": (12, 8),
    "causal_topk_indices": (2, 5, 3, 4, 6, 1, 1),
    "attn.sparse_topk_positions": ((9, 3), 2, 4),
    "key_windows": ((3, 4), 2, 5, "start"),
    "full": ((2, 3), 7),
}


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_the_shape_is_known_beforehand(name: str) -> None:
    """The shape that a generator declares for its arguments is that of what it makes, twice the same."""
    made = GENERATORS[name](*ARGUMENTS[name])
    assert tuple(made.shape) == SHAPES[name](*ARGUMENTS[name])
    assert torch.equal(made, GENERATORS[name](*ARGUMENTS[name]))


def test_every_generator_has_a_kind() -> None:
    """The functions, their shapes and their kinds name the same 20 generators."""
    assert sorted(GENERATORS) == sorted(SHAPES) == sorted(GENERATOR_KINDS)
    assert len(GENERATORS) == 20


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 4))
def test_packed_batches(lengths: list[int], chunk: int) -> None:
    """Offsets, positions and chunks of a packed batch are what a loop over its segments gives."""
    tokens = [(segment, place) for segment, size in enumerate(lengths) for place in range(size)]
    chunks = [(segment, first // chunk) for segment, first in tokens if first % chunk == 0]
    starts = [sum(lengths[:segment]) for segment in range(len(lengths) + 1)]
    assert generators.as_tensor(lengths).tolist() == lengths
    assert generators.prefix_sum(lengths).tolist() == starts
    assert generators.exclusive_prefix_sum(lengths).tolist() == starts[:-1]
    assert generators.token_indices(lengths).tolist() == [list(pair) for pair in tokens]
    assert generators.packed_positions(lengths).tolist() == [place for _, place in tokens]
    assert generators.chunk_indices(lengths, chunk).tolist() == [list(pair) for pair in chunks]
    counts = [sum(segment == other for other, _ in chunks) for segment in range(len(lengths))]
    assert generators.chunk_offsets(lengths, chunk).tolist() == [sum(counts[:n]) for n in range(len(lengths) + 1)]


@settings(deadline=None)
@given(LENGTHS)
def test_key_windows(lengths: list[int]) -> None:
    """A query's window begins with its sequence and ends behind itself."""
    count = sum(lengths)
    starts = [sum(lengths[:segment]) for segment, size in enumerate(lengths) for _ in range(size)]
    assert generators.key_windows(lengths, 0, count, "start").tolist() == starts
    assert generators.key_windows(lengths, 0, count, "end").tolist() == list(range(1, count + 1))


def test_pages() -> None:
    """Requests have disjoint pages while the pool has enough, and distinct ones each otherwise."""
    assert len(set(generators.paged_block_table(3, 4, 12).flatten().tolist())) == 12
    for row in generators.paged_block_table(5, 4, 6).tolist():
        assert len(set(row)) == 4


def test_distinct_choices() -> None:
    """Chosen ids are distinct and in range."""
    for row in generators.topk_ids(20, 4, 6).tolist():
        assert len(set(row)) == 4
        assert set(row) <= set(range(6))
    assert len(set(generators.sample_indices(7, 9).tolist())) == 7
    assert predicates.in_range(generators.random_ids(20, 4, 3), 0, 3)
    assert predicates.in_range(generators.nsa_block_counts(20, 2, 5), 1, 6)


def test_visible_blocks() -> None:
    """A token's blocks are ascending, distinct and seen by it, then padded with the number of tokens."""
    lengths, block, selected = (9, 0, 4), 2, 3
    made = generators.nsa_block_indices(lengths, block, selected, 2)
    for position, heads in zip(generators.packed_positions(lengths).tolist(), made.tolist(), strict=True):
        visible = position // block + 1
        for row in heads:
            real = [found for found in row if found != 13]
            assert real == sorted(set(real))
            assert len(real) == min(selected, visible)
            assert all(0 <= found < visible for found in real)
            assert row[len(real) :] == [13] * (selected - len(real))


def test_visible_keys() -> None:
    """A query's keys are distinct and seen by it, then padded."""
    made = generators.causal_topk_indices(2, 9, 3, 4, 6, 1, 2)
    for batch in made.tolist():
        for query, heads in enumerate(batch):
            for row in heads:
                visible = min((query + 2) // 2, 6)
                real = [found for found in row if found != 6]
                assert len(set(real)) == len(real) == min(4, visible)
                assert all(0 <= found < visible for found in real)
    last = generators.sparse_topk_positions((9, 1), 2, 4).tolist()
    assert [[sum(found >= 0 for found in row) for row in rows] for rows in last] == [[4, 4], [0, 1]]


@pytest.mark.parametrize(
    ("layout", "rows"), [(PER_ROW, 24), (ContiguousLayout(), 7), (ENDS, 7), (ALIGNED_ENDS, 24), (SLAB, 0)]
)
def test_layout_metadata_is_valid(layout: ContiguousLayout | MaskedLayout, rows: int) -> None:
    """Generated metadata of each layout satisfies the layout's own predicate."""
    assert predicates.layout_valid(generators.layout_metadata(layout, rows, 3), layout, rows, 3)


def test_layout_metadata_of_each_form() -> None:
    """A slab alternates full and half; rows name their expert; ends run, with half a tile of slack when aligned."""
    assert generators.layout_metadata(SLAB, 0, 3).tolist() == [6, 3, 6]
    assert generators.layout_metadata(PER_ROW, 12, 2).tolist() == [0] * 8 + [1] * 4
    assert generators.layout_metadata(ENDS, 7, 3).tolist() == [3, 5, 7]
    assert generators.layout_metadata(ALIGNED_ENDS, 12, 2).tolist() == [6, 10]
    assert generators.masked_routed_metadata(SLAB, 4, 12).tolist() == [4, 2, 4, 2]


def test_inverse_indices_give_each_pair_a_row_while_there_are_any() -> None:
    """Rows are distinct; pairs for which none is left have -1."""
    assert generators.inverse_indices(4, 4).sort().values.tolist() == [0, 1, 2, 3]
    assert len(set(generators.inverse_indices(5, 9).tolist())) == 5
    assert generators.inverse_indices(6, 4).sort().values.tolist() == [-1, -1, 0, 1, 2, 3]
    assert generators.inverse_indices(3, 0).tolist() == [-1] * 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: generators.as_tensor((1, -1)), r"a length is negative: \(1, -1\)"),
        (lambda: generators.paged_block_table(2, 5, 4), "a table 5 wide needs as many pages, and the pool has 4"),
        (lambda: generators.topk_ids(2, 5, 4), "5 distinct ids need as many experts, not 4"),
        (lambda: generators.sample_indices(5, 4), "there are no 5 distinct indices below 4"),
        (lambda: generators.layout_metadata(PER_ROW, 6, 2), "6 rows are not whole tiles of 4"),
        (lambda: generators.masked_routed_metadata(SLAB, 2, 30), "an expert would get 20 rows, more than max_m 6"),
        (lambda: generators.key_windows((3,), 1, 3, "end"), "there are no 3 tokens from 1 on in 3"),
    ],
)
def test_impossible_contents_are_refused(make: Callable[[], torch.Tensor], message: str) -> None:
    """Arguments for which no contents exist raise the language's own error."""
    with pytest.raises(ExpressionError, match=message):
        make()
