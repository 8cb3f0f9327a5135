"""What each op of the moe family means, in plain PyTorch and float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tileops.manifest.primitives import capacity
from tileops.moe.epilogues import RoutingEpilogue, RoutingWeighting
from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata, MaskedLayout
from tileops_testing.inputs import Values
from tileops_testing.references.reference import Reference

__all__ = [
    "REFERENCES",
    "expert_mlp_fwd",
    "experts_rows",
    "fused_moe_fwd",
    "fused_moe_shared_expert_fwd",
    "fused_topk_fwd",
    "grouped_gemm_fwd",
    "indexed_expert_mlp_fwd",
    "post_permute_fwd",
    "pre_permute_fwd",
    "shared_expert_mlp_fwd",
]

Layout = ContiguousLayout | MaskedLayout

_STEEPEST = 1.2
"""A bound of the slope of silu and of gelu."""

_WEIGHTS: Mapping[str, Values] = dict.fromkeys(("w_gate_up", "w_down", "shared_w_gate_up", "shared_w_down"), "small")
"""Weights whose products of unit activations, one after the other, stay in the range of float16."""


def experts_rows(layout: Layout, metadata: Tensor, rows: int, experts: int) -> Iterator[tuple[int, slice]]:
    """Yield each expert and its rows, those of a masked layout counted through all slabs."""
    entries = metadata.tolist()
    if isinstance(layout, MaskedLayout):
        for expert, count in enumerate(entries):
            yield expert, slice(expert * layout.max_m, expert * layout.max_m + count)
    elif layout.metadata_kind == ContiguousMetadata.PER_ROW:
        for expert in range(experts):
            places = [row for row in range(rows) if entries[row] == expert]
            yield expert, slice(places[0], places[-1] + 1) if places else slice(0, 0)
    else:
        last = 0
        for expert, end in enumerate(entries):
            yield expert, slice(math.ceil(last / layout.alignment) * layout.alignment, end)
            last = end


def grouped_gemm_fwd(
    a: Tensor,
    b: Tensor,
    layout_metadata: Tensor,
    *,
    layout: Layout,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return each expert's rows times its weights, activated, in float64; zeros in rows that are no expert's."""
    del out_dtype
    return _by_expert(a, b, layout_metadata, layout, activation)[0]


def _grouped_gemm_terms(
    a: Tensor,
    b: Tensor,
    layout_metadata: Tensor,
    *,
    layout: Layout,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    del out_dtype
    return _by_expert(a, b, layout_metadata, layout, activation)[1]


def expert_mlp_fwd(
    expert_input: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    layout_metadata: Tensor,
    *,
    layout: Layout,
    activation: str = "silu_and_mul",
) -> Tensor:
    """Return the experts' gated MLP in float64, its hidden rows rounded to the input's dtype."""
    hidden, _ = _by_expert(expert_input, w_gate_up, layout_metadata, layout, activation)
    return _by_expert(hidden.to(expert_input.dtype), w_down, layout_metadata, layout, None)[0]


def _expert_mlp_terms(
    expert_input: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    layout_metadata: Tensor,
    *,
    layout: Layout,
    activation: str = "silu_and_mul",
) -> Tensor:
    """The terms behind the second product, weighted by how coarsely each is rounded before it."""
    hidden, terms = _by_expert(expert_input, w_gate_up, layout_metadata, layout, activation)
    coarse = torch.finfo(expert_input.dtype).eps / torch.finfo(torch.float32).eps / 32
    behind = hidden.abs() * coarse + terms
    return _by_expert(behind, w_down.abs(), layout_metadata, layout, None)[1]


def shared_expert_mlp_fwd(hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor) -> Tensor:
    """Return the gated MLP in float64, its hidden rows rounded to the input's dtype."""
    return expert_mlp_fwd(*_of_one_expert(hidden_states, w_gate_up, w_down), layout=_all_of(hidden_states))[0]


def _shared_expert_mlp_terms(hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor) -> Tensor:
    return _expert_mlp_terms(*_of_one_expert(hidden_states, w_gate_up, w_down), layout=_all_of(hidden_states))[0]


def indexed_expert_mlp_fwd(
    output: Tensor,
    hidden_states: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    *,
    routed_scaling_factor: float = 1.0,
    activation: str = "silu_and_mul",
) -> None:
    """Write into output the weighted sums of the experts' MLPs in float64, rounded once."""
    sums = routed_sums(hidden_states, w_gate_up, w_down, topk_weights, topk_ids, activation)
    output.copy_(routed_scaling_factor * sums)


def routed_sums(
    hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor, topk_weights: Tensor, topk_ids: Tensor, activation: str
) -> Tensor:
    """Return the weighted sums of the experts' MLPs in float64."""
    sums = torch.zeros_like(hidden_states, dtype=torch.float64)
    for expert, tokens, weights in _routed(topk_weights, topk_ids, w_down.shape[0]):
        rows = hidden_states[tokens]
        one = _of_one_expert(rows, w_gate_up[expert], w_down[expert])
        result = expert_mlp_fwd(*one, layout=_all_of(rows), activation=activation)[0]
        sums.index_add_(0, tokens, weights[:, None] * result)
    return sums


def _indexed_expert_mlp_terms(
    output: Tensor,
    hidden_states: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    *,
    routed_scaling_factor: float = 1.0,
    activation: str = "silu_and_mul",
) -> Mapping[str, Tensor]:
    del output
    sums = routed_terms(hidden_states, w_gate_up, w_down, topk_weights, topk_ids, activation)
    return {"output": abs(routed_scaling_factor) * sums}


def routed_terms(
    hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor, topk_weights: Tensor, topk_ids: Tensor, activation: str
) -> Tensor:
    """Return what the absolute values of the terms behind `routed_sums` add up to."""
    sums = torch.zeros_like(hidden_states, dtype=torch.float64)
    for expert, tokens, weights in _routed(topk_weights, topk_ids, w_down.shape[0]):
        rows = hidden_states[tokens]
        one = _of_one_expert(rows, w_gate_up[expert], w_down[expert])
        behind = _expert_mlp_terms(*one, layout=_all_of(rows), activation=activation)[0]
        sums.index_add_(0, tokens, weights[:, None].abs() * behind)
    return sums


def _routed(weights: Tensor, ids: Tensor, experts: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each expert that tokens are routed to, with those tokens and their weights for it."""
    for expert in ids.unique().tolist():
        if 0 <= expert < experts:
            tokens, places = (ids == expert).nonzero(as_tuple=True)
            yield expert, tokens, weights[tokens, places].double()


def _all_of(rows: Tensor) -> MaskedLayout:
    """The layout of one expert that has all rows."""
    return MaskedLayout(max_m=rows.shape[0])


def _of_one_expert(rows: Tensor, w_gate_up: Tensor, w_down: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tensors of a layout in which one expert has all rows."""
    return rows[None], w_gate_up[None], w_down[None], torch.tensor([rows.shape[0]], dtype=torch.int32)


def _by_expert(a: Tensor, b: Tensor, metadata: Tensor, layout: Layout, activation: str | None) -> tuple[Tensor, Tensor]:
    """The products and what the absolute values of their terms add up to, zeros in rows that are no expert's."""
    flat = a.double().flatten(0, -2)
    columns = b.shape[1] if activation is None else b.shape[1] // 2
    values = flat.new_zeros((flat.shape[0], columns))
    terms = torch.zeros_like(values)
    for expert, rows in experts_rows(layout, metadata, flat.shape[0], b.shape[0]):
        weights = b[expert].double()
        product, behind = flat[rows] @ weights.T, flat[rows].abs() @ weights.abs().T
        if activation is not None:
            (gate, up), (behind_gate, behind_up) = product.chunk(2, -1), behind.chunk(2, -1)
            active = functional.silu(gate) if activation == "silu_and_mul" else functional.gelu(gate)
            product = active * up
            behind = _STEEPEST * behind_gate * up.abs() + active.abs() * behind_up
        values[rows], terms[rows] = product, behind
    shape = (*a.shape[:-1], columns)
    return values.view(shape), terms.view(shape)


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


def _post_permute_terms(
    expert_output: Tensor,
    topk_weights: Tensor,
    inverse_indices: Tensor,
    *,
    layout: Layout,
    epilogue: RoutingEpilogue | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
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


def fused_moe_fwd(
    hidden_states: Tensor,
    gating_output: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    correction_bias: Tensor | None,
    **parameters: Any,
) -> Tensor:
    """Return each token's weighted sum of its experts' MLPs in float64; all experts are here."""
    experts = w_gate_up, w_down
    return _mixture(routed_sums, hidden_states, experts, gating_output, correction_bias, parameters)


def _fused_moe_terms(
    hidden_states: Tensor,
    gating_output: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    correction_bias: Tensor | None,
    **parameters: Any,
) -> Tensor:
    experts = w_gate_up, w_down
    return _mixture(routed_terms, hidden_states, experts, gating_output, correction_bias, parameters)


def fused_moe_shared_expert_fwd(
    *routed: Tensor | None, tp_size: int = 1, tp_rank: int = 0, **parameters: Any
) -> tuple[Tensor | None, Tensor]:
    """Return a rank's part of the shared expert's MLP, None without one, and `fused_moe_fwd`."""
    *routed, w_gate_up, w_down = routed
    shared = _part(shared_expert_mlp_fwd, routed[0], w_gate_up, w_down, tp_size, tp_rank)
    return shared, fused_moe_fwd(*routed, **parameters)


def _fused_moe_shared_expert_terms(
    *routed: Tensor | None, tp_size: int = 1, tp_rank: int = 0, **parameters: Any
) -> tuple[Tensor | None, Tensor]:
    *routed, w_gate_up, w_down = routed
    shared = _part(_shared_expert_mlp_terms, routed[0], w_gate_up, w_down, tp_size, tp_rank)
    return shared, _fused_moe_terms(*routed, **parameters)


def _mixture(
    compute: Callable[..., Tensor],
    hidden_states: Tensor,
    experts: tuple[Tensor, Tensor],
    gating_output: Tensor,
    correction_bias: Tensor | None,
    parameters: Mapping[str, Any],
) -> Tensor:
    """What `compute` makes of the routed tokens, times the absolute value of the scale, or the scale of sums."""
    routing = {name: parameters[name] for name in ("top_k", "scoring_func", "renormalize") if name in parameters}
    weights, ids = fused_topk_fwd(gating_output, correction_bias, **routing)
    scale = parameters.get("routed_scaling_factor", 1.0)
    activation = parameters.get("activation", "silu_and_mul")
    return (scale if compute is routed_sums else abs(scale)) * compute(
        hidden_states, *experts, weights, ids, activation
    )


def _part(
    compute: Callable[[Tensor, Tensor, Tensor], Tensor],
    hidden_states: Tensor,
    w_gate_up: Tensor | None,
    w_down: Tensor | None,
    size: int,
    rank: int,
) -> Tensor | None:
    """What `compute` makes of one rank's hidden elements of an expert; None without one."""
    if w_gate_up is None or w_down is None:
        return None
    rows = w_gate_up.unflatten(0, (2, size, -1))[:, rank].flatten(0, 1)
    return compute(hidden_states, rows, w_down.unflatten(1, (size, -1))[:, rank])


def _most_choices(values: Mapping[str, object]) -> int:
    choices = values.get("K", 8)
    return choices if isinstance(choices, int) else 8


def _most_experts(values: Mapping[str, object]) -> int:
    experts = values.get("E", 384)
    return experts if isinstance(experts, int) else 384


def _most_terms(values: Mapping[str, object]) -> int:
    """The terms of the longest sum; where only the construction is known, what a model has at most."""
    lengths = [value for name in ("K", "H", "F", "S") if isinstance(value := values.get(name, 0), int)]
    return max(lengths) or 7168


REFERENCES: Mapping[str, Reference] = {
    "MoEGroupedGemmFwdOp": Reference(grouped_gemm_fwd, summed=_most_terms, terms=_grouped_gemm_terms),
    "MoEExpertMLPFwdOp": Reference(expert_mlp_fwd, summed=_most_terms, terms=_expert_mlp_terms, roundings=2),
    "FusedTopKFwdOp": Reference(fused_topk_fwd, summed=_most_experts),
    "MoEPermuteAlignFwdOp": Reference(permute_align_fwd),
    "MoEPrePermuteFwdOp": Reference(pre_permute_fwd),
    "MoEPostPermuteFwdOp": Reference(post_permute_fwd, summed=_most_choices, terms=_post_permute_terms),
    "FusedMoEFwdOp": Reference(fused_moe_fwd, summed=_most_terms, terms=_fused_moe_terms, roundings=3, values=_WEIGHTS),
    "FusedMoESharedExpertFwdOp": Reference(
        fused_moe_shared_expert_fwd,
        summed=_most_terms,
        terms=_fused_moe_shared_expert_terms,
        roundings=3,
        values=_WEIGHTS,
    ),
    "SharedExpertMLPFwdOp": Reference(
        shared_expert_mlp_fwd, summed=_most_terms, terms=_shared_expert_mlp_terms, roundings=2, values=_WEIGHTS
    ),
    "IndexedExpertMLPFwdOp": Reference(
        indexed_expert_mlp_fwd,
        summed=_most_terms,
        written_terms=_indexed_expert_mlp_terms,
        roundings=2,
        values=_WEIGHTS,
    ),
    "FusedMoEExpertsFwdOp": Reference(
        indexed_expert_mlp_fwd,
        summed=_most_terms,
        written_terms=_indexed_expert_mlp_terms,
        roundings=3,
        values=_WEIGHTS,
    ),
}
