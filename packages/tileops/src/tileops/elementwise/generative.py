"""Ops that make a tensor from positions alone, and take none."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.elementwise import (
    ALIBI,
    ALIBI_KERNELS,
    SINUSOIDAL,
    SINUSOIDAL_KERNELS,
    AlibiCall,
    AlibiFwdInterface,
    SinusoidalCall,
    SinusoidalFwdInterface,
)
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType


class GenerativeOp(Op):
    """Base of the ops without a tensor input: how long, in which dtype, and where.

    Without `device` a call runs on the current device of the process's accelerator; a device without an index is the
    current one of its type.
    """

    def __init__(
        self, *, seq_len: int, out_dtype: torch.dtype, device: torch.device | str | None, target: str | None
    ) -> None:
        self.seq_len = seq_len
        self.out_dtype = out_dtype
        self.device = device if device is None else torch.device(device)
        super().__init__(target=target)

    @torch.compiler.disable(  # type: ignore[untyped-decorator]
        reason="an op that takes no tensor is no node of a graph: call it before, pass its result in"
    )
    def forward(self) -> Tensor:
        """Make the tensor."""
        return self.made()

    @abstractmethod
    def made(self) -> Tensor:
        """The tensor, from a kernel."""
        ...

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


class AlibiFwdOp(GenerativeOp):
    """`bias[h, i, j] = -slope[h] * |i - j|`: attention biases that fall linearly with distance.

    Returns a new contiguous tensor, `[num_heads, seq_len, seq_len]` in `out_dtype`. The slopes of `n` heads, a power of
    two, are `2 ** (-8 * k / n)` for `k` from 1 to `n`; other numbers of heads take those of the power of two below, and
    as many as are missing from every other one of the power of two above. Products are formed in float32 and rounded
    once.

    seq_len: positions. num_heads: attention heads. out_dtype: float16, bfloat16 or float32. device: where the tensor is
    made; None means the current device of the process's accelerator.

    Raises ParameterError or ParameterTypeError at construction, and OpNotAvailableError on a call without `device` in a
    process without an accelerator. It takes no tensor, and therefore is no node of a compiled graph: call it outside.

    Source: Press, Smith and Lewis, "Train Short, Test Long", 2022.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = ALIBI_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {ALIBI: AlibiFwdInterface}

    def __init__(
        self,
        *,
        seq_len: int,
        num_heads: int,
        out_dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        target: str | None = None,
    ) -> None:
        self.num_heads = num_heads
        super().__init__(seq_len=seq_len, out_dtype=out_dtype, device=device, target=target)

    def made(self) -> Tensor:
        """The biases."""
        call = AlibiCall(device=self.device, num_heads=self.num_heads, dtype=self.out_dtype)
        return self.kernel_for(ALIBI, call)(self.seq_len)


class SinusoidalFwdOp(GenerativeOp):
    """`table[i, 2k] = sin(i / 10000 ** (2k / d_model))`, and the cosine of the same angle in column `2k + 1`.

    Returns a new contiguous tensor, `[seq_len, d_model]` in `out_dtype`. Angles, sines and cosines are formed in
    float64 and rounded once, so that no position is too far out to be right.

    seq_len: positions. d_model: elements of an embedding, an even number. out_dtype: float16, bfloat16 or float32.
    device: where the tensor is made; None means the current device of the process's accelerator.

    Raises ParameterError or ParameterTypeError at construction, and OpNotAvailableError on a call without `device` in a
    process without an accelerator. It takes no tensor, and therefore is no node of a compiled graph: call it outside.

    Source: Vaswani et al., "Attention Is All You Need", 2017.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = SINUSOIDAL_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {SINUSOIDAL: SinusoidalFwdInterface}

    def __init__(
        self,
        *,
        seq_len: int,
        d_model: int,
        out_dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        target: str | None = None,
    ) -> None:
        self.d_model = d_model
        super().__init__(seq_len=seq_len, out_dtype=out_dtype, device=device, target=target)

    def made(self) -> Tensor:
        """The table."""
        call = SinusoidalCall(device=self.device, width=self.d_model, dtype=self.out_dtype)
        return self.kernel_for(SINUSOIDAL, call)(self.seq_len)
