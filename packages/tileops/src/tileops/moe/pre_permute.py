"""Permutation before experts: tokens' rows copied to rows of their experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata
from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.moe import PRE_PERMUTE, PRE_PERMUTE_KERNELS, PrePermuteCall, PrePermuteFwdInterface


class MoEPrePermuteFwdOp(Op):
    """`expert_input[inverse_indices[m * K + k]] = hidden_states[m]` for each token m and each k, grouped by expert.

    hidden_states: `[M, H]`, float16, bfloat16 or float32; local_expert_ids: int32 `[M, K]`; any layout in memory. A
    pair `(m, k)` whose id is not in `[0, num_local_experts)` has no row: it is an expert that is not here.

    Returns expert_input, `[P, H]` in hidden_states' dtype, layout_metadata and inverse_indices, int32 `[M * K]`, -1 for
    a pair without a row. P is `M * K`, for an aligned layout with room for all padding. Experts stand in order, each
    beginning at a multiple of the layout's alignment; rows of one expert are in order of `m * K + k`. Rows that are no
    pair's are undefined.

    layout_metadata is what `MoEGroupedGemmFwdOp` takes. "physical_psum": `[num_local_experts]`, the row after each
    expert's last one, without padding; one without pairs ends where it would begin. "per_row": `[P]`, the expert of
    each row, padding being of the expert before it; rows behind the last expert's have num_local_experts, and no
    product is computed for them.

    layout: a `ContiguousLayout` of `tileops.moe`.

    Raises ParameterError, ParameterTypeError or RuleError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = PRE_PERMUTE_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {PRE_PERMUTE: PrePermuteFwdInterface}

    def __init__(self, layout: ContiguousLayout, num_local_experts: int, *, target: str | None = None) -> None:
        self.layout = layout
        self.num_local_experts = num_local_experts
        super().__init__(target=target)

    def forward(self, hidden_states: Tensor, local_expert_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Permute checked inputs."""
        layout, experts = self.layout, self.num_local_experts
        call = PrePermuteCall(
            device=hidden_states.device,
            experts=experts,
            alignment=layout.alignment,
            metadata="per_row" if layout.metadata_kind == ContiguousMetadata.PER_ROW else "ends",
            vectors=hidden_states.shape[1] * hidden_states.dtype.itemsize % ACCESS_BYTES == 0,
            dtype=hidden_states.dtype,
        )
        room = local_expert_ids.numel() + experts * (layout.alignment - 1)
        rows = -(-room // layout.alignment) * layout.alignment
        return self.kernel_for(PRE_PERMUTE, call)(hidden_states.contiguous(), local_expert_ids.contiguous(), rows)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
