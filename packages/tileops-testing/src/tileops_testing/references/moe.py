"""What each op of the moe family means, in plain PyTorch and float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata, MaskedLayout
from tileops_testing.references.reference import Reference
from tileops_testing.references.routing import (
    fused_topk_fwd,
    most_choices,
    most_experts,
    permute_align_fwd,
    post_permute_fwd,
    post_permute_terms,
    pre_permute_fwd,
)

if TYPE_CHECKING:
    from tileops_testing.inputs import Values

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

_ROUTED: Mapping[str, Values] = {**_WEIGHTS, "correction_bias": "small"}
"""Beside them a bias that does not decide alone which experts have tokens: scores differ by more."""


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
    *tensors: Any, tp_size: int = 1, tp_rank: int = 0, **parameters: Any
) -> tuple[Tensor | None, Tensor]:
    """Return a rank's part of the shared expert's MLP, None without one, and `fused_moe_fwd`."""
    *routed, w_gate_up, w_down = tensors
    shared = _part(shared_expert_mlp_fwd, routed[0], w_gate_up, w_down, tp_size, tp_rank)
    return shared, fused_moe_fwd(*routed, **parameters)


def _fused_moe_shared_expert_terms(
    *tensors: Any, tp_size: int = 1, tp_rank: int = 0, **parameters: Any
) -> tuple[Tensor | None, Tensor]:
    *routed, w_gate_up, w_down = tensors
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
    scale: float = parameters.get("routed_scaling_factor", 1.0)
    made = compute(hidden_states, *experts, weights, ids, parameters.get("activation", "silu_and_mul"))
    return made * (scale if compute is routed_sums else abs(scale))


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


def _most_terms(values: Mapping[str, object]) -> int:
    """The terms of the longest sum; where only the construction is known, what a model has at most."""
    lengths = [value for name in ("K", "H", "F", "S") if isinstance(value := values.get(name, 0), int)]
    return max(lengths) or 7168


REFERENCES: Mapping[str, Reference] = {
    "MoEGroupedGemmFwdOp": Reference(grouped_gemm_fwd, summed=_most_terms, terms=_grouped_gemm_terms),
    "MoEExpertMLPFwdOp": Reference(expert_mlp_fwd, summed=_most_terms, terms=_expert_mlp_terms, roundings=2),
    "FusedTopKFwdOp": Reference(fused_topk_fwd, summed=most_experts),
    "MoEPermuteAlignFwdOp": Reference(permute_align_fwd),
    "MoEPrePermuteFwdOp": Reference(pre_permute_fwd),
    "MoEPostPermuteFwdOp": Reference(post_permute_fwd, summed=most_choices, terms=post_permute_terms),
    "FusedMoEFwdOp": Reference(fused_moe_fwd, summed=_most_terms, terms=_fused_moe_terms, roundings=3, values=_ROUTED),
    "FusedMoESharedExpertFwdOp": Reference(
        fused_moe_shared_expert_fwd,
        summed=_most_terms,
        terms=_fused_moe_shared_expert_terms,
        roundings=3,
        values=_ROUTED,
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
