"""Kernel types of LayerNorm: three on CUDA, by how a row fits the chip, and one on CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.kernel import KernelType
from tileops_kernels.norm.interfaces import LayerNormFwdInterface
from tileops_kernels.norm.rows import CPURows, CUDARows, GeneralRows, OnChipRows, StreamedRows


class LayerNormCUDAKernel(CUDARows, LayerNormFwdInterface):
    """What the CUDA kernel types share; an entry holds a program for each of weight and bias passed or not."""

    affine: ClassVar[tuple[str, ...]] = ("weighted", "biased")

    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """See `LayerNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        self.launch((x,), (weight, bias), (y,))
        return y


class LayerNormOnChipKernel(LayerNormCUDAKernel, OnChipRows):
    """LayerNorm with the whole row in registers: read once, written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"layer_norm_streaming"})
    threads: ClassVar[int] = 512
    """A bias is held beside the weight, for which 85 registers a thread would not do."""


class LayerNormStreamingKernel(LayerNormCUDAKernel, StreamedRows):
    """LayerNorm for rows too long to hold: read twice, 16 bytes at a time."""


class LayerNormKernel(LayerNormCUDAKernel, GeneralRows):
    """LayerNorm for rows of any length."""


class LayerNormCPUKernel(CPURows, LayerNormFwdInterface):
    """LayerNorm on a CPU: rows are shared among the threads that torch uses; any row length."""

    affine: ClassVar[tuple[str, ...]] = ("weighted", "biased")

    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """See `LayerNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        self.launch((x,), (weight, bias), (y,))
        return y


LAYER_NORM_KERNELS: Mapping[str, KernelType] = {
    "layer_norm": LayerNormKernel,
    "layer_norm_streaming": LayerNormStreamingKernel,
    "layer_norm_on_chip": LayerNormOnChipKernel,
    "layer_norm_cpu": LayerNormCPUKernel,
}
"""Every kernel type of `LayerNormFwdInterface` that ships with this package, under its key."""
