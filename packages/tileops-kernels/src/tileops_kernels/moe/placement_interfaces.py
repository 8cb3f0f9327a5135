"""Call specs and kernel interfaces of the moe family's permutations: pairs of token and expert, and rows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface

RowMetadata = Literal["ends", "per_row"]
"""What is said of rows: the row after each expert's last one, or for each row its expert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrePermuteCall(CallSpec):
    """Rows of tokens copied to rows of their experts.

    `experts` is their number, `alignment` at what multiples an expert's rows begin, `metadata` what is said of rows;
    `vectors` says that a row is whole 16-byte accesses, `dtype` is that of the rows.
    """

    experts: int
    alignment: int
    metadata: RowMetadata
    vectors: bool
    dtype: torch.dtype


class PrePermuteFwdInterface(KernelInterface, Protocol):
    """Rows of tokens copied to rows of their experts, and where each went."""

    request: ClassVar[type[CallSpec]] = PrePermuteCall

    @abstractmethod
    def forward(self, hidden_states: Tensor, expert_ids: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows of experts, what is said of them, and the row of each pair of token and expert.

        hidden_states: `[tokens, h]`; `call.dtype`. expert_ids: `[tokens, top_k]`; int32; a pair whose id is not in
        [0, call.experts) has no row. Both contiguous, at any storage offset, on the call's device, not written. rows:
        how many there are, enough for all pairs.
        Returns new contiguous tensors: `[rows, h]` in `call.dtype`, whose rows that are no pair's are undefined; int32
        `[call.experts]` for "ends", `[rows]` for "per_row", where padding has the id of the expert before it and what
        is behind the last expert's rows has `call.experts`; int32 `[tokens * top_k]`, -1 for a pair without a row.
        Experts stand in order, each beginning at a multiple of `call.alignment`, and their pairs in order.
        """
        ...

    def __call__(self, hidden_states: Tensor, expert_ids: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Run `forward`."""
        ...


PRE_PERMUTE: InterfaceKey[PrePermuteCall, PrePermuteFwdInterface] = InterfaceKey(
    "pre_permute", PrePermuteFwdInterface, PrePermuteCall
)
"""The interface through which `MoEPrePermuteFwdOp` calls its kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostPermuteCall(CallSpec):
    """Sums of the rows of each token's experts.

    `weighted` says whether rows are multiplied by the token's weights, `scale` is a factor of the sum; `vectors` says
    that a row is whole 16-byte accesses in the wider of both dtypes; `dtype` is that of the rows, `out_dtype` the
    result's.
    """

    weighted: bool
    scale: float
    vectors: bool
    dtype: torch.dtype
    out_dtype: torch.dtype


class PostPermuteFwdInterface(KernelInterface, Protocol):
    """Sums of the rows of each token's experts."""

    request: ClassVar[type[CallSpec]] = PostPermuteCall

    @abstractmethod
    def forward(self, expert_output: Tensor, topk_weights: Tensor, inverse_indices: Tensor, output: Tensor) -> Tensor:
        """Write the sum of each token's rows into `output` and return it.

        expert_output: `[rows, h]`; `call.dtype`. topk_weights: float32 `[tokens, top_k]`. inverse_indices: int32
        `[tokens * top_k]`, each a row or, for a pair that contributes nothing, below zero. output: `[tokens, h]`;
        `call.out_dtype`; written. All contiguous, at any storage offset, on the call's device; output shares no memory
        with the others. Sums are computed in float32 in the order of a token's pairs, multiplied by `call.scale` and
        rounded once; a token without rows gives zeros.
        """
        ...

    def __call__(self, expert_output: Tensor, topk_weights: Tensor, inverse_indices: Tensor, output: Tensor) -> Tensor:
        """Run `forward`."""
        ...


POST_PERMUTE: InterfaceKey[PostPermuteCall, PostPermuteFwdInterface] = InterfaceKey(
    "post_permute", PostPermuteFwdInterface, PostPermuteCall
)
"""The interface through which `MoEPostPermuteFwdOp` calls its kernel."""


Scoring = Literal["softmax", "sigmoid"]
"""What makes scores of a token's logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedTopKCall(CallSpec):
    """The choice of experts for tokens.

    `scoring` makes scores of logits, `renormalize` says that a token's weights are divided by their sum, `biased` that
    a bias is added to choose; `experts` is their number, `dtype` that of the logits.
    """

    scoring: Scoring
    renormalize: bool
    biased: bool
    experts: int
    dtype: torch.dtype


class FusedTopKFwdInterface(KernelInterface, Protocol):
    """The experts of each token, and their weights."""

    request: ClassVar[type[CallSpec]] = FusedTopKCall

    @abstractmethod
    def forward(self, gating_output: Tensor, bias: Tensor | None, top_k: int) -> tuple[Tensor, Tensor]:
        """Return the weights and ids of the `top_k` experts with the largest scores, largest first.

        gating_output: `[tokens, call.experts]`; `call.dtype`. bias: float32 `[call.experts]` if `call.biased`, else
        None. Both contiguous, at any storage offset, on the call's device, not written. top_k: 1 to call.experts.
        Returns new contiguous `[tokens, top_k]` tensors, float32 and int32. Scores are those of a row in float32, and
        the bias is added to them to choose; equal sums go by the lowest id, and NaN goes before all numbers, as in
        `torch.topk`. Weights are scores without the bias.
        """
        ...

    def __call__(self, gating_output: Tensor, bias: Tensor | None, top_k: int) -> tuple[Tensor, Tensor]:
        """Run `forward`."""
        ...


FUSED_TOPK: InterfaceKey[FusedTopKCall, FusedTopKFwdInterface] = InterfaceKey(
    "fused_topk", FusedTopKFwdInterface, FusedTopKCall
)
"""The interface through which `FusedTopKFwdOp` calls its kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermuteAlignCall(CallSpec):
    """Pairs of token and expert in blocks of rows of one expert each: `experts` of them, `block_size` rows a block."""

    experts: int
    block_size: int


class PermuteAlignFwdInterface(KernelInterface, Protocol):
    """Pairs of token and expert in blocks of rows of one expert each."""

    request: ClassVar[type[CallSpec]] = PermuteAlignCall

    @abstractmethod
    def forward(self, expert_ids: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the pair of each row, the expert of each block, and how many rows are an expert's.

        expert_ids: `[tokens, top_k]`; int32; a pair whose id is not in [0, call.experts) has no row; contiguous, at any
        storage offset, on the call's device, not written. rows: how many there are, enough for all pairs in blocks.
        Returns new contiguous int32 tensors: `[rows]`, where tokens * top_k stands in rows that are no pair's;
        `[ceil(rows / call.block_size)]`, -1 in blocks that are no expert's; `[1]`. Experts stand in order, their pairs
        in order, each expert in as many blocks as its pairs need.
        """
        ...

    def __call__(self, expert_ids: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Run `forward`."""
        ...


PERMUTE_ALIGN: InterfaceKey[PermuteAlignCall, PermuteAlignFwdInterface] = InterfaceKey(
    "permute_align", PermuteAlignFwdInterface, PermuteAlignCall
)
"""The interface through which `MoEPermuteAlignFwdOp` calls its kernel."""
