"""Call specs and kernel interfaces of the moe family."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface
from tileops_kernels.products import FEW_ROWS, ProductCall

RowLayout = Literal["masked", "ends", "per_row"]
"""How metadata says which rows are an expert's: the rows that count of its slab, the row after its last one, or for
each row its expert.
"""

Activation = Literal["none", "silu_and_mul", "gelu_and_mul"]
"""What is done with the two halves of a product; "none" for a product without halves."""


LEAST_ROWS, MOST_ROWS = 16, 128
"""Rows that a tile of a grouped product should have at least and at most."""


def tile_rows_of(rows: int, layout: RowLayout) -> int:
    """The rows that a tile should have, a power of two, where experts have `rows` rows on average or in their slabs.

    A slab's tile holds all of its rows. Other experts may have more than the average, and get a tile for twice as many;
    up to FEW_ROWS on average they get no more than FEW_ROWS.
    """
    if rows > FEW_ROWS:
        return MOST_ROWS
    wanted = rows if layout == "masked" else 2 * rows
    return min(max(LEAST_ROWS, 1 << max(wanted - 1, 0).bit_length()), FEW_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemmCall(ProductCall):
    """Products of each expert's rows with its weights.

    `layout` says what the metadata holds, and `alignment` at what multiples experts' rows begin where it holds ends.
    `few_rows` says that an expert has FEW_ROWS rows or less on average, and `tile_rows` is what tile_rows_of gives for
    that; `vectors` says that rows of both operands are whole 16-byte accesses; `out_dtype` is the result's, `dtype` or
    float32.
    """

    layout: RowLayout
    alignment: int
    activation: Activation
    tile_rows: int = MOST_ROWS
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExpertMLPCall(ProductCall):
    """The gated MLP of the shared expert: `k` is the length of its rows, `n` the number of its hidden columns.

    `few_rows` says that there are FEW_ROWS rows or less, `handful` HANDFUL or less, `vectors` that rows of all tensors
    are whole 16-byte accesses; `dtype` is that of all of them.
    """


class SharedExpertMLPFwdInterface(KernelInterface, Protocol):
    """The gated MLP of the shared expert."""

    request: ClassVar[type[CallSpec]] = SharedExpertMLPCall

    @abstractmethod
    def forward(self, hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor) -> Tensor:
        """Return `(silu(gate) * up) @ w_down.T`, gate and up being the halves of `hidden_states @ w_gate_up.T`.

        hidden_states: `[m, k]`; w_gate_up: `[2 n, k]`, gates first; w_down: `[k, n]`; `call.dtype`; contiguous, at any
        storage offset; on the call's device; not written. Any extent may be 0; without hidden columns the result is
        zeros. Returns a new contiguous `[m, k]` tensor of the same dtype. Products are summed in float32; the
        activation is computed in float32 and rounded once, and so is the result.
        """
        ...

    def __call__(self, hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor) -> Tensor:
        """Run `forward`."""
        ...


SHARED_EXPERT_MLP: InterfaceKey[SharedExpertMLPCall, SharedExpertMLPFwdInterface] = InterfaceKey(
    "shared_expert_mlp", SharedExpertMLPFwdInterface, SharedExpertMLPCall
)
"""The interface through which `SharedExpertMLPFwdOp` calls its kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedExpertMLPCall(CallSpec):
    """The gated MLPs of the experts that a few tokens are routed to, `dtype` being that of tokens and weights.

    `vectors` says that tokens and hidden rows are whole 16-byte accesses.
    """

    vectors: bool
    dtype: torch.dtype


class IndexedExpertMLPFwdInterface(KernelInterface, Protocol):
    """The gated MLPs of the experts that a few tokens are routed to."""

    request: ClassVar[type[CallSpec]] = IndexedExpertMLPCall

    @abstractmethod
    def forward(
        self,
        output: Tensor,
        hidden_states: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        scale: float,
    ) -> None:
        """Write `scale` times each token's weighted sum of its experts' results into `output`.

        output, hidden_states: `[m, h]`; w_gate_up: `[experts, 2 f, h]`, gates first; w_down: `[experts, h, f]`;
        `call.dtype`. topk_weights: `[m, top_k]`, float32; topk_ids: `[m, top_k]`, int32. All contiguous, at any storage
        offset, on the call's device; output is written and not read, and shares no memory with the others; h is not 0.

        An expert's result is `(silu(gate) * up) @ w_down[id].T`, gate and up being the halves of
        `hidden_states[m] @ w_gate_up[id].T`. Sums are float32; the activation's result is rounded to `call.dtype`, the
        expert's result is not, and the weighted sum, in the order of top_k, is rounded once. An id below 0 or not below
        the number of experts contributes nothing, whatever its weight; it is no index of anything.
        """
        ...

    def __call__(
        self,
        output: Tensor,
        hidden_states: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        scale: float,
    ) -> None:
        """Run `forward`."""
        ...


INDEXED_EXPERT_MLP: InterfaceKey[IndexedExpertMLPCall, IndexedExpertMLPFwdInterface] = InterfaceKey(
    "indexed_expert_mlp", IndexedExpertMLPFwdInterface, IndexedExpertMLPCall
)
"""The interface through which `IndexedExpertMLPFwdOp` calls its kernel."""
