"""The choice of experts: scores of logits, and the largest of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.moe import FUSED_TOPK, FUSED_TOPK_KERNELS, FusedTopKCall, FusedTopKFwdInterface


class FusedTopKFwdOp(Op):
    """The `top_k` experts with the largest scores of each token, and their scores, in one pass over the logits.

    gating_output: `[M, E]`, float16, bfloat16 or float32, any layout in memory. correction_bias: float32 `[E]`, only
    with "sigmoid". Returns topk_weights, float32 `[M, top_k]`, and topk_ids, int32 `[M, top_k]`, largest first.

    Scores are the softmax of a token's logits or the sigmoid of each, in float32. The bias is added to scores to
    choose; weights are scores without it. Equal sums go by the lowest id; NaN goes before all numbers, as in
    `torch.topk`. `renormalize` divides a token's weights by their sum: where that is 0, they are NaN.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError, RuleError or
    ArgumentError on a call, before any kernel runs.

    Source: vLLM's `fused_topk` and, with a bias, DeepSeek-V3's choice without groups.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = FUSED_TOPK_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {FUSED_TOPK: FusedTopKFwdInterface}

    def __init__(
        self,
        top_k: int,
        scoring_func: Literal["softmax", "sigmoid"] = "softmax",
        renormalize: bool = False,
        *,
        target: str | None = None,
    ) -> None:
        self.top_k = top_k
        self.scoring_func = scoring_func
        self.renormalize = renormalize
        super().__init__(target=target)

    def forward(self, gating_output: Tensor, correction_bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Choose experts by checked inputs."""
        call = FusedTopKCall(
            device=gating_output.device,
            scoring=self.scoring_func,
            renormalize=self.renormalize,
            biased=correction_bias is not None,
            experts=gating_output.shape[1],
            dtype=gating_output.dtype,
        )
        bias = None if correction_bias is None else correction_bias.contiguous()
        return self.kernel_for(FUSED_TOPK, call)(gating_output.contiguous(), bias, self.top_k)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
