"""What the fused mixtures share: routing, the experts that were injected or built, and the way to them and back."""

from __future__ import annotations

from typing import Literal, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from tileops.errors import ParameterError, ParameterTypeError, ShapeError
from tileops.moe.fused_experts import FusedMoEExpertsFwdOp, require_count
from tileops.moe.prepare_finalize import LocalPrepareFinalize, PrepareFinalize
from tileops.moe.transforms import is_transformed, zeros_for
from tileops.op.base import Op

Activation = Literal["silu_and_mul", "gelu_and_mul"]
Scoring = Literal["softmax", "sigmoid"]
Value = TypeVar("Value")


@runtime_checkable
class Experts(Protocol):
    """What computes the experts of a fused mixture: an op, or an object that calls none.

    `activation` is what it does with gates. What is no `FusedMoEExpertsFwdOp` is given weights that are not scaled.
    """

    @property
    def activation(self) -> Activation:
        """The activation of its experts."""
        ...

    def __call__(
        self,
        output: Tensor,
        hidden_states: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        /,
    ) -> None:
        """Write the weighted sums of the experts' results into `output`, as `FusedMoEExpertsFwdOp` does."""
        ...


class RoutedOp(Op):
    """Base of the fused mixtures: the parameters of routing, settled from what is injected, and the routed part.

    prepare_finalize: how tokens reach the experts; by default all experts are here. experts: what computes the experts
    in place of `FusedMoEExpertsFwdOp`. num_experts: the number of all experts, where it is known.
    """

    injected_parameters = ("prepare_finalize", "experts", "num_experts")

    top_k: int
    scoring_func: Scoring
    renormalize: bool
    routed_scaling_factor: float
    activation: Activation
    ep_size: int
    prepare_finalize: PrepareFinalize
    experts: Experts | None
    num_experts: int | None

    def __init__(
        self,
        prepare_finalize: PrepareFinalize | None,
        experts: Experts | None,
        num_experts: int | None,
        *,
        target: str | None = None,
    ) -> None:
        way = LocalPrepareFinalize() if prepare_finalize is None else prepare_finalize
        self._require("prepare_finalize", way, PrepareFinalize)
        if experts is not None:
            self._require("experts", experts, Experts)
        self.prepare_finalize, self.experts, self.num_experts = way, experts, num_experts
        self.assembled = experts is not None or type(way) is not LocalPrepareFinalize
        self.ep_size = self._settled("ep_size", self.ep_size, 1, way.ep_size, "prepare_finalize")
        self.collective = self.ep_size > 1
        if experts is not None:
            factor = experts.routed_scaling_factor if isinstance(experts, FusedMoEExpertsFwdOp) else 1.0
            self.activation = self._settled(
                "activation", self.activation, "silu_and_mul", experts.activation, "experts"
            )
            self.routed_scaling_factor = self._settled(
                "routed_scaling_factor", self.routed_scaling_factor, 1.0, factor, "experts"
            )
        if num_experts is not None:
            require_count(type(self).__name__, num_experts, self.ep_size)
        super().__init__(target=target)
        for name, number in (("prepare_finalize", way.num_experts), ("num_experts", num_experts)):
            if number is not None and self.top_k > number:
                raise ParameterError(
                    f"{type(self).__name__}: top_k: expected at most {number}, the experts of {name}, received "
                    f"{self.top_k}; pass top_k of 1 to {number}"
                )
        routing = {"top_k": self.top_k, "scoring_func": self.scoring_func, "renormalize": self.renormalize}
        self.delegate_for("topk", None, **routing)
        if experts is None or isinstance(experts, Op):
            self.delegate_for(
                "experts",
                None,
                experts,
                routed_scaling_factor=self.routed_scaling_factor,
                activation=self.activation,
                num_experts=None if num_experts is None else num_experts // self.ep_size,
            )

    def _require(self, name: str, part: object, protocol: type) -> None:
        """Raise ParameterTypeError for an injected part that lacks a member of its protocol."""
        if not isinstance(part, protocol) or isinstance(part, type):
            raise ParameterTypeError(
                f"{type(self).__name__}: {name}: expected what has the members of {protocol.__name__}, received "
                f"{part!r}; see tileops.moe.{protocol.__name__}"
            )

    def _settled(self, name: str, given: Value, default: Value, decided: Value, by: str) -> Value:
        if given not in (default, decided):
            raise ParameterError(
                f"{type(self).__name__}: {name}: expected {decided!r}, which {by} decides, received {given!r}; "
                f"leave it out, or give {by} the same"
            )
        return decided

    def _routed(
        self,
        hidden_states: Tensor,
        gating_output: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        correction_bias: Tensor | None,
    ) -> Tensor:
        """Route the tokens, bring them to their experts, and bring the weighted sums back."""
        way = self.prepare_finalize
        for name, number in (("prepare_finalize", way.num_experts), ("num_experts", self.num_experts)):
            if number is not None and number != gating_output.shape[1]:
                raise ShapeError(
                    f"{type(self).__name__}: gating_output: expected {number} columns, the experts of {name}, received "
                    f"{gating_output.shape[1]}; construct the op for the experts that there are"
                )
        weights, ids = self.delegate_for("topk", None)(gating_output, correction_bias)
        sent = way.prepare(hidden_states, weights, ids)
        given = sent.hidden_states, w_gate_up, w_down, sent.topk_weights
        if is_transformed(*given):
            output = zeros_for(*given)
        else:
            output = torch.empty_like(sent.hidden_states, memory_format=torch.contiguous_format)
        injected = self.experts
        experts = self.delegate_for("experts", None) if injected is None or isinstance(injected, Op) else injected
        experts(output, sent.hidden_states, w_gate_up, w_down, sent.topk_weights, sent.topk_ids)
        return way.finalize(output, sent)
