"""The experts' gated MLP: two grouped products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from tileops.moe.buffers import refuse_shared
from tileops.moe.grouped_gemm import MoEGroupedGemmFwdOp
from tileops.moe.layouts import ContiguousLayout, MaskedLayout
from tileops.op.base import Op


class MoEExpertMLPFwdOp(Op):
    """`output[r] = (activation(gate) * up) @ w_down[e].T` for each row r of each expert e.

    gate and up are the halves of `expert_input[r] @ w_gate_up[e].T`. expert_input: rows of H elements, `[P, H]` for a
    contiguous layout and `[E, max_m, H]` for a masked one; w_gate_up: `[E, 2 * F, H]`, gates first; w_down:
    `[E, H, F]`; one dtype, float16 or bfloat16. layout_metadata: int32, what the layout says. Returns expert_input's
    shape and dtype. The activation's result is rounded to that dtype between the two products.

    Rows that are no expert's are not written: they keep what `out` holds, and are zeros in a new tensor, but undefined
    where `MoEGroupedGemmFwdOp` says so. `out` is contiguous, of the output's shape and dtype, shares no memory with the
    inputs, and is returned.

    A composite of two `MoEGroupedGemmFwdOp`: it has no operator of its own, and compiled code holds theirs.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError,
    LayoutError, RuleError or ArgumentError on a call, before any kernel runs. In compiled code the second product alone
    looks where `out` lies.
    """

    delegate_types: ClassVar[Mapping[str, type[Op]]] = {"gate_up": MoEGroupedGemmFwdOp, "down": MoEGroupedGemmFwdOp}

    def __init__(
        self,
        layout: ContiguousLayout | MaskedLayout,
        activation: Literal["silu_and_mul", "gelu_and_mul"] = "silu_and_mul",
        *,
        target: str | None = None,
    ) -> None:
        self.layout = layout
        self.activation = activation
        super().__init__(target=target)
        self.delegate_for("gate_up", None, layout=layout, activation=activation)
        self.delegate_for("down", None, layout=layout)

    def forward(
        self,
        expert_input: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        layout_metadata: Tensor,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """Run both products on checked inputs."""
        if out is not None and not torch.compiler.is_compiling():
            given = {"expert_input": expert_input, "w_gate_up": w_gate_up, "w_down": w_down}
            refuse_shared(self, "out", out, **given, layout_metadata=layout_metadata)
        gate_up, down = self.delegate_for("gate_up", None), self.delegate_for("down", None)
        hidden = gate_up(expert_input, w_gate_up, layout_metadata)
        output: Tensor = down(hidden, w_down, layout_metadata, out=out)
        return output

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
