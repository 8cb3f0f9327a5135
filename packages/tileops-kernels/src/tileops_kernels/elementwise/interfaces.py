"""Call specs and kernel interfaces of the elementwise family."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationCall(CallSpec):
    """A function of each element by itself; the number of elements is not part of it, every kernel takes any."""

    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class AlibiCall(CallSpec):
    """A bias for each pair of positions and each of `num_heads` heads, in `dtype`; kernels take any length."""

    num_heads: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class SinusoidalCall(CallSpec):
    """An embedding of `width` elements, an even number, for each position, in `dtype`; kernels take any length."""

    width: int
    dtype: torch.dtype


class ReluFwdInterface(KernelInterface, Protocol):
    """`y = x where not x < 0, else 0`, so that NaN and the sign of zero are kept."""

    request: ClassVar[type[CallSpec]] = ActivationCall

    @abstractmethod
    def forward(self, x: Tensor, out: Tensor | None) -> Tensor:
        """Return the result in a new tensor, or in `out`.

        x: any shape, `call.dtype`, on the call's device, contiguous, at any storage offset; it may hold no elements.
        Not written unless it is `out`.
        out: None; or x itself, whose elements are replaced.
        Returns a new contiguous tensor of x's shape, dtype and device; or `out`.
        """
        ...

    def __call__(self, x: Tensor, out: Tensor | None) -> Tensor:
        """Run `forward`."""
        ...


class AlibiFwdInterface(KernelInterface, Protocol):
    """`bias[h, i, j] = -slope[h] * |i - j|`, where the slopes are those of the ALiBi paper for the number of heads."""

    request: ClassVar[type[CallSpec]] = AlibiCall

    @abstractmethod
    def forward(self, length: int) -> Tensor:
        """Return the biases of `length` positions in a new contiguous tensor, `[num_heads, length, length]`.

        It is on the call's device and of `call.dtype`; each product is formed in float32 and rounded once. `length` may
        be 0.
        """
        ...

    def __call__(self, length: int) -> Tensor:
        """Run `forward`."""
        ...


class SinusoidalFwdInterface(KernelInterface, Protocol):
    """`table[i, 2 * k] = sin(i / 10000 ** (2 * k / width))`, and the cosine of the same angle beside it."""

    request: ClassVar[type[CallSpec]] = SinusoidalCall

    @abstractmethod
    def forward(self, length: int) -> Tensor:
        """Return the embeddings of `length` positions in a new contiguous tensor, `[length, width]`.

        It is on the call's device and of `call.dtype`; angles, sines and cosines are formed in float64. `length` may be
        0.
        """
        ...

    def __call__(self, length: int) -> Tensor:
        """Run `forward`."""
        ...


RELU: InterfaceKey[ActivationCall, ReluFwdInterface] = InterfaceKey("relu", ReluFwdInterface, ActivationCall)
"""The interface through which `ReluFwdOp` calls its kernel."""

ALIBI: InterfaceKey[AlibiCall, AlibiFwdInterface] = InterfaceKey("alibi", AlibiFwdInterface, AlibiCall)
"""The interface through which `AlibiFwdOp` calls its kernel."""

SINUSOIDAL: InterfaceKey[SinusoidalCall, SinusoidalFwdInterface] = InterfaceKey(
    "sinusoidal", SinusoidalFwdInterface, SinusoidalCall
)
"""The interface through which `SinusoidalFwdOp` calls its kernel."""
