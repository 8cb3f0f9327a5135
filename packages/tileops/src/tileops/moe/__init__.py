"""Mixture-of-experts ops, and the layouts of grouped rows and the epilogues that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.lazy import export

if TYPE_CHECKING:
    from tileops.moe.epilogues import RoutingEpilogue, RoutingWeighting
    from tileops.moe.expert_mlp import MoEExpertMLPFwdOp
    from tileops.moe.expert_parallel import ExpertParallelPrepareFinalize
    from tileops.moe.fused_experts import FusedMoEExpertsFwdOp
    from tileops.moe.fused_moe import FusedMoEFwdOp, FusedMoESharedExpertFwdOp
    from tileops.moe.fused_topk import FusedTopKFwdOp
    from tileops.moe.grouped_gemm import MoEGroupedGemmFwdOp
    from tileops.moe.indexed_expert_mlp import IndexedExpertMLPFwdOp
    from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata, ContiguousPacking, MaskedLayout
    from tileops.moe.permute_align import MoEPermuteAlignFwdOp
    from tileops.moe.post_permute import MoEPostPermuteFwdOp
    from tileops.moe.pre_permute import MoEPrePermuteFwdOp
    from tileops.moe.prepare_finalize import Dispatch, LocalPrepareFinalize, PrepareFinalize
    from tileops.moe.routed import Experts
    from tileops.moe.shared_expert_mlp import SharedExpertMLPFwdOp

__all__ = [
    "ContiguousLayout",
    "ContiguousMetadata",
    "ContiguousPacking",
    "Dispatch",
    "ExpertParallelPrepareFinalize",
    "Experts",
    "FusedMoEExpertsFwdOp",
    "FusedMoEFwdOp",
    "FusedMoESharedExpertFwdOp",
    "FusedTopKFwdOp",
    "IndexedExpertMLPFwdOp",
    "LocalPrepareFinalize",
    "MaskedLayout",
    "MoEExpertMLPFwdOp",
    "MoEGroupedGemmFwdOp",
    "MoEPermuteAlignFwdOp",
    "MoEPostPermuteFwdOp",
    "MoEPrePermuteFwdOp",
    "PrepareFinalize",
    "RoutingEpilogue",
    "RoutingWeighting",
    "SharedExpertMLPFwdOp",
]

_MODULES = {
    "ContiguousLayout": "layouts",
    "ContiguousMetadata": "layouts",
    "ContiguousPacking": "layouts",
    "Dispatch": "prepare_finalize",
    "ExpertParallelPrepareFinalize": "expert_parallel",
    "Experts": "routed",
    "FusedMoEExpertsFwdOp": "fused_experts",
    "FusedMoEFwdOp": "fused_moe",
    "FusedMoESharedExpertFwdOp": "fused_moe",
    "FusedTopKFwdOp": "fused_topk",
    "IndexedExpertMLPFwdOp": "indexed_expert_mlp",
    "LocalPrepareFinalize": "prepare_finalize",
    "MaskedLayout": "layouts",
    "MoEExpertMLPFwdOp": "expert_mlp",
    "MoEGroupedGemmFwdOp": "grouped_gemm",
    "MoEPermuteAlignFwdOp": "permute_align",
    "MoEPostPermuteFwdOp": "post_permute",
    "MoEPrePermuteFwdOp": "pre_permute",
    "PrepareFinalize": "prepare_finalize",
    "RoutingEpilogue": "epilogues",
    "RoutingWeighting": "epilogues",
    "SharedExpertMLPFwdOp": "shared_expert_mlp",
}


def __getattr__(name: str) -> object:
    return export(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
