"""The base of the ops that rotate tokens by their place in the sequence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.rope import ROPE, ROPE_KERNELS, Frequencies, RoPECall, RoPEFwdInterface, table_positions


class RoPEOp(Op):
    """Base of the ops whose token i has position i: x is `[S, D]`, or `[B, S, H, D]` with `input_layout="2d"`.

    A subclass says how fast pairs turn; which elements are a pair is the class attribute or parameter `rope_layout`.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = ROPE_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {ROPE: RoPEFwdInterface}
    rope_layout: Literal["neox", "interleaved"] = "neox"

    def __init__(self, *, base: float, input_layout: Literal["1d", "2d"], target: str | None) -> None:
        self.base = base
        self.input_layout = input_layout
        super().__init__(target=target)
        self._frequencies = self.frequencies()
        self._stated: dict[tuple[object, ...], RoPECall] = {}

    @abstractmethod
    def frequencies(self) -> Frequencies:
        """How fast pairs turn, from the construction parameters."""
        ...

    def forward(self, x: Tensor) -> Tensor:
        """Rotate checked tokens."""
        length, heads, width = (x.shape[0], 1, x.shape[1]) if self.input_layout == "1d" else x.shape[1:]
        call = self._state(x.device, x.dtype, width, table_positions(length))
        return self.kernel_for(ROPE, call)(x.contiguous(), length, heads)

    def _state(self, device: torch.device, dtype: torch.dtype, width: int, positions: int) -> RoPECall:
        """The call spec of these facts, made once: making one takes several times as long as finding it."""
        facts = dtype, width, positions, device
        call = self._stated.get(facts)
        if call is None:
            call = self._stated[facts] = RoPECall(
                device=device,
                width=width,
                rotated=width,
                interleaved=self.rope_layout == "interleaved",
                frequencies=self._frequencies,
                positions=positions,
                dtype=dtype,
            )
        return call

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
