"""Predicates of contents, each on contents that it accepts and on ones that it refuses."""

from __future__ import annotations

import pytest
import torch

from tileops.manifest.functions import PREDICATE_KINDS
from tileops.manifest.predicates import PREDICATES
from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata, ContiguousPacking, MaskedLayout

OFFSETS = torch.tensor([0, 3, 3, 5])
PER_ROW = ContiguousLayout(packing=ContiguousPacking.ALIGNED, alignment=2)
ENDS = ContiguousLayout(metadata_kind=ContiguousMetadata.PHYSICAL_PSUM)
ALIGNED_ENDS = ContiguousLayout(
    packing=ContiguousPacking.ALIGNED, metadata_kind=ContiguousMetadata.PHYSICAL_PSUM, alignment=4
)
SLAB = MaskedLayout(max_m=6)
CASES: list[tuple[str, list[object], tuple[object, ...], bool]] = [
    ("prefix_offsets", [0, 3, 3, 5], (5,), True),
    ("prefix_offsets", [0, 3, 3, 5], (6,), False),
    ("prefix_offsets", [1, 3], (3,), False),
    ("prefix_offsets", [0, 4, 3], (3,), False),
    ("prefix_offsets", [], (0,), False),
    ("max_segment", [0, 3, 5], (3,), True),
    ("max_segment", [0, 3, 7], (3,), False),
    ("in_range", [[0, 2], [1, 3]], (0, 4), True),
    ("in_range", [0, 4], (0, 4), False),
    ("in_range", [-1], (0, 4), False),
    ("sums_to", [1, 2, 3], (6,), True),
    ("sums_to", [1, 2, 3], (7,), False),
    ("exclusive_prefix_of", [0, 2, 5], (torch.tensor([2, 3, 4]),), True),
    ("exclusive_prefix_of", [0, 3, 5], (torch.tensor([2, 3, 4]),), False),
    ("exclusive_prefix_of", [0, 2], (torch.tensor([2, 3, 4]),), False),
    ("indices_within", [[0, 2], [2, 1]], (OFFSETS,), True),
    ("indices_within", [[1, 0]], (OFFSETS,), False),
    ("indices_within", [[3, 0]], (OFFSETS,), False),
    ("indices_within", [[0, 3]], (OFFSETS,), False),
    ("chunk_offsets_of", [0, 2, 2, 3], (OFFSETS, 2), True),
    ("chunk_offsets_of", [0, 1, 2, 3], (OFFSETS, 2), False),
    ("attn.paged_fits", [1, 4, 2], (OFFSETS, 4), True),
    ("attn.paged_fits", [2, 4, 2], (OFFSETS, 4), False),
    ("moe.layout_valid", [6, 0], (SLAB, 0, 2), True),
    ("moe.layout_valid", [7, 0], (SLAB, 0, 2), False),
    ("moe.layout_valid", [0, 0, 1, 1], (PER_ROW, 4, 2), True),
    ("moe.layout_valid", [0, 1, 1, 1], (PER_ROW, 4, 2), False),
    ("moe.layout_valid", [1, 1, 0, 0], (PER_ROW, 4, 2), False),
    ("moe.layout_valid", [0, 0, 2, 2], (PER_ROW, 4, 2), True),
    ("moe.layout_valid", [0, 0, 3, 3], (PER_ROW, 4, 2), False),
    ("moe.layout_valid", [3, 5], (ENDS, 5, 2), True),
    ("moe.layout_valid", [3, 4], (ENDS, 5, 2), True),
    ("moe.layout_valid", [3, 6], (ENDS, 5, 2), False),
    ("moe.layout_valid", [5, 3], (ENDS, 5, 2), False),
    ("moe.layout_valid", [2, 7], (ALIGNED_ENDS, 8, 2), True),
    ("moe.layout_valid", [2, 3], (ALIGNED_ENDS, 8, 2), False),
]


@pytest.mark.parametrize(("name", "contents", "arguments", "expected"), CASES)
def test_a_predicate(name: str, contents: list[object], arguments: tuple[object, ...], expected: bool) -> None:
    """Each predicate accepts contents that keep its contract and refuses ones that break one part of it."""
    assert PREDICATES[name](torch.tensor(contents, dtype=torch.int64), *arguments) is expected


def test_every_predicate_has_a_kind_and_both_answers() -> None:
    """The functions and their kinds name the same 9 predicates, and the cases give both answers for each."""
    assert sorted(PREDICATES) == sorted(PREDICATE_KINDS)
    assert len(PREDICATES) == 9
    assert {(name, expected) for name, _, _, expected in CASES} == {(n, a) for n in PREDICATES for a in (True, False)}


def test_narrow_contents_do_not_wrap() -> None:
    """Contents of a narrow dtype are compared as the numbers that they are: 3 - 5 is not 254."""
    falling = torch.tensor([0, 5, 3, 7], dtype=torch.uint8)
    assert PREDICATES["prefix_offsets"](falling, 7) is False
    assert PREDICATES["exclusive_prefix_of"](falling, torch.tensor([5, 254, 4, 0], dtype=torch.uint8)) is False
    assert PREDICATES["sums_to"](torch.tensor([100, 100, 100], dtype=torch.int8), 300) is True
