"""Permutation in blocks: pairs of token and expert in blocks of rows of one expert each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.moe import PERMUTE_ALIGN, PERMUTE_ALIGN_KERNELS, PermuteAlignCall, PermuteAlignFwdInterface


class MoEPermuteAlignFwdOp(Op):
    """Which pair of token and expert each row of a product by blocks takes, and which expert each block is of.

    topk_ids: int32 `[M, K]`, any layout in memory; pair `m * K + k` of an id not in `[0, num_experts)` has no row: it
    is an expert that is not here. Returns int32 tensors: sorted_token_ids, `[P]`, the pair of each row, `M * K` in rows
    that are no pair's; expert_ids, `[ceil(P / block_size)]`, the expert of each block, -1 in blocks that are no
    expert's; num_tokens_post_pad, `[1]`, the rows of experts, padding included. P is
    `M * K + (num_experts + 1) * (block_size - 1)`, enough for any ids.

    Experts stand in order, each in as many blocks as its pairs need, and their pairs in order: equal calls give equal
    results.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError or ArgumentError on a call,
    before any kernel runs.

    Source: vLLM's `moe_align_block_size`.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = PERMUTE_ALIGN_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {PERMUTE_ALIGN: PermuteAlignFwdInterface}

    def __init__(self, num_experts: int, block_size: int = 64, *, target: str | None = None) -> None:
        self.num_experts = num_experts
        self.block_size = block_size
        super().__init__(target=target)

    def forward(self, topk_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Place the pairs of checked inputs."""
        call = PermuteAlignCall(device=topk_ids.device, experts=self.num_experts, block_size=self.block_size)
        rows = topk_ids.numel() + (self.num_experts + 1) * (self.block_size - 1)
        return self.kernel_for(PERMUTE_ALIGN, call)(topk_ids.contiguous(), rows)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
