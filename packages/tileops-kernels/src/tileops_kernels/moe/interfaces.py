"""Call specs and kernel interfaces of the moe family."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface
from tileops_kernels.products import ProductCall

RowLayout = Literal["masked", "ends", "per_row"]
"""How metadata says which rows are an expert's: the rows that count of its slab, the row after its last one, or for
each row its expert.
"""

Activation = Literal["none", "silu_and_mul", "gelu_and_mul"]
"""What is done with the two halves of a product; "none" for a product without halves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemmCall(ProductCall):
    """Products of each expert's rows with its weights.

    `layout` says what the metadata holds, and `alignment` at what multiples experts' rows begin where it holds ends.
    `few_rows` says that an expert has FEW_ROWS rows or less on average, `vectors` that rows of both operands are whole
    16-byte accesses; `out_dtype` is the result's, `dtype` or float32.
    """

    layout: RowLayout
    alignment: int
    activation: Activation
    out_dtype: torch.dtype


class GroupedGemmFwdInterface(KernelInterface, Protocol):
    """Products of each expert's rows with its weights."""

    request: ClassVar[type[CallSpec]] = GroupedGemmCall

    @abstractmethod
    def forward(self, a: Tensor, b: Tensor, layout_metadata: Tensor, output: Tensor) -> Tensor:
        """Write each expert's rows of `a @ b[expert].T` into `output` and return it.

        a: `[rows, k]`, or `[experts, slab, k]` for "masked"; `call.dtype`. b: `[experts, n, k]`, or with an activation
        `[experts, 2 n, k]`, gates before the rows that they are multiplied with; `call.dtype`. layout_metadata:
        `[rows]` for "per_row", ascending, else `[experts]`; int32. output: a's shape with n columns; `call.out_dtype`.
        All contiguous, at any storage offset, on the call's device; output shares no memory with the others. Rows that
        are no expert's are not written.
        Products are summed in float32; an activation, silu or the exact gelu of the gates times the other half, is
        computed in float32; the result is rounded once.
        """
        ...

    def __call__(self, a: Tensor, b: Tensor, layout_metadata: Tensor, output: Tensor) -> Tensor:
        """Run `forward`."""
        ...


GROUPED_GEMM: InterfaceKey[GroupedGemmCall, GroupedGemmFwdInterface] = InterfaceKey(
    "grouped_gemm", GroupedGemmFwdInterface, GroupedGemmCall
)
"""The interface through which `MoEGroupedGemmFwdOp` calls its kernel."""
