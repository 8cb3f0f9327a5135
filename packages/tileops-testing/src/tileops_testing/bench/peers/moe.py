"""The peers of the moe family: torch's products, sorts and gathers, and its grouped product where it takes the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tileops.moe.epilogues import RoutingEpilogue, RoutingWeighting
from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata, MaskedLayout
from tileops_testing.bench.peers import Peers
from tileops_testing.cases import Case

__all__ = ["PEERS"]


def _grouped_gemm(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    """A loop of products and, on CUDA, torch's grouped product, where every row is an expert's; a batch of slabs."""
    given: Any = case.parameters
    layout, activation, out_dtype = given["layout"], given.get("activation"), given.get("out_dtype")
    if isinstance(layout, MaskedLayout):
        return _slab_products(activation, out_dtype)
    if not isinstance(layout, ContiguousLayout) or out_dtype is not None:
        return {}
    per_row = layout.metadata_kind == ContiguousMetadata.PER_ROW
    if layout.alignment > 1 and not per_row:
        return {}

    def ends_of(metadata: Tensor, experts: int) -> Tensor:
        every = torch.arange(experts, dtype=torch.int32, device=metadata.device)
        return torch.searchsorted(metadata, every, right=True, out_int32=True) if per_row else metadata

    def loop(a: Tensor, b: Tensor, layout_metadata: Tensor) -> Tensor:
        return _activated(_products(a, b, ends_of(layout_metadata, b.shape[0])), activation)

    def grouped(a: Tensor, b: Tensor, layout_metadata: Tensor) -> Tensor:
        return _activated(_grouped_product(a, b, ends_of(layout_metadata, b.shape[0])), activation)

    return {"torch": grouped, "loop": loop} if device.type == "cuda" else {"loop": loop}


def _slab_products(activation: str | None, out_dtype: torch.dtype | None) -> Mapping[str, Callable[..., object]]:
    """One product after the other, of the rows that count, and one of all slabs whose other rows are cleared after."""

    def loop(a: Tensor, b: Tensor, layout_metadata: Tensor) -> Tensor:
        columns = b.shape[1] // (1 if activation is None else 2)
        result = a.new_zeros(*a.shape[:2], columns, dtype=out_dtype or a.dtype)
        for expert, count in enumerate(layout_metadata.tolist()):
            if count:
                result[expert, :count] = _activated(_product(a[expert, :count], b[expert].T, out_dtype), activation)
        return result

    def batch(a: Tensor, b: Tensor, layout_metadata: Tensor) -> Tensor:
        result = _activated(_product(a, b.mT, out_dtype), activation)
        places = torch.arange(a.shape[1], device=a.device)
        return result.masked_fill_(places[:, None] >= layout_metadata[:, None, None], 0)

    return {"torch": batch, "loop": loop}


def _product(first: Tensor, second: Tensor, out_dtype: torch.dtype | None) -> Tensor:
    """The product of two matrices, or of two batches of them, summed and given in out_dtype if there is one."""
    if out_dtype is None:
        return first @ second
    if not first.is_cuda:
        return first.to(out_dtype) @ second.to(out_dtype)
    multiply = torch.mm if first.dim() == 2 else torch.bmm
    return multiply(first, second, out_dtype=out_dtype)


def _products(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """One product after the other, of each expert's rows with its weights."""
    result = rows.new_empty(rows.shape[0], weights.shape[1])
    start = 0
    for expert, end in enumerate(ends.tolist()):
        if end > start:
            torch.mm(rows[start:end], weights[expert].T, out=result[start:end])
        start = max(start, end)
    return result


def _grouped_product(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    result: Tensor = torch._grouped_mm(rows, weights.transpose(-1, -2), offs=ends)  # noqa: SLF001 - public under no other name
    return result


def _activated(product: Tensor, activation: str | None) -> Tensor:
    if activation is None:
        return product
    gate, up = product.chunk(2, -1)
    return (functional.silu(gate) if activation == "silu_and_mul" else functional.gelu(gate)) * up


def _torch_and_inductor(function: Callable[..., object]) -> Mapping[str, Callable[..., object]]:
    torch.compiler.reset()
    return {"torch": function, "inductor": torch.compile(function, fullgraph=True)}


def _fused_topk(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    """torch.topk of scores; of narrow logits, which are often equal, a stable sort, which alone goes by id then."""
    del device
    given: Any = case.parameters
    top_k, sigmoid = given["top_k"], given.get("scoring_func") == "sigmoid"
    renormalize = given.get("renormalize", False)
    specs: Any = case.inputs(case.sizes)
    narrow = specs["gating_output"].dtype != torch.float32

    def choose(gating_output: Tensor, correction_bias: Tensor | None) -> tuple[Tensor, Tensor]:
        logits = gating_output.float()
        scores = logits.sigmoid() if sigmoid else logits.softmax(-1)
        by = scores if correction_bias is None else scores + correction_bias
        order = by.sort(dim=-1, descending=True, stable=True) if narrow else by.topk(top_k, -1)
        ids = order.indices[:, :top_k]
        weights = scores.gather(-1, ids)
        return weights / weights.sum(-1, keepdim=True) if renormalize else weights, ids.int()

    return _torch_and_inductor(choose)


def _permute_align(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    """A stable sort by expert, and running sums of padded counts; all experts are here."""
    del device
    given: Any = case.parameters
    experts, size = given["num_experts"], given.get("block_size", 64)

    def align(topk_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pairs = topk_ids.numel()
        sorted_ids, order = topk_ids.flatten().sort(stable=True)
        every = torch.arange(experts, dtype=torch.int32, device=order.device)
        ends = torch.searchsorted(sorted_ids, every, right=True)
        counts = ends.diff(prepend=ends.new_zeros(1))
        stops = ((counts + size - 1) // size * size).cumsum(0)
        shift = stops - (counts + size - 1) // size * size - (ends - counts)
        places = torch.arange(pairs, device=order.device) + shift[sorted_ids]
        rows = pairs + (experts + 1) * (size - 1)
        result = torch.full((rows,), pairs, dtype=torch.int32, device=order.device)
        first = torch.arange(0, rows, size, device=order.device)
        expert = torch.searchsorted(stops, first, right=True, out_int32=True)
        return result.scatter_(0, places, order.int()), torch.where(first < stops[-1], expert, -1), stops[-1:].int()

    return _torch_and_inductor(align)


def _pre_permute(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    """A stable sort by expert, where all experts are here and rows need no padding."""
    del device
    given: Any = case.parameters
    layout, experts = given["layout"], given["num_local_experts"]
    if layout.alignment > 1:
        return {}
    ends = layout.metadata_kind == ContiguousMetadata.PHYSICAL_PSUM

    def permute(hidden_states: Tensor, local_expert_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sorted_ids, order = local_expert_ids.flatten().sort(stable=True)
        places = torch.arange(len(order), dtype=torch.int32, device=order.device)
        inverse = torch.empty_like(places).scatter_(0, order, places)
        every = torch.arange(experts, dtype=torch.int32, device=order.device)
        metadata = torch.searchsorted(sorted_ids, every, right=True, out_int32=True) if ends else sorted_ids
        return hidden_states[order // local_expert_ids.shape[1]], metadata, inverse

    return _torch_and_inductor(permute)


def _post_permute(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    """A gather of each token's rows and a sum over them, where every pair has a row."""
    del device
    given: Any = case.parameters
    epilogue, out_dtype = given.get("epilogue") or RoutingEpilogue(), given.get("out_dtype")
    specs: Any = case.inputs(case.sizes)
    rows, pairs = specs["expert_output"].shape[:-1], specs["inverse_indices"].shape[0]
    if pairs > math.prod(rows):
        return {}
    weighted = epilogue.weighting == RoutingWeighting.WEIGHTED

    def add_up(expert_output: Tensor, topk_weights: Tensor, inverse_indices: Tensor) -> Tensor:
        chosen = expert_output.flatten(0, -2)[inverse_indices].unflatten(0, topk_weights.shape).float()
        total = (chosen * topk_weights[..., None] if weighted else chosen).sum(1)
        scaled: Tensor = total * epilogue.scale
        return scaled.to(out_dtype or expert_output.dtype)

    return _torch_and_inductor(add_up)


def _shared_expert_mlp(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    del case, device

    def mlp(hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor) -> Tensor:
        return _activated(hidden_states @ w_gate_up.T, "silu_and_mul") @ w_down.T

    return {"torch": mlp}


def _routed_experts(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    """Tokens sorted into one product after the other, and on CUDA into grouped ones; all experts are here."""
    given: Any = case.parameters
    scale, activation = given.get("routed_scaling_factor", 1.0), given.get("activation", "silu_and_mul")

    def routed(multiply: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., None]:
        def compute(
            output: Tensor, hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor, weights: Tensor, ids: Tensor
        ) -> None:
            sorted_ids, order = ids.flatten().sort(stable=True)
            tokens = order // ids.shape[1]
            every = torch.arange(w_down.shape[0], dtype=torch.int32, device=ids.device)
            ends = torch.searchsorted(sorted_ids, every, right=True, out_int32=True)
            hidden = _activated(multiply(hidden_states[tokens], w_gate_up, ends), activation)
            weighted = weights.flatten()[order][:, None] * multiply(hidden, w_down, ends)
            output.copy_(scale * torch.zeros_like(output, dtype=torch.float32).index_add_(0, tokens, weighted))

        return compute

    found = {"loop": routed(_products)}
    return {**found, "grouped": routed(_grouped_product)} if device.type == "cuda" else found


def _indexed_expert_mlp(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    """Weights gathered for each token and multiplied in batches, and what serves any number of tokens."""
    given: Any = case.parameters
    scale = given.get("routed_scaling_factor", 1.0)

    def gathered(
        output: Tensor, hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor, weights: Tensor, ids: Tensor
    ) -> None:
        for token in range(ids.shape[0]):
            hidden = _activated(w_gate_up[ids[token]] @ hidden_states[token], "silu_and_mul")
            results = (w_down[ids[token]] @ hidden[..., None])[..., 0]
            output[token] = scale * (weights[token, :, None] * results).sum(0)

    return {"torch": gathered, **_routed_experts(case, device)}


PEERS: Mapping[str, Peers] = {
    "FusedMoEExpertsFwdOp": Peers(_routed_experts),
    "FusedTopKFwdOp": Peers(_fused_topk),
    "MoEGroupedGemmFwdOp": Peers(_grouped_gemm),
    "MoEPermuteAlignFwdOp": Peers(_permute_align),
    "MoEPrePermuteFwdOp": Peers(_pre_permute),
    "MoEPostPermuteFwdOp": Peers(_post_permute),
    "SharedExpertMLPFwdOp": Peers(_shared_expert_mlp),
    "IndexedExpertMLPFwdOp": Peers(_indexed_expert_mlp),
}
