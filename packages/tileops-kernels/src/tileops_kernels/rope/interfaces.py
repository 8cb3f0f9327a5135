"""Call specs and kernel interfaces of the rope family."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface
from tileops_kernels.rope.frequencies import Frequencies


@dataclass(frozen=True, slots=True, kw_only=True)
class RoPECall(CallSpec):
    """A rotation of the pairs of a head by the angles of the token's position.

    `width` is the length of a head and `rotated` that of its rotated part, an even number from 2, in elements. A pair
    is two neighbours if `interleaved`, else an element and the one half of `rotated` further on. Positions are below
    `positions`, which decides the table and not the program: `table_positions` rounds a length up to it. `dtype` is
    that of the tokens. Their number and that of heads are not part of it.
    """

    width: int
    rotated: int
    interleaved: bool
    frequencies: Frequencies
    positions: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class RoPEPositionIdsCall(CallSpec):
    """A rotation of the pairs of a head by the angles of a position that is stated for each token.

    `width` is the length of a head and `rotated` that of its rotated part, an even number, in elements. A pair is an
    element and the one half of `rotated` further on. `ids_dtype` is the dtype of positions, int32 or int64, and `dtype`
    that of the tokens. Their number and that of heads are not part of it, and neither is a bound of positions.
    """

    width: int
    rotated: int
    frequencies: Frequencies
    ids_dtype: torch.dtype
    dtype: torch.dtype


def table_positions(length: int) -> int:
    """The positions that the table for sequences of `length` tokens holds, so that growing lengths share it."""
    return max(4096, 1 << (length - 1).bit_length())


class RoPEFwdInterface(KernelInterface, Protocol):
    """Each pair `(a, b)` becomes `(a * cos - b * sin, b * cos + a * sin)` of its angle, times the amplitude."""

    request: ClassVar[type[CallSpec]] = RoPECall

    @abstractmethod
    def forward(self, x: Tensor, length: int, heads: int) -> Tensor:
        """Return the rotated tokens in a new tensor.

        x: any number of sequences of `length` tokens of `heads` heads of `call.width` elements, in any shape that lists
        them in this order; `call.dtype`; contiguous, at any storage offset; on the call's device; not written. It may
        hold no elements.
        length: the position of a token is its place in its sequence; at most `call.positions`. heads: at least 1.
        Returns a new contiguous tensor of x's shape, dtype and device. Cosines and sines are rounded once from float64
        to float32, the rotation is formed in float32 and rounded once; elements past `call.rotated` are copied bit by
        bit.
        """
        ...

    def __call__(self, x: Tensor, length: int, heads: int) -> Tensor:
        """Run `forward`."""
        ...


class RoPEPositionIdsFwdInterface(KernelInterface, Protocol):
    """Each pair `(a, b)` becomes `(a * cos - b * sin, b * cos + a * sin)` by its frequency times a stated position."""

    request: ClassVar[type[CallSpec]] = RoPEPositionIdsCall

    @abstractmethod
    def forward(self, x: Tensor, position_ids: Tensor) -> Tensor:
        """Return the rotated tokens in a new tensor.

        x: `[n, heads, call.width]`; `call.dtype`; contiguous, at any storage offset; on the call's device; not written.
        It may hold no elements. position_ids: `[n]`; `call.ids_dtype`; contiguous; any integers: nothing is read at
        them.
        Returns a new contiguous tensor of x's shape, dtype and device. Cosines and sines are within two float32
        roundings of those of the position times the float64 frequency, at every position from -2 ** 31 to 2 ** 31; the
        rotation is formed in float32 and rounded once; elements past `call.rotated` are copied bit by bit.
        """
        ...

    def __call__(self, x: Tensor, position_ids: Tensor) -> Tensor:
        """Run `forward`."""
        ...


ROPE: InterfaceKey[RoPECall, RoPEFwdInterface] = InterfaceKey("rope", RoPEFwdInterface, RoPECall)
"""The interface through which the RoPE ops call their kernels."""

ROPE_POSITION_IDS: InterfaceKey[RoPEPositionIdsCall, RoPEPositionIdsFwdInterface] = InterfaceKey(
    "rope_position_ids", RoPEPositionIdsFwdInterface, RoPEPositionIdsCall
)
"""The interface through which `RoPENeoxPositionIdsFwdOp` calls its kernel."""
