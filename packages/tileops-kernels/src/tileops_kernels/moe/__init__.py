"""MoE kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.moe.fused_topk import FUSED_TOPK_KERNELS
from tileops_kernels.moe.grouped_gemm import GROUPED_GEMM_KERNELS
from tileops_kernels.moe.indexed_expert_mlp import INDEXED_EXPERT_MLP_KERNELS
from tileops_kernels.moe.interfaces import (
    GROUPED_GEMM,
    INDEXED_EXPERT_MLP,
    SHARED_EXPERT_MLP,
    GroupedGemmCall,
    GroupedGemmFwdInterface,
    IndexedExpertMLPCall,
    IndexedExpertMLPFwdInterface,
    SharedExpertMLPCall,
    SharedExpertMLPFwdInterface,
)
from tileops_kernels.moe.permute_align import PERMUTE_ALIGN_KERNELS
from tileops_kernels.moe.placement_interfaces import (
    FUSED_TOPK,
    PERMUTE_ALIGN,
    POST_PERMUTE,
    PRE_PERMUTE,
    FusedTopKCall,
    FusedTopKFwdInterface,
    PermuteAlignCall,
    PermuteAlignFwdInterface,
    PostPermuteCall,
    PostPermuteFwdInterface,
    PrePermuteCall,
    PrePermuteFwdInterface,
)
from tileops_kernels.moe.post_permute import POST_PERMUTE_KERNELS
from tileops_kernels.moe.pre_permute import PRE_PERMUTE_KERNELS
from tileops_kernels.moe.shared_expert_mlp import SHARED_EXPERT_MLP_KERNELS
from tileops_kernels.table import KernelTable

__all__ = [
    "FUSED_TOPK",
    "FUSED_TOPK_KERNELS",
    "GROUPED_GEMM",
    "GROUPED_GEMM_KERNELS",
    "INDEXED_EXPERT_MLP",
    "INDEXED_EXPERT_MLP_KERNELS",
    "PERMUTE_ALIGN",
    "PERMUTE_ALIGN_KERNELS",
    "POST_PERMUTE",
    "POST_PERMUTE_KERNELS",
    "PRE_PERMUTE",
    "PRE_PERMUTE_KERNELS",
    "SHARED_EXPERT_MLP",
    "SHARED_EXPERT_MLP_KERNELS",
    "FusedTopKCall",
    "FusedTopKFwdInterface",
    "GroupedGemmCall",
    "GroupedGemmFwdInterface",
    "IndexedExpertMLPCall",
    "IndexedExpertMLPFwdInterface",
    "PermuteAlignCall",
    "PermuteAlignFwdInterface",
    "PostPermuteCall",
    "PostPermuteFwdInterface",
    "PrePermuteCall",
    "PrePermuteFwdInterface",
    "SharedExpertMLPCall",
    "SharedExpertMLPFwdInterface",
    "grouped_gemm_kernels",
    "indexed_expert_mlp_kernels",
    "shared_expert_mlp_kernels",
]


def grouped_gemm_kernels() -> KernelTable[GroupedGemmCall, GroupedGemmFwdInterface]:
    """A new table of the grouped product kernel types, for use without an op.

    An entry of it is called as `entry(a, b, layout_metadata, output)` and writes into `output`.
    """
    return KernelTable(GROUPED_GEMM, GROUPED_GEMM_KERNELS)


def shared_expert_mlp_kernels() -> KernelTable[SharedExpertMLPCall, SharedExpertMLPFwdInterface]:
    """A new table of the shared expert's kernel types, for use without an op.

    An entry of it is called as `entry(hidden_states, w_gate_up, w_down)`.
    """
    return KernelTable(SHARED_EXPERT_MLP, SHARED_EXPERT_MLP_KERNELS)


def indexed_expert_mlp_kernels() -> KernelTable[IndexedExpertMLPCall, IndexedExpertMLPFwdInterface]:
    """A new table of the kernel types of few tokens' experts, for use without an op.

    An entry of it is called as `entry(output, hidden_states, w_gate_up, w_down, topk_weights, topk_ids, scale)` and
    writes into `output`.
    """
    return KernelTable(INDEXED_EXPERT_MLP, INDEXED_EXPERT_MLP_KERNELS)
