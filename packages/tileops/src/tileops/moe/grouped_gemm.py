"""Grouped matrix product of experts' rows with their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from tileops.moe.buffers import refuse_shared
from tileops.moe.layouts import ContiguousLayout, ContiguousMetadata, MaskedLayout
from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.moe import GROUPED_GEMM, GROUPED_GEMM_KERNELS, GroupedGemmCall, GroupedGemmFwdInterface
from tileops_kernels.moe.interfaces import RowLayout, tile_rows_of
from tileops_kernels.products import FEW_ROWS


class MoEGroupedGemmFwdOp(Op):
    """`output[r] = a[r] @ b[e].T` for each row r of each expert e, or a gated activation of that product.

    a: rows of K elements, `[P, K]` for a contiguous layout and `[E, max_m, K]` for a masked one; b: `[E, N, K]`, or
    with an activation `[E, 2 * N, K]`, gates first: `output = activation(gate) * up`; one dtype, float16 or bfloat16;
    any layout in memory. layout_metadata: int32, what the layout says; its contents are the caller's duty. Returns a's
    shape with N columns, in out_dtype or a's dtype. Sums and the activation (silu, or the exact gelu) are computed in
    float32 and rounded once.

    Rows that are no expert's (padding, and beyond the count of a masked slab) are not written: they keep what `out`
    holds, and are zeros in a new tensor. Neither are rows that name expert E where each row names its own, and those
    behind the last end of a tight layout; in a new tensor these are undefined. `out` is contiguous, of the output's
    shape and dtype, shares no memory with the inputs, and is returned.

    layout: `ContiguousLayout` or `MaskedLayout` of `tileops.moe`. out_dtype: None, or torch.float32.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError,
    LayoutError, RuleError or ArgumentError on a call, before any kernel runs.

    Source: `torch._grouped_mm`; DeepGEMM's contiguous and masked layouts.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = GROUPED_GEMM_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {GROUPED_GEMM: GroupedGemmFwdInterface}

    def __init__(
        self,
        layout: ContiguousLayout | MaskedLayout,
        activation: Literal["silu_and_mul", "gelu_and_mul"] | None = None,
        out_dtype: torch.dtype | None = None,
        *,
        target: str | None = None,
    ) -> None:
        self.layout = layout
        self.activation = activation
        self.out_dtype = out_dtype
        super().__init__(target=target)
        self._row_layout, self._alignment = _rows_of(layout)
        self._has_padding = self._row_layout == "masked" or self._alignment > 1

    def forward(self, a: Tensor, b: Tensor, layout_metadata: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Compute the products of checked inputs."""
        experts, weights, k = b.shape
        n = weights if self.activation is None else weights // 2
        out_dtype = self.out_dtype or a.dtype
        rows = a.shape[1] if self._row_layout == "masked" else a.shape[0] // max(experts, 1)
        call = GroupedGemmCall(
            device=a.device,
            layout=self._row_layout,
            alignment=self._alignment,
            activation=self.activation or "none",
            n=n,
            k=k,
            few_rows=rows <= FEW_ROWS,
            tile_rows=tile_rows_of(rows, self._row_layout),
            vectors=k % (ACCESS_BYTES // a.dtype.itemsize) == 0,
            dtype=a.dtype,
            out_dtype=out_dtype,
        )
        a, b, layout_metadata = a.contiguous(), b.contiguous(), layout_metadata.contiguous()
        if out is not None:
            refuse_shared(self, "out", out, a=a, b=b, layout_metadata=layout_metadata)
            output = out
        elif self._has_padding or experts == 0:
            output = a.new_zeros((*a.shape[:-1], n), dtype=out_dtype)
        else:
            output = a.new_empty((*a.shape[:-1], n), dtype=out_dtype)
        return self.kernel_for(GROUPED_GEMM, call)(a, b, layout_metadata, output)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


def _rows_of(layout: ContiguousLayout | MaskedLayout) -> tuple[RowLayout, int]:
    """What the kernels need to know of a layout."""
    if isinstance(layout, MaskedLayout):
        return "masked", 1
    if layout.metadata_kind == ContiguousMetadata.PER_ROW:
        return "per_row", 1
    return "ends", layout.alignment
