"""The shared expert's gated MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.moe import (
    SHARED_EXPERT_MLP,
    SHARED_EXPERT_MLP_KERNELS,
    SharedExpertMLPCall,
    SharedExpertMLPFwdInterface,
)
from tileops_kernels.products import FEW_ROWS, HANDFUL


class SharedExpertMLPFwdOp(Op):
    """`output = (silu(gate) * up) @ w_down.T`, the gated MLP of an expert that every token visits.

    gate and up are the halves of `hidden_states @ w_gate_up.T`. hidden_states: `[M, H]`; w_gate_up: `[2 * S, H]`, gates
    first; w_down: `[H, S]`; one dtype, float16 or bfloat16; any layout. Returns a new contiguous `[M, H]` tensor of
    that dtype. Products are summed in float32; the activation is computed in float32 and rounded to the dtype between
    the products, and the result is rounded once. Any extent may be 0; without hidden columns (S is 0) the result is
    zeros.

    Raises ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or ArgumentError on a call,
    before any kernel runs.

    Source: the shared experts of DeepSeek-V3; Shazeer, "GLU Variants Improve Transformer", 2020.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = SHARED_EXPERT_MLP_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {SHARED_EXPERT_MLP: SharedExpertMLPFwdInterface}

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor) -> Tensor:
        """Compute the MLP of checked inputs."""
        h, s = w_down.shape
        width = ACCESS_BYTES // hidden_states.dtype.itemsize
        call = SharedExpertMLPCall(
            device=hidden_states.device,
            n=s,
            k=h,
            few_rows=hidden_states.shape[0] <= FEW_ROWS,
            handful=hidden_states.shape[0] <= HANDFUL,
            vectors=not (h % width or s % width),
            dtype=hidden_states.dtype,
        )
        kernel = self.kernel_for(SHARED_EXPERT_MLP, call)
        return kernel(hidden_states.contiguous(), w_gate_up.contiguous(), w_down.contiguous())

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
