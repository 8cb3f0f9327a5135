"""Predicates: what the contents of a metadata tensor satisfy; the tensor itself is the first argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from tileops.manifest.primitives import Layout, field_of


def prefix_offsets(offsets: Tensor, total: int) -> bool:
    """Whether offsets begin at 0, never fall, and end at the total."""
    offsets = offsets.long()
    return (
        offsets.numel() > 0 and int(offsets[0]) == 0 and bool((offsets.diff() >= 0).all()) and int(offsets[-1]) == total
    )


def max_segment(offsets: Tensor, bound: int) -> bool:
    """Whether no segment is longer than the bound."""
    return bool((offsets.long().diff() <= bound).all())


def in_range(values: Tensor, low: int, high: int) -> bool:
    """Whether every value is at least `low` and below `high`."""
    values = values.long()
    return bool(((values >= low) & (values < high)).all())


def sums_to(values: Tensor, total: int) -> bool:
    """Whether the values sum to the total."""
    return int(values.long().sum()) == total


def exclusive_prefix_of(offsets: Tensor, lengths: Tensor) -> bool:
    """Whether each offset is the sum of the lengths before it."""
    offsets, lengths = offsets.long(), lengths.long()
    return offsets.shape == lengths.shape and bool((offsets == lengths.cumsum(0) - lengths).all())


def indices_within(pairs: Tensor, offsets: Tensor) -> bool:
    """Whether each (segment, position) names a segment and a position inside it."""
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        return False
    segments, positions = pairs[:, 0].long(), pairs[:, 1].long()
    lengths = offsets.long().diff()
    if not in_range(segments, 0, len(lengths)):
        return False
    return bool(((positions >= 0) & (positions < lengths[segments])).all())


def chunk_offsets_of(chunks: Tensor, offsets: Tensor, chunk: int) -> bool:
    """Whether the values are the running sums of the segments' chunk counts."""
    chunks, offsets = chunks.long(), offsets.long()
    counts = (offsets.diff() + chunk - 1) // chunk
    expected = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return chunks.shape == expected.shape and bool((chunks == expected).all())


def paged_fits(lengths: Tensor, offsets: Tensor, capacity: int) -> bool:
    """Whether each length and its segment together stay within the capacity."""
    if len(offsets) != len(lengths) + 1:
        return False
    return bool((lengths.long() + offsets.long().diff() <= capacity).all())


def layout_valid(metadata: Tensor, layout: Layout, rows: int, experts: int) -> bool:
    """Whether metadata is legal for the layout of `rows` rows among the experts.

    Rows behind those of the last expert are no expert's; where each row names its expert they name one beyond.
    """
    metadata = metadata.long()
    if layout.kind == "masked":
        return metadata.shape == (experts,) and in_range(metadata, 0, field_of(layout, "max_m") + 1)
    alignment = field_of(layout, "alignment")
    if getattr(layout, "metadata_kind", None) == "per_row":
        changes = metadata.diff()
        places = changes.nonzero().flatten() + 1
        return (
            metadata.shape == (rows,)
            and in_range(metadata, 0, experts + 1)
            and bool((changes >= 0).all())
            and bool((places % alignment == 0).all())
        )
    if metadata.shape != (experts,) or not in_range(metadata, 0, rows + 1) or bool((metadata.diff() < 0).any()):
        return False
    ends = torch.cat([metadata.new_zeros(1), metadata])
    starts = (ends[:-1] + alignment - 1) // alignment * alignment
    return bool(((metadata >= starts) | (metadata == ends[:-1])).all())


PREDICATES: Final[Mapping[str, Callable[..., bool]]] = {
    "prefix_offsets": prefix_offsets,
    "max_segment": max_segment,
    "in_range": in_range,
    "sums_to": sums_to,
    "exclusive_prefix_of": exclusive_prefix_of,
    "indices_within": indices_within,
    "chunk_offsets_of": chunk_offsets_of,
    "attn.paged_fits": paged_fits,
    "moe.layout_valid": layout_valid,
}
