"""Whole mixtures of experts: routing, experts, and the shared expert that every token passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.moe.fused_experts import FusedMoEExpertsFwdOp
from tileops.moe.fused_topk import FusedTopKFwdOp
from tileops.moe.prepare_finalize import PrepareFinalize
from tileops.moe.routed import Activation, Experts, RoutedOp, Scoring
from tileops.moe.shared_expert_mlp import SharedExpertMLPFwdOp
from tileops.op.base import Op


class FusedMoEFwdOp(RoutedOp):
    """Each token's weighted sum of the MLPs of its `top_k` experts.

    hidden_states: `[M, H]`; w_gate_up: `[E, 2 * F, H]`, gates first; w_down: `[E, H, F]`; one dtype, float16 or
    bfloat16. gating_output: float32 `[M, E]`; correction_bias: float32 `[E]`, with sigmoid scores only. Returns
    `[M, H]`. Routing is that of `FusedTopKFwdOp`, the experts' part that of `FusedMoEExpertsFwdOp`.

    prepare_finalize: how tokens reach the experts; by default all experts are here. With
    `ExpertParallelPrepareFinalize` each rank passes its own slice of the weights, `E // ep_size` experts, its own
    tokens, and their scores for all E. experts: what computes the experts in place of `FusedMoEExpertsFwdOp`. They
    decide ep_size, activation and routed_scaling_factor.

    A composite: compiled code holds the operators of its sub-ops. num_experts: E, where it is known; without it the
    sub-op that orders tokens is made by the first call, which is then to come before compiled ones; meta tensors do.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError, LayoutError,
    RuleError or ArgumentError on a call, before any kernel runs.
    """

    delegate_types: ClassVar[Mapping[str, type[Op]]] = {"topk": FusedTopKFwdOp, "experts": FusedMoEExpertsFwdOp}

    def __init__(
        self,
        top_k: int,
        scoring_func: Scoring = "softmax",
        renormalize: bool = False,
        routed_scaling_factor: float = 1.0,
        activation: Activation = "silu_and_mul",
        ep_size: int = 1,
        *,
        prepare_finalize: PrepareFinalize | None = None,
        experts: Experts | None = None,
        num_experts: int | None = None,
        target: str | None = None,
    ) -> None:
        self.top_k = top_k
        self.scoring_func = scoring_func
        self.renormalize = renormalize
        self.routed_scaling_factor = routed_scaling_factor
        self.activation = activation
        self.ep_size = ep_size
        super().__init__(prepare_finalize, experts, num_experts, target=target)

    def forward(
        self,
        hidden_states: Tensor,
        gating_output: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        correction_bias: Tensor | None = None,
    ) -> Tensor:
        """Run the stages on checked inputs."""
        return self._routed(hidden_states, gating_output, w_gate_up, w_down, correction_bias)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


class FusedMoESharedExpertFwdOp(RoutedOp):
    """The weighted sum of each token's `top_k` experts, and the MLP of the expert that all tokens share.

    The routed part is `FusedMoEFwdOp`. shared_w_gate_up: `[2 * S, H]`, gates first; shared_w_down: `[H, S]`; both or
    neither, in the tensors' dtype, and with silu only. Returns `(shared_output, routed_output)`, `[M, H]` each;
    shared_output is None without a shared expert.

    tp_size, tp_rank: the shared expert's hidden elements are split among tp_size ranks, and shared_output is the
    partial sum of rank tp_rank, which the caller adds up. The weights passed are whole, and the rank's part of them is
    copied in each call; a rank that holds its part alone passes that with tp_size 1, to the same effect and without
    copies.

    Raises as FusedMoEFwdOp does.
    """

    delegate_types: ClassVar[Mapping[str, type[Op]]] = {
        "topk": FusedTopKFwdOp,
        "experts": FusedMoEExpertsFwdOp,
        "shared": SharedExpertMLPFwdOp,
    }

    def __init__(
        self,
        top_k: int,
        scoring_func: Scoring = "softmax",
        renormalize: bool = False,
        routed_scaling_factor: float = 1.0,
        activation: Activation = "silu_and_mul",
        tp_size: int = 1,
        tp_rank: int = 0,
        ep_size: int = 1,
        *,
        prepare_finalize: PrepareFinalize | None = None,
        experts: Experts | None = None,
        num_experts: int | None = None,
        target: str | None = None,
    ) -> None:
        self.top_k = top_k
        self.scoring_func = scoring_func
        self.renormalize = renormalize
        self.routed_scaling_factor = routed_scaling_factor
        self.activation = activation
        self.tp_size = tp_size
        self.tp_rank = tp_rank
        self.ep_size = ep_size
        super().__init__(prepare_finalize, experts, num_experts, target=target)
        self.delegate_for("shared", None)

    def forward(
        self,
        hidden_states: Tensor,
        gating_output: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        correction_bias: Tensor | None = None,
        shared_w_gate_up: Tensor | None = None,
        shared_w_down: Tensor | None = None,
    ) -> tuple[Tensor | None, Tensor]:
        """Run the stages on checked inputs."""
        shared: Tensor | None = None
        if shared_w_gate_up is not None and shared_w_down is not None:
            weights = self._part_of(shared_w_gate_up, shared_w_down)
            shared = self.delegate_for("shared", None)(hidden_states, *weights)
        return shared, self._routed(hidden_states, gating_output, w_gate_up, w_down, correction_bias)

    def _part_of(self, w_gate_up: Tensor, w_down: Tensor) -> tuple[Tensor, Tensor]:
        """The rank's part of the shared expert's weights."""
        if self.tp_size == 1:
            return w_gate_up, w_down
        width = w_down.shape[1] // self.tp_size
        first = self.tp_rank * width
        gate, up = w_gate_up.chunk(2)
        rows = slice(first, first + width)
        return torch.cat([gate[rows], up[rows]]), w_down[:, rows]

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
