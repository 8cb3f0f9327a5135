"""The experts of a mixture, from routed tokens to their weighted sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from tileops.errors import ParameterError, ParameterTypeError, ShapeError
from tileops.moe.buffers import refuse_shared
from tileops.moe.epilogues import RoutingEpilogue
from tileops.moe.expert_mlp import MoEExpertMLPFwdOp
from tileops.moe.indexed_expert_mlp import IndexedExpertMLPFwdOp
from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata
from tileops.moe.post_permute import MoEPostPermuteFwdOp
from tileops.moe.pre_permute import MoEPrePermuteFwdOp
from tileops.moe.transforms import is_transformed
from tileops.op.base import Op

_LAYOUT = ContiguousLayout(metadata_kind=ContiguousMetadata.PHYSICAL_PSUM)


def require_count(op: str, number: object, ranks: int = 1) -> None:
    """Raise ParameterTypeError or ParameterError for what is no number of experts that `ranks` can share."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise ParameterTypeError(
            f"{op}: num_experts: expected an int or None, received {number!r}; pass the number of experts"
        )
    if number < 1 or number % ranks:
        raise ParameterError(
            f"{op}: num_experts: expected a positive multiple of {ranks}, received {number}; pass the number of experts"
        )


class FusedMoEExpertsFwdOp(Op):
    """`output[m] = routed_scaling_factor * sum over k of topk_weights[m, k] * MLP of expert topk_ids[m, k] on token m`.

    output: `[M, H]`, the caller's contiguous buffer, written whole and not read; nothing is returned. hidden_states:
    `[M, H]`; w_gate_up: `[E, 2 * F, H]`, gates first; w_down: `[E, H, F]`; one dtype, float16 or bfloat16.
    topk_weights: float32 `[M, K]`; topk_ids: int32 `[M, K]`. An id outside `[0, E)` stands for an expert that is not
    here: it contributes nothing, and a token without any other gets zeros. The output shares no memory with the inputs.

    The MLP is `(activation(gate) * up) @ w_down[e].T`, gate and up being the halves of `x @ w_gate_up[e].T`; sums are
    float32, and the activation's result is rounded to the tensors' dtype.

    A composite. Few tokens (`M * K <= 2 * E`) with silu, H a multiple of 128 and F of 256 go through
    `IndexedExpertMLPFwdOp`, which reads the weights of the experts that are asked for; all others are brought into the
    order of experts, multiplied, and brought back.

    num_experts: E, where it is known. The sub-op that orders tokens is made for a number of experts: with num_experts
    at construction, else by the first call, which is then to come before compiled ones; meta tensors do.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError, LayoutError,
    RuleError or ArgumentError on a call, before any kernel runs.

    Source: the fused experts of vLLM.
    """

    delegate_types: ClassVar[Mapping[str, type[Op]]] = {
        "pre_permute": MoEPrePermuteFwdOp,
        "expert_mlp": MoEExpertMLPFwdOp,
        "post_permute": MoEPostPermuteFwdOp,
        "indexed": IndexedExpertMLPFwdOp,
    }
    injected_parameters = ("num_experts",)

    def __init__(
        self,
        routed_scaling_factor: float = 1.0,
        activation: Literal["silu_and_mul", "gelu_and_mul"] = "silu_and_mul",
        *,
        num_experts: int | None = None,
        target: str | None = None,
    ) -> None:
        self.routed_scaling_factor = routed_scaling_factor
        self.activation = activation
        self.num_experts = num_experts
        super().__init__(target=target)
        self.delegate_for("expert_mlp", None, layout=_LAYOUT, activation=activation)
        epilogue = RoutingEpilogue(scale=self.routed_scaling_factor)
        self.delegate_for("post_permute", None, layout=_LAYOUT, epilogue=epilogue)
        if activation == "silu_and_mul":
            self.delegate_for("indexed", None, routed_scaling_factor=self.routed_scaling_factor)
        if num_experts is not None:
            require_count(type(self).__name__, num_experts)
            self._order_of(num_experts)

    def forward(
        self,
        output: Tensor,
        hidden_states: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
    ) -> None:
        """Run the stages on checked inputs; a traced call without tokens has nothing to run."""
        (tokens, choices), (experts, hidden, width) = topk_ids.shape, w_down.shape
        if self.num_experts is not None and self.num_experts != experts:
            raise ShapeError(
                f"FusedMoEExpertsFwdOp: w_down: expected the weights of {self.num_experts} experts, as num_experts "
                f"says, received those of {experts}; construct the op for the experts that there are"
            )
        if not torch.compiler.is_compiling():
            given = {"hidden_states": hidden_states, "w_gate_up": w_gate_up, "w_down": w_down}
            refuse_shared(self, "output", output, **given, topk_weights=topk_weights, topk_ids=topk_ids)
            if experts:
                self._order_of(experts)  # also where this call needs none: a compiled one may
        if tokens == 0:
            return
        if experts == 0:
            output.zero_()
            return
        transformed = is_transformed(output, hidden_states, w_gate_up, w_down, topk_weights, topk_ids)
        few = tokens * choices <= 2 * experts and hidden % 128 == 0 and width % 256 == 0 and not transformed
        if few and self.activation == "silu_and_mul":
            self.delegate_for("indexed", None)(output, hidden_states, w_gate_up, w_down, topk_weights, topk_ids)
            return
        rows, ends, places = self._order_of(experts)(hidden_states, topk_ids)
        results = self.delegate_for("expert_mlp", None)(rows, w_gate_up, w_down, ends)
        sums = self.delegate_for("post_permute", None)
        if transformed:
            output.copy_(sums(results, topk_weights, places))
        else:
            sums(results, topk_weights, places, out=output)

    def _order_of(self, experts: int) -> Op:
        """The sub-op that brings tokens into the order of so many experts."""
        number = int(experts)  # it keys the sub-op: a traced size becomes a constant
        return self.delegate_for("pre_permute", number, layout=_LAYOUT, num_local_experts=number)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
