"""What each op of the elementwise family means, in plain PyTorch and float64."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tileops_testing.references.reference import Reference

__all__ = ["REFERENCES", "alibi_fwd", "alibi_slopes", "relu_fwd", "sinusoidal_fwd"]


def relu_fwd(input: Tensor, *, inplace: bool = False) -> Tensor:  # noqa: A002 - torch's name for it
    """Return ``input`` where it is not below zero, else zero, in ``input`` itself with ``inplace``."""
    values = torch.where(input < 0, torch.zeros_like(input), input)
    return input.copy_(values) if inplace else values


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the slope of each head: for ``n`` heads, a power of two, ``2 ** (-8 * k / n)`` for ``k`` from 1 to ``n``.

    Other numbers of heads take the slopes of the power of two below, then every other one of those of twice as many.
    """
    base = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * k / base) for k in range(1, base + 1)]
    doubled = [2.0 ** (-8.0 * k / (2 * base)) for k in range(1, 2 * base + 1)]
    return slopes + doubled[::2][: num_heads - base]


def alibi_fwd(
    *,
    seq_len: int,
    num_heads: int,
    out_dtype: torch.dtype = torch.float32,  # noqa: ARG001 - the comparison knows it
    device: torch.device | None = None,
) -> Tensor:
    """Return ``-slope[h] * |i - j|`` as ``[num_heads, seq_len, seq_len]``."""
    places = torch.arange(seq_len, device=device, dtype=torch.float64)
    slopes = torch.tensor(alibi_slopes(num_heads), device=device, dtype=torch.float64)
    return -slopes[:, None, None] * (places[:, None] - places[None, :]).abs()


def sinusoidal_fwd(
    *,
    seq_len: int,
    d_model: int,
    out_dtype: torch.dtype = torch.float32,  # noqa: ARG001 - the comparison knows it
    device: torch.device | None = None,
) -> Tensor:
    """Return sines in the even columns and cosines in the odd ones, of ``i / 10000 ** (column pair / pairs)``."""
    pairs = torch.arange(d_model // 2, device=device, dtype=torch.float64)
    frequencies = torch.exp(pairs * (-2.0 * math.log(10000.0) / d_model))
    angles = torch.arange(seq_len, device=device, dtype=torch.float64)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(seq_len, d_model)


REFERENCES: Mapping[str, Reference] = {
    "ReluFwdOp": Reference(relu_fwd),
    "AlibiFwdOp": Reference(alibi_fwd),
    "SinusoidalFwdOp": Reference(sinusoidal_fwd),
}
