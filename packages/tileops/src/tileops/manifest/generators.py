"""Generators: the contents of metadata tensors in workloads, the same in every run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor

from tileops.errors import ExpressionError
from tileops.manifest.primitives import Dims, Layout, balanced_sizes, ceil_div, field_of

Lengths: TypeAlias = Sequence[int]

SEED: Final = 1235
"""The seed of every pseudo-random generator."""
MOST_MADE: Final = 1 << 28
"""The elements that a generator may make, those that it then leaves out included."""


def _random() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def _whole(values: Iterable[object], *shape: int) -> Tensor:
    found = torch.tensor(list(values), dtype=torch.int64)
    return found.reshape(shape) if shape else found


def _room(*extents: int) -> None:
    """Refuse more elements than a generator may make on its way."""
    if math.prod(extents) > MOST_MADE:
        raise ExpressionError(f"{math.prod(extents)} elements are too many to make; at most {MOST_MADE}")


def _checked(lengths: Lengths) -> Lengths:
    if any(size < 0 for size in lengths):
        raise ExpressionError(f"a length is negative: {tuple(lengths)}")
    return lengths


def as_tensor(lengths: Lengths) -> Tensor:
    """Return the lengths themselves; none is negative."""
    return _whole(_checked(lengths))


def prefix_sum(lengths: Lengths) -> Tensor:
    """Return 0 and the running sums: where each segment begins, and where the last ends."""
    return _whole(itertools.accumulate(_checked(lengths), initial=0))


def exclusive_prefix_sum(lengths: Lengths) -> Tensor:
    """Return for each length the sum of those before it."""
    return prefix_sum(lengths)[:-1]


def chunk_indices(lengths: Lengths, chunk: int) -> Tensor:
    """Return (segment, chunk) for every chunk of every segment."""
    counts = _chunk_counts(lengths, chunk)
    _room(sum(counts))
    return _whole(((i, j) for i, count in enumerate(counts) for j in range(count)), sum(counts), 2)


def token_indices(lengths: Lengths) -> Tensor:
    """Return (segment, position) for every token."""
    return chunk_indices(lengths, 1)


def packed_positions(lengths: Lengths) -> Tensor:
    """Return every token's position in its segment."""
    return token_indices(lengths)[:, 1]


def chunk_offsets(lengths: Lengths, chunk: int) -> Tensor:
    """Return 0 and the running sums of the segments' chunk counts."""
    return prefix_sum(_chunk_counts(lengths, chunk))


def _chunk_counts(lengths: Lengths, chunk: int) -> list[int]:
    return [ceil_div(size, chunk) for size in _checked(lengths)]


def paged_block_table(batch: int, width: int, pool: int) -> Tensor:
    """Return random pages for each request, disjoint where the pool has enough of them."""
    _room(pool)
    random = _random()
    if batch * width <= pool:
        return torch.randperm(pool, generator=random)[: batch * width].reshape(batch, width)
    if width > pool:
        raise ExpressionError(f"a table {width} wide needs as many pages, and the pool has {pool}")
    return torch.stack([torch.randperm(pool, generator=random)[:width] for _ in range(batch)])


def nsa_block_indices(lengths: Lengths, block: int, selected: int, heads: int) -> Tensor:
    """Return for each token and head distinct blocks that it sees, ascending, padded with the number of tokens."""
    tokens = sum(_checked(lengths))
    visible = packed_positions(lengths) // block + 1
    widest = int(visible.max()) if tokens else 0
    _room(tokens, heads, max(widest, selected))
    order = torch.rand(tokens, heads, max(widest, selected), generator=_random())
    hidden = torch.arange(order.shape[-1]) >= visible[:, None, None]
    chosen = order.masked_fill(hidden, 2.0).argsort(-1)[..., :selected]
    padded = torch.arange(selected) >= visible[:, None, None]
    return chosen.masked_fill(padded, tokens).sort(-1).values


def nsa_block_counts(tokens: int, heads: int, selected: int) -> Tensor:
    """Return counts from 1 to `selected`."""
    if selected < 1:
        raise ExpressionError(f"there are no counts from 1 to {selected}")
    return torch.randint(1, selected + 1, (tokens, heads), generator=_random())


def topk_ids(rows: int, count: int, experts: int) -> Tensor:
    """Return distinct experts for each row."""
    if count > experts:
        raise ExpressionError(f"{count} distinct ids need as many experts, not {experts}")
    _room(rows, experts)
    return torch.rand(rows, experts, generator=_random()).argsort(-1)[:, :count]


def random_ids(rows: int, width: int, upper: int) -> Tensor:
    """Return ids below `upper`, each drawn alone."""
    if upper < 1:
        raise ExpressionError(f"there is no id below {upper}")
    return torch.randint(0, upper, (rows, width), generator=_random())


def sample_indices(count: int, upper: int) -> Tensor:
    """Return distinct indices below `upper`."""
    if count > upper:
        raise ExpressionError(f"there are no {count} distinct indices below {upper}")
    _room(upper)
    return torch.randperm(upper, generator=_random())[:count]


def layout_metadata(layout: Layout, rows: int, experts: int) -> Tensor:
    """Return metadata that shares the rows evenly among the experts, in the layout's own form."""
    if layout.kind == "masked":
        most = field_of(layout, "max_m")
        return _whole(most if expert % 2 == 0 else most // 2 for expert in range(experts))
    alignment = field_of(layout, "alignment")
    if rows % alignment:
        raise ExpressionError(f"{rows} rows are not whole tiles of {alignment}")
    sizes = [tiles * alignment for tiles in balanced_sizes(rows // alignment, experts)]
    if getattr(layout, "metadata_kind", None) == "per_row":
        return torch.arange(experts).repeat_interleave(_whole(sizes))
    slack = _whole(alignment // 2 if size else 0 for size in sizes)
    return prefix_sum(sizes)[1:] - slack


def masked_routed_metadata(layout: Layout, experts: int, tokens: int) -> Tensor:
    """Return counts that sum to `tokens`, twice as many for even experts as for odd ones."""
    shares = [2 if expert % 2 == 0 else 1 for expert in range(experts)]
    counts = [tokens * share // sum(shares) for share in shares]
    for expert in range(tokens - sum(counts)):
        counts[expert % experts] += 1
    most = field_of(layout, "max_m")
    if max(counts, default=0) > most:
        raise ExpressionError(f"an expert would get {max(counts)} rows, more than max_m {most}")
    return _whole(counts)


def inverse_indices(pairs: int, rows: int) -> Tensor:
    """Return a row of its own for each pair, -1 for those that find none."""
    _room(max(pairs, rows))
    places = torch.randperm(max(pairs, rows), generator=_random())[:pairs]
    return places.masked_fill(places >= rows, -1)


def _spread(visible: Tensor, count: int, padding: int) -> Tensor:
    """Return `count` distinct numbers below each of `visible`, padded where there are fewer."""
    places = torch.arange(count)
    seen = visible[..., None]
    start = (torch.rand(visible.shape, generator=_random()) * visible).long()[..., None]
    step = (seen // count).clamp(min=1)
    return ((start + places * step) % seen.clamp(min=1)).masked_fill(places >= seen, padding)


def causal_topk_indices(
    batch: int, queries: int, heads: int, count: int, extent: int, start: int, stride: int
) -> Tensor:
    """Return for each query distinct keys that it sees, padded with the extent; a key covers `stride` positions."""
    visible = ((torch.arange(queries) + start + 1) // stride).clamp(max=extent)
    return _spread(visible[None, :, None].expand(batch, queries, heads), count, extent)


def sparse_topk_positions(lengths: Lengths, queries: int, count: int) -> Tensor:
    """Return for each of a sequence's last tokens distinct positions that it sees, padded with -1."""
    visible = _whole(_checked(lengths))[:, None] - queries + 1 + torch.arange(queries)
    return _spread(visible.clamp(min=0), count, -1)


def key_windows(lengths: Lengths, first: int, count: int, side: Literal["start", "end"]) -> Tensor:
    """Return for each query of a packed batch the first key of its sequence, or the end of its own keys."""
    if first + count > sum(_checked(lengths)):
        raise ExpressionError(f"there are no {count} tokens from {first} on in {sum(lengths)}")
    queries = torch.arange(first, first + count)
    if side == "end":
        return queries + 1
    _room(sum(lengths))
    starts = exclusive_prefix_sum(lengths).repeat_interleave(_whole(lengths))
    return starts[queries]


def full(shape: Sequence[int], value: float) -> Tensor:
    """Return a tensor of one value."""
    return torch.full(tuple(shape), value)


def _rows(layout: Layout, rows: int, experts: int) -> Dims:
    return (rows,) if getattr(layout, "metadata_kind", None) == "per_row" else (experts,)


SHAPES: Final[Mapping[str, Callable[..., Dims]]] = {
    "as_tensor": lambda lengths: (len(lengths),),
    "prefix_sum": lambda lengths: (len(lengths) + 1,),
    "exclusive_prefix_sum": lambda lengths: (len(lengths),),
    "chunk_indices": lambda lengths, chunk: (sum(_chunk_counts(lengths, chunk)), 2),
    "token_indices": lambda lengths: (sum(lengths), 2),
    "packed_positions": lambda lengths: (sum(lengths),),
    "chunk_offsets": lambda lengths, _: (len(lengths) + 1,),
    "paged_block_table": lambda batch, width, _: (batch, width),
    "nsa_block_indices": lambda lengths, _, selected, heads: (sum(lengths), heads, selected),
    "nsa_block_counts": lambda tokens, heads, _: (tokens, heads),
    "topk_ids": lambda rows, count, _: (rows, count),
    "random_ids": lambda rows, width, _: (rows, width),
    "sample_indices": lambda count, _: (count,),
    "moe.layout_metadata": _rows,
    "moe.masked_routed_metadata": lambda _, experts, __: (experts,),
    "moe.inverse_indices": lambda pairs, _: (pairs,),
    "causal_topk_indices": lambda batch, queries, heads, count, *_: (batch, queries, heads, count),
    "attn.sparse_topk_positions": lambda lengths, queries, count: (len(lengths), queries, count),
    "key_windows": lambda _, __, count, ___: (count,),
    "full": lambda shape, _: tuple(shape),
}
"""The shape that each generator gives, from its arguments alone."""

GENERATORS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "as_tensor": as_tensor,
    "prefix_sum": prefix_sum,
    "exclusive_prefix_sum": exclusive_prefix_sum,
    "chunk_indices": chunk_indices,
    "token_indices": token_indices,
    "packed_positions": packed_positions,
    "chunk_offsets": chunk_offsets,
    "paged_block_table": paged_block_table,
    "nsa_block_indices": nsa_block_indices,
    "nsa_block_counts": nsa_block_counts,
    "topk_ids": topk_ids,
    "random_ids": random_ids,
    "sample_indices": sample_indices,
    "moe.layout_metadata": layout_metadata,
    "moe.masked_routed_metadata": masked_routed_metadata,
    "moe.inverse_indices": inverse_indices,
    "causal_topk_indices": causal_topk_indices,
    "attn.sparse_topk_positions": sparse_topk_positions,
    "key_windows": key_windows,
    "full": full,
}
