"""Attention whose norms, rotations and softmax are kernels of tileops-kernels, and the same in plain PyTorch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from downstream.head_norm import HeadNormKernel
from tileops_kernels.norm import RMS_NORM, RMS_NORM_KERNELS, LayerNormCall
from tileops_kernels.reduction import SoftmaxCall, softmax_kernels
from tileops_kernels.rope import Frequencies, RoPECall, rope_kernels, table_positions
from tileops_kernels.table import KernelTable

EPS = 1e-6
BASE = 10000.0


class Attention:
    """Attention of heads that are normalised and turned by their positions first; it holds the kernels that it built.

    An entry is found by the facts of a call: a new number of tokens builds nothing, a new dtype or head width does.
    """

    def __init__(self) -> None:
        self.norms = KernelTable(RMS_NORM, {**RMS_NORM_KERNELS, "head_norm": HeadNormKernel}, owner="Attention")
        self.rotations = rope_kernels()
        self.softmaxes = softmax_kernels()

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        """Return the attention of `[batch, length, heads, width]` tensors in their shape; weight: `[width]`."""
        query, key = (self._rotated(self._normalised(tensor, weight)) for tensor in (query, key))
        scores = scores_of(query, key)
        call = SoftmaxCall(device=scores.device, dtype=scores.dtype, result=scores.dtype)
        shares = self.softmaxes.entry(call)(scores, scores.dim() - 1)
        return weighted(shares, value)

    def _normalised(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.norms.entry(norm_call(x))(x.contiguous(), weight.contiguous())

    def _rotated(self, x: Tensor) -> Tensor:
        return self.rotations.entry(rotation_call(x))(x, x.shape[1], x.shape[2])


def norm_call(x: Tensor) -> LayerNormCall:
    """The norm of the rows of `x`."""
    return LayerNormCall(device=x.device, n=x.shape[-1], eps=EPS, dtype=x.dtype)


def rotation_call(x: Tensor) -> RoPECall:
    """The rotation of the heads of `x`, `[batch, length, heads, width]`."""
    width = x.shape[-1]
    return RoPECall(
        device=x.device,
        width=width,
        rotated=width,
        interleaved=False,
        frequencies=Frequencies(BASE),
        positions=table_positions(x.shape[1]),
        dtype=x.dtype,
    )


def scores_of(query: Tensor, key: Tensor) -> Tensor:
    """What each query has to do with each key, `[batch, heads, length, length]`."""
    return torch.einsum("bqhd,bkhd->bhqk", query, key).contiguous() / math.sqrt(query.shape[-1])


def weighted(shares: Tensor, value: Tensor) -> Tensor:
    """The values, `[batch, length, heads, width]`, each token's by its shares."""
    return torch.einsum("bhqk,bkhd->bqhd", shares, value)


def plain_attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """What `Attention` computes, in PyTorch alone."""
    width, length = query.shape[-1], query.shape[1]
    frequencies = BASE ** (-torch.arange(0, width, 2, dtype=torch.float64, device=query.device) / width)
    angles = torch.arange(length, dtype=torch.float64, device=query.device)[:, None] * frequencies
    cosines, sines = angles.cos()[:, None, :], angles.sin()[:, None, :]

    def prepared(x: Tensor) -> Tensor:
        wide = torch.nn.functional.rms_norm(x.double(), (width,), weight.double(), EPS)
        first, second = wide.chunk(2, dim=-1)
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)

    shares = torch.softmax(scores_of(prepared(query), prepared(key)), dim=-1)
    return weighted(shares, value.double()).to(query.dtype)
