"""What routing means: the choice of experts, rows placed by expert, and rows of tokens added up."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tileops.manifest.primitives import capacity
from tileops.moe.epilogues import RoutingEpilogue, RoutingWeighting
from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata, MaskedLayout

__all__ = [
    "fused_topk_fwd",
    "most_choices",
    "most_experts",
    "permute_align_fwd",
    "post_permute_fwd",
    "post_permute_terms",
    "pre_permute_fwd",
]

Layout = ContiguousLayout | MaskedLayout


def _placed(ids: Tensor, experts: int, alignment: int) -> tuple[Tensor, Tensor, Tensor]:
    """The row of each pair, -1 where its expert is not here, and each expert's first row and that after its last."""
    flat = ids.flatten().long()
    present = (flat >= 0) & (flat < experts)
    order = torch.where(present, flat, experts).argsort(stable=True)[: int(present.sum())]
    counts = (flat[:, None] == torch.arange(experts, device=ids.device)).sum(0)
    padded = (counts + alignment - 1) // alignment * alignment
    starts = padded.cumsum(0) - padded
    rank = torch.arange(len(order), device=ids.device) - (counts.cumsum(0) - counts)[flat[order]]
    places = torch.full_like(flat, -1)
    places[order] = starts[flat[order]] + rank
    return places, starts, starts + counts


def permute_align_fwd(topk_ids: Tensor, *, num_experts: int, block_size: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pair of each row, the expert of each block, and the rows of experts."""
    places, starts, ends = _placed(topk_ids, num_experts, block_size)
    pairs, rows = len(places), len(places) + (num_experts + 1) * (block_size - 1)
    sorted_ids = places.new_full((rows,), pairs)
    sorted_ids[places[places >= 0]] = torch.arange(pairs, device=places.device)[places >= 0]
    filled = starts[-1:] + (ends[-1:] - starts[-1:] + block_size - 1) // block_size * block_size
    first_rows = torch.arange(0, rows, block_size, device=places.device)
    experts = torch.searchsorted(starts, first_rows, right=True) - 1
    return sorted_ids.int(), torch.where(first_rows < filled, experts, -1).int(), filled.int()


def pre_permute_fwd(
    hidden_states: Tensor, local_expert_ids: Tensor, *, layout: ContiguousLayout, num_local_experts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return experts' rows in float64, NaN where they are undefined, their metadata, and each pair's row."""
    places, starts, ends = _placed(local_expert_ids, num_local_experts, layout.alignment)
    rows = capacity(layout, len(places), num_local_experts)
    expert_input = hidden_states.new_full((rows, hidden_states.shape[1]), math.nan, dtype=torch.float64)
    tokens = torch.arange(len(places), device=places.device) // max(local_expert_ids.shape[1], 1)
    present = places >= 0
    expert_input[places[present]] = hidden_states.double()[tokens[present]]
    if layout.metadata_kind == ContiguousMetadata.PHYSICAL_PSUM:
        return expert_input, ends.int(), places.int()
    row = torch.arange(rows, device=places.device)
    beyond = starts[-1] + (ends[-1] - starts[-1] + layout.alignment - 1) // layout.alignment * layout.alignment
    expert = torch.searchsorted(starts, row, right=True) - 1
    return expert_input, torch.where(row < beyond, expert, num_local_experts).int(), places.int()


def post_permute_fwd(
    expert_output: Tensor,
    topk_weights: Tensor,
    inverse_indices: Tensor,
    *,
    layout: Layout,
    epilogue: RoutingEpilogue | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the weighted sum of each token's rows in float64, scaled."""
    del layout, out_dtype
    return _summed_rows(expert_output.double(), topk_weights.double(), inverse_indices, epilogue)


def post_permute_terms(
    expert_output: Tensor,
    topk_weights: Tensor,
    inverse_indices: Tensor,
    *,
    layout: Layout,
    epilogue: RoutingEpilogue | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return what the absolute values of the terms behind `post_permute_fwd` add up to."""
    del layout, out_dtype
    return _summed_rows(expert_output.double().abs(), topk_weights.double().abs(), inverse_indices, epilogue).abs()


def _summed_rows(rows: Tensor, weights: Tensor, places: Tensor, epilogue: RoutingEpilogue | None) -> Tensor:
    epilogue = epilogue or RoutingEpilogue()
    places = places.long().view(weights.shape)
    padded = torch.cat([rows.flatten(0, -2), rows.new_zeros(1, rows.shape[-1])])
    chosen = padded[torch.where(places < 0, len(padded) - 1, places)]
    if epilogue.weighting == RoutingWeighting.WEIGHTED:
        chosen = torch.where(places[..., None] < 0, 0, chosen * weights[..., None])
    return epilogue.scale * chosen.sum(1)


def fused_topk_fwd(
    gating_output: Tensor,
    correction_bias: Tensor | None,
    *,
    top_k: int,
    scoring_func: str = "softmax",
    renormalize: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the largest scores in float32 and their ids, equal ones by id; a stable sort puts NaN first."""
    logits = gating_output.float()
    scores = logits.softmax(-1) if scoring_func == "softmax" else logits.sigmoid()
    by = scores if correction_bias is None else scores + correction_bias
    ids = by.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]
    weights = scores.gather(-1, ids)
    return weights / weights.sum(-1, keepdim=True) if renormalize else weights, ids.int()


def most_choices(values: Mapping[str, object]) -> int:
    """Return the number of a token's experts; where only the construction is known, what a model has."""
    choices = values.get("K", 8)
    return choices if isinstance(choices, int) else 8


def most_experts(values: Mapping[str, object]) -> int:
    """Return the number of experts; where only the construction is known, the most that a model has."""
    experts = values.get("E", 384)
    return experts if isinstance(experts, int) else 384
