"""The peers of the moe family: torch's products, and its grouped product where the call is one that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata
from tileops_testing.bench.peers import Peers
from tileops_testing.cases import Case

__all__ = ["PEERS"]


def _grouped_gemm(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    layout = case.parameters["layout"]
    plain = case.parameters.get("activation") is None and case.parameters.get("out_dtype") is None
    tight = isinstance(layout, ContiguousLayout) and layout.alignment == 1
    ends = isinstance(layout, ContiguousLayout) and layout.metadata_kind == ContiguousMetadata.PHYSICAL_PSUM
    if device.type != "cuda" or not (plain and tight and ends):
        return {}

    def product(a: Tensor, b: Tensor, layout_metadata: Tensor) -> Tensor:
        result: Tensor = torch._grouped_mm(a, b.transpose(-1, -2), offs=layout_metadata)  # noqa: SLF001 - public under no other name
        return result

    return {"torch": product}


def _gated(product: Tensor) -> Tensor:
    gate, up = product.chunk(2, -1)
    return functional.silu(gate) * up


def _shared_expert_mlp(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    del case, device

    def mlp(hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor) -> Tensor:
        return _gated(hidden_states @ w_gate_up.T) @ w_down.T

    return {"torch": mlp}


def _indexed_expert_mlp(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    """Weights gathered for each token and multiplied in batches; on CUDA also tokens sorted into grouped products."""
    scale = case.parameters.get("routed_scaling_factor", 1.0)
    if not isinstance(scale, float):
        raise TypeError(f"routed_scaling_factor: expected a float, received {scale!r}")

    def gathered(
        output: Tensor, hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor, weights: Tensor, ids: Tensor
    ) -> None:
        for token in range(ids.shape[0]):
            hidden = _gated(w_gate_up[ids[token]] @ hidden_states[token])
            results = (w_down[ids[token]] @ hidden[..., None])[..., 0]
            output[token] = scale * (weights[token, :, None] * results).sum(0)

    def grouped(
        output: Tensor, hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor, weights: Tensor, ids: Tensor
    ) -> None:
        order = ids.flatten().argsort(stable=True)
        tokens = order // ids.shape[1]
        ends = torch.searchsorted(ids.flatten()[order], torch.arange(w_down.shape[0], device=ids.device), right=True)
        ends = ends.int()
        product = torch._grouped_mm(hidden_states[tokens], w_gate_up.transpose(-1, -2), offs=ends)  # noqa: SLF001
        results = torch._grouped_mm(_gated(product), w_down.transpose(-1, -2), offs=ends)  # noqa: SLF001
        weighted = weights.flatten()[order][:, None] * results
        output.copy_(scale * torch.zeros_like(output, dtype=torch.float32).index_add_(0, tokens, weighted))

    return {"torch": gathered, "grouped": grouped} if device.type == "cuda" else {"torch": gathered}


PEERS: Mapping[str, Peers] = {
    "MoEGroupedGemmFwdOp": Peers(_grouped_gemm),
    "SharedExpertMLPFwdOp": Peers(_shared_expert_mlp),
    "IndexedExpertMLPFwdOp": Peers(_indexed_expert_mlp),
}
