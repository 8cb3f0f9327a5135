"""The peers of the moe family: torch's grouped product, where the call is one that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

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


PEERS: Mapping[str, Peers] = {"MoEGroupedGemmFwdOp": Peers(_grouped_gemm)}
