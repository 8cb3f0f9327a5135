"""Mixture-of-experts ops, and the layouts of grouped rows and the epilogues that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
    from tileops.moe.epilogues import RoutingEpilogue, RoutingWeighting
    from tileops.moe.expert_mlp import MoEExpertMLPFwdOp
    from tileops.moe.fused_topk import FusedTopKFwdOp
    from tileops.moe.grouped_gemm import MoEGroupedGemmFwdOp
    from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata, ContiguousPacking, MaskedLayout
    from tileops.moe.permute_align import MoEPermuteAlignFwdOp
    from tileops.moe.post_permute import MoEPostPermuteFwdOp
    from tileops.moe.pre_permute import MoEPrePermuteFwdOp

__all__ = [
    "ContiguousLayout",
    "ContiguousMetadata",
    "ContiguousPacking",
    "FusedTopKFwdOp",
    "MaskedLayout",
    "MoEExpertMLPFwdOp",
    "MoEGroupedGemmFwdOp",
    "MoEPermuteAlignFwdOp",
    "MoEPostPermuteFwdOp",
    "MoEPrePermuteFwdOp",
    "RoutingEpilogue",
    "RoutingWeighting",
]

_MODULES = {
    "ContiguousLayout": "layouts",
    "ContiguousMetadata": "layouts",
    "ContiguousPacking": "layouts",
    "FusedTopKFwdOp": "fused_topk",
    "MaskedLayout": "layouts",
    "MoEExpertMLPFwdOp": "expert_mlp",
    "MoEGroupedGemmFwdOp": "grouped_gemm",
    "MoEPermuteAlignFwdOp": "permute_align",
    "MoEPostPermuteFwdOp": "post_permute",
    "MoEPrePermuteFwdOp": "pre_permute",
    "RoutingEpilogue": "epilogues",
    "RoutingWeighting": "epilogues",
}


def __getattr__(name: str) -> object:
    return export(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
