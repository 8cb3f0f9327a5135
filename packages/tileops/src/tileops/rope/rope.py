"""Rotary position embeddings, by the places of tokens in their sequence or by positions that are stated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from tileops.errors import ArgumentError
from tileops.op.base import Op
from tileops.rope.base import RoPEOp
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.rope import (
    ROPE_POSITION_IDS,
    ROPE_POSITION_IDS_KERNELS,
    Frequencies,
    InterpolatedFrequencies,
    RescaledFrequencies,
    RoPEPositionIdsCall,
    RoPEPositionIdsFwdInterface,
    SmoothedFrequencies,
)


class RoPEFwdOp(RoPEOp):
    """Pair k of token i turns by the angle `i * base ** (-2k / D)`.

    x: `[S, D]`, or `[B, S, H, D]` with `input_layout="2d"`; float16, bfloat16 or float32, any layout in memory; D is
    even. Returns a new contiguous tensor of x's shape and dtype. Angles, cosines and sines are formed in float64 from
    integer positions; the rotation is formed in float32 and rounded once.

    rope_layout: "neox" pairs elements k and k + D / 2, "interleaved" pairs elements 2k and 2k + 1. base: of the angles.
    input_layout: the axes of x.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, RuleError or ArgumentError
    on a call, before any kernel runs.

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
    """

    def __init__(
        self,
        rope_layout: Literal["neox", "interleaved"] = "neox",
        base: float = 10000.0,
        input_layout: Literal["1d", "2d"] = "1d",
        *,
        target: str | None = None,
    ) -> None:
        self.rope_layout = rope_layout
        super().__init__(base=base, input_layout=input_layout, target=target)

    def frequencies(self) -> Frequencies:
        """Those of the paper."""
        return Frequencies(float(self.base))


class RoPELlama31FwdOp(RoPEOp):
    """Pair k of token i turns by `i * f(base ** (-2k / D))`, where f slows down the pairs that turn seldom.

    x: `[S, D]`, or `[B, S, H, D]` with `input_layout="2d"`; float16, bfloat16 or float32, any layout in memory; D is
    even, and elements k and k + D / 2 are a pair. Returns a new contiguous tensor of x's shape and dtype. Angles,
    cosines and sines are formed in float64 from integer positions; the rotation is formed in float32 and rounded once.

    base: of the angles. scale_factor: how many times slower a pair turns that turns less than low_freq_factor times in
    original_max_position positions. high_freq_factor: a pair that turns more often than this stays. The frequencies of
    the pairs between are mixed, in proportion to their number of turns.
    input_layout: the axes of x.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, RuleError or ArgumentError
    on a call, before any kernel runs.

    Source: the rotary embedding of Llama 3.1; Grattafiori et al., "The Llama 3 Herd of Models", 2024.
    """

    def __init__(
        self,
        base: float = 10000.0,
        scale_factor: float = 8.0,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
        original_max_position: int = 8192,
        input_layout: Literal["1d", "2d"] = "1d",
        *,
        target: str | None = None,
    ) -> None:
        self.scale_factor = scale_factor
        self.low_freq_factor = low_freq_factor
        self.high_freq_factor = high_freq_factor
        self.original_max_position = original_max_position
        super().__init__(base=base, input_layout=input_layout, target=target)

    def frequencies(self) -> Frequencies:
        """Those of Llama 3.1."""
        return SmoothedFrequencies(
            float(self.base),
            float(self.scale_factor),
            float(self.low_freq_factor),
            float(self.high_freq_factor),
            self.original_max_position,
        )


class YaRNFwdOp(RoPEOp):
    """Pair k of token i turns by `i * f(base ** (-2k / D))`, where f slows down slow pairs; lengths grow with scale.

    x: `[S, D]`, or `[B, S, H, D]` with `input_layout="2d"`; float16, bfloat16 or float32, any layout in memory; D is
    even, and elements k and k + D / 2 are a pair. Returns a new contiguous tensor of x's shape and dtype. Angles,
    cosines and sines are formed in float64 from integer positions; the rotation is formed in float32 and rounded once.

    base: of the angles. scale: how many times slower a pair turns that turns less than beta_slow times in
    original_max_position positions. beta_fast: a pair that turns more often than this stays; from the one place among
    the pairs to the other, both rounded outwards to whole pairs, frequencies are mixed along a ramp. attn_factor:
    cosines and sines are multiplied by it, and where scale exceeds 1 by `1 + log(scale) / 10` too.
    input_layout: the axes of x.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, RuleError or ArgumentError
    on a call, before any kernel runs.

    Source: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023.
    """

    def __init__(
        self,
        base: float = 10000.0,
        scale: float = 16.0,
        original_max_position: int = 4096,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        attn_factor: float = 1.0,
        input_layout: Literal["1d", "2d"] = "1d",
        *,
        target: str | None = None,
    ) -> None:
        self.scale = scale
        self.original_max_position = original_max_position
        self.beta_fast = beta_fast
        self.beta_slow = beta_slow
        self.attn_factor = attn_factor
        super().__init__(base=base, input_layout=input_layout, target=target)

    def frequencies(self) -> Frequencies:
        """The paper's: slower behind a ramp, and longer."""
        stretch = self.attn_factor * (1 + math.log(self.scale) / 10 if self.scale > 1 else 1.0)
        return InterpolatedFrequencies(
            float(self.base),
            float(self.scale),
            self.original_max_position,
            float(self.beta_fast),
            float(self.beta_slow),
            float(stretch),
        )


class LongRoPEFwdOp(RoPEOp):
    """Pair k of token i turns by `i * base ** (-2k / D) / rescale_factors[k]`, and lengths grow with the context.

    x: `[S, D]`, or `[B, S, H, D]` with `input_layout="2d"`; float16, bfloat16 or float32, any layout in memory; D is
    even, and elements k and k + D / 2 are a pair. Returns a new contiguous tensor of x's shape and dtype. Angles,
    cosines and sines are formed in float64 from integer positions; the rotation is formed in float32 and rounded once.

    base: of the angles. rescale_factors: `[D / 2]`, float32, float16 or bfloat16, read once at construction; None means
    ones. max_position_embeddings, original_max_position_embeddings: where the first is `s` times the second and s
    exceeds 1, cosines and sines are multiplied by `sqrt(1 + log(s) / log(original_max_position_embeddings))`.
    input_layout: the axes of x.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, RuleError or ArgumentError
    on a call, before any kernel runs.

    Source: Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", 2024.
    """

    def __init__(
        self,
        base: float = 10000.0,
        rescale_factors: Tensor | None = None,
        max_position_embeddings: int = 4096,
        original_max_position_embeddings: int = 4096,
        input_layout: Literal["1d", "2d"] = "1d",
        *,
        target: str | None = None,
    ) -> None:
        self.rescale_factors = rescale_factors
        self.max_position_embeddings = max_position_embeddings
        self.original_max_position_embeddings = original_max_position_embeddings
        super().__init__(base=base, input_layout=input_layout, target=target)

    def frequencies(self) -> Frequencies:
        """The paper's: slower by the rescale factors, and longer."""
        return RescaledFrequencies(float(self.base), self._factors(), self._stretch())

    def _factors(self) -> tuple[float, ...] | None:
        given = self.rescale_factors
        if given is None:
            return None
        if given.is_meta or isinstance(given, FakeTensor):
            raise ArgumentError(
                f"{type(self).__name__}: rescale_factors: expected a tensor with values, which construction reads, "
                f"received {'a meta' if given.is_meta else 'a fake'} tensor; construct the op with the factors"
            )
        return tuple(given.tolist())

    def _stretch(self) -> float:
        extension = self.max_position_embeddings / self.original_max_position_embeddings
        if extension <= 1:
            return 1.0
        return math.sqrt(1 + math.log(extension) / math.log(self.original_max_position_embeddings))


class RoPENeoxPositionIdsFwdOp(Op):
    """Pair k of token i turns by the angle `position_ids[i] * base ** (-2k / rotary_dim)`.

    x: `[N, H, D]`; float16, bfloat16 or float32. position_ids: `[N]`, int32 or int64. Both in any layout in memory.
    Elements `k` and `k + rotary_dim / 2` are a pair; elements from rotary_dim on are copied bit by bit. Returns a new
    contiguous tensor of x's shape and dtype. Angles are formed in fixed point from integer positions, so that the last
    position is as exact as the first; cosines, sines and the rotation are formed in float32, and the result is rounded
    once.

    max_position: positions are to be from 0 to below it; at most `2 ** 31`. Their contents are the caller's duty, since
    a check would wait for the device: a position outside turns its token by that position's own angle, and nothing is
    read or written by it. base: of the angles. rotary_dim: an even number up to D; None means D.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError, RuleError or
    ArgumentError on a call, before any kernel runs.

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; packed tokens as in vLLM.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = ROPE_POSITION_IDS_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {ROPE_POSITION_IDS: RoPEPositionIdsFwdInterface}

    def __init__(
        self,
        max_position: int,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        *,
        target: str | None = None,
    ) -> None:
        self.max_position = max_position
        self.base = base
        self.rotary_dim = rotary_dim
        super().__init__(target=target)
        self._frequencies = Frequencies(float(self.base))
        self._stated: dict[tuple[object, ...], RoPEPositionIdsCall] = {}

    def forward(self, x: Tensor, position_ids: Tensor) -> Tensor:
        """Rotate checked tokens."""
        call = self._state(x.device, x.dtype, x.shape[-1], position_ids.dtype)
        return self.kernel_for(ROPE_POSITION_IDS, call)(x.contiguous(), position_ids.contiguous())

    def _state(
        self, device: torch.device, dtype: torch.dtype, width: int, ids_dtype: torch.dtype
    ) -> RoPEPositionIdsCall:
        """The call spec of these facts, made once: making one takes several times as long as finding it."""
        facts = dtype, width, ids_dtype, device
        call = self._stated.get(facts)
        if call is None:
            call = self._stated[facts] = RoPEPositionIdsCall(
                device=device,
                width=width,
                rotated=width if self.rotary_dim is None else self.rotary_dim,
                frequencies=self._frequencies,
                ids_dtype=ids_dtype,
                dtype=dtype,
            )
        return call

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
