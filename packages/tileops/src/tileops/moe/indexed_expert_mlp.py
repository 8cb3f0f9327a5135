"""The experts' gated MLP for few tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.moe.buffers import refuse_shared
from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.moe import (
    INDEXED_EXPERT_MLP,
    INDEXED_EXPERT_MLP_KERNELS,
    IndexedExpertMLPCall,
    IndexedExpertMLPFwdInterface,
)


class IndexedExpertMLPFwdOp(Op):
    """`output[m] = routed_scaling_factor * sum over k of topk_weights[m, k] * mlp(expert topk_ids[m, k])`.

    An expert's MLP of a token is `(silu(gate) * up) @ w_down[id].T`, gate and up being the halves of
    `hidden_states[m] @ w_gate_up[id].T`. For few tokens: each expert's weights are read where they lie, once for
    several of its tokens, and no rows are permuted.

    output: `[M, H]`, contiguous, written in place and not read; nothing is returned. hidden_states: `[M, H]`;
    w_gate_up: `[E, 2 * F, H]`, gates first; w_down: `[E, H, F]`; these four of one dtype, float16 or bfloat16.
    topk_weights: `[M, K]` float32; topk_ids: `[M, K]` int32. Inputs lie in any layout; output shares no memory with
    them. An id that is not in `[0, E)` stands for an expert that is not here: it contributes nothing, whatever its
    weight. A token without experts gives zeros.

    Sums are float32. The activation's result is rounded to the dtype, an expert's result is not: the weighted sum, in
    the order of K, is rounded once.

    routed_scaling_factor: what the weighted sum is multiplied with, a number that float32 holds.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError,
    LayoutError or ArgumentError on a call, before any kernel runs.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = INDEXED_EXPERT_MLP_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {INDEXED_EXPERT_MLP: IndexedExpertMLPFwdInterface}

    def __init__(self, routed_scaling_factor: float = 1.0, *, target: str | None = None) -> None:
        self.routed_scaling_factor = routed_scaling_factor
        super().__init__(target=target)

    def forward(
        self,
        output: Tensor,
        hidden_states: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
    ) -> None:
        """Write the weighted sums of checked inputs into `output`."""
        if output.numel() == 0:
            return
        width = ACCESS_BYTES // output.dtype.itemsize
        call = IndexedExpertMLPCall(
            device=output.device,
            vectors=not (w_down.shape[1] % width or w_down.shape[2] % width),
            dtype=output.dtype,
        )
        kernel = self.kernel_for(INDEXED_EXPERT_MLP, call)
        refuse_shared(
            self,
            "output",
            output,
            hidden_states=hidden_states,
            w_gate_up=w_gate_up,
            w_down=w_down,
            topk_weights=topk_weights,
            topk_ids=topk_ids,
        )
        kernel(
            output,
            hidden_states.contiguous(),
            w_gate_up.contiguous(),
            w_down.contiguous(),
            topk_weights.contiguous(),
            topk_ids.contiguous(),
            self.routed_scaling_factor,
        )

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
