"""Kernel types of LayerNorm: three on CUDA, by how a row fits the chip, and one on CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.kernel import KernelType
from tileops_kernels.norm.interfaces import LayerNormCall, LayerNormFwdInterface
from tileops_kernels.norm.rows import (
    CPURows,
    CUDARows,
    GeneralRows,
    OnChipSettings,
    StreamedRows,
    lanes_of,
    vector_width,
    weight_dtypes,
)
from tileops_kernels.norm.short import ShortRows, short_settings


@dataclass(frozen=True, slots=True)
class LeanSettings(OnChipSettings):
    """Launch settings of rows whose elements are converted once, and of weights that are read late: see the builder."""

    lean: bool
    late: bool


def lean_settings(call: LayerNormCall) -> LeanSettings | None:
    """The settings of rows whose instructions bound them: up to 64 and from 512 vectors on; None for others.

    The shorter have two accesses a thread and blocks of 64 threads; the longer up to eight, with registers for 768
    threads on a multiprocessor, or for 512 where the last vectors are not all there, which takes more; 1024 vectors
    have 256 threads with four. A weight of float32 would take the registers that these leave, and float32 has fewer
    elements to an access.
    """
    vectors = call.n // vector_width(call)
    if call.dtype.itemsize > 2 or weight_dtypes(call) or 64 < vectors <= 512:
        return None
    if vectors <= 64:
        lanes = lanes_of(-(-vectors // 2))
        return LeanSettings(lanes=lanes, rows=64 // lanes, blocks=16, lean=True, late=False)
    lanes = max(128 if vectors < 1024 else 256, lanes_of(-(-vectors // 8)))
    threads = 1024 if vectors == 1024 else 512 if vectors % lanes else 768
    return LeanSettings(lanes=lanes, rows=1, blocks=max(1, threads // lanes), lean=True, late=True)


class LayerNormCUDAKernel(CUDARows, LayerNormFwdInterface):
    """What the CUDA kernel types share; an entry holds a program for each of weight and bias passed or not."""

    affine: ClassVar[tuple[str, ...]] = ("weighted", "biased")

    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """See `LayerNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        self.launch((x,), (weight, bias), (y,))
        return y


class LayerNormOnChipKernel(LayerNormCUDAKernel, ShortRows):
    """LayerNorm with the whole row in registers: read once, written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"layer_norm_streaming"})
    spread_module: ClassVar[str] = "row_norm_spread"
    centered: ClassVar[bool] = True
    threads: ClassVar[int] = 512
    """A bias is held beside the weight, for which 85 registers a thread would not do."""

    @classmethod
    def _choose(cls, call: LayerNormCall) -> OnChipSettings:
        return short_settings(call, centered=True) or lean_settings(call) or super()._choose(call)


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
        if weight is not None and bias is not None:
            places = x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr()
            if self.run_at(places, y.numel()):
                return y
        self.launch((x,), (weight, bias), (y,))
        return y


LAYER_NORM_KERNELS: Mapping[str, KernelType] = {
    "layer_norm": LayerNormKernel,
    "layer_norm_streaming": LayerNormStreamingKernel,
    "layer_norm_on_chip": LayerNormOnChipKernel,
    "layer_norm_cpu": LayerNormCPUKernel,
}
"""Every kernel type of `LayerNormFwdInterface` that ships with this package, under its key."""
