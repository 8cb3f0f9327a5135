"""Permutation after experts: the rows of each token's experts added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.moe.buffers import refuse_shared
from tileops.moe.epilogues import RoutingEpilogue, RoutingWeighting
from tileops.moe.layouts import ContiguousLayout, MaskedLayout
from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.moe import POST_PERMUTE, POST_PERMUTE_KERNELS, PostPermuteCall, PostPermuteFwdInterface


class MoEPostPermuteFwdOp(Op):
    """`output[m] = scale * sum(topk_weights[m, k] * row[inverse_indices[m * K + k]] for k)` for each token m.

    expert_output: the rows, `[P, H]` for a contiguous layout and `[E, max_m, H]` for a masked one, whose rows are
    counted through all slabs; float16, bfloat16 or float32. topk_weights: float32 `[M, K]`. inverse_indices: int32
    `[M * K]`, as `MoEPrePermuteFwdOp` gives them; a pair whose index is -1 contributes nothing, and a token without any
    gives zeros. All in any layout in memory. Returns `[M, H]` in out_dtype or expert_output's dtype. Sums are computed
    in float32 in the order of k and rounded once.

    epilogue: a `RoutingEpilogue` of `tileops.moe`, which says scale and whether rows are weighted; None is a scale of 1
    with weights. out_dtype: None, or one of the dtypes above. `out` is contiguous, of the output's shape and dtype,
    shares no memory with the inputs, and is returned.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError,
    LayoutError or ArgumentError on a call, before any kernel runs.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = POST_PERMUTE_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {POST_PERMUTE: PostPermuteFwdInterface}

    def __init__(
        self,
        layout: ContiguousLayout | MaskedLayout,
        epilogue: RoutingEpilogue | None = None,
        out_dtype: torch.dtype | None = None,
        *,
        target: str | None = None,
    ) -> None:
        self.layout = layout
        self.epilogue = epilogue
        self.out_dtype = out_dtype
        super().__init__(target=target)

    def forward(
        self, expert_output: Tensor, topk_weights: Tensor, inverse_indices: Tensor, *, out: Tensor | None = None
    ) -> Tensor:
        """Add up the rows of checked inputs."""
        epilogue = self.epilogue or RoutingEpilogue()
        out_dtype = self.out_dtype or expert_output.dtype
        tokens, h = topk_weights.shape[0], expert_output.shape[-1]
        widest = max(expert_output.dtype.itemsize, out_dtype.itemsize)
        call = PostPermuteCall(
            device=expert_output.device,
            weighted=epilogue.weighting == RoutingWeighting.WEIGHTED,
            scale=float(epilogue.scale),
            vectors=h * widest % ACCESS_BYTES == 0,
            dtype=expert_output.dtype,
            out_dtype=out_dtype,
        )
        rows, weights = expert_output.contiguous().view(-1, h), topk_weights.contiguous()
        places = inverse_indices.contiguous()
        if out is not None:
            refuse_shared(self, "out", out, expert_output=rows, topk_weights=weights, inverse_indices=places)
        output = rows.new_empty((tokens, h), dtype=out_dtype) if out is None else out
        return self.kernel_for(POST_PERMUTE, call)(rows, weights, places, output)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
