"""Kernel types of LayerNorm whose scale and shift, and gate, each row brings: three on CUDA and one on CPU each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from tileops_kernels.kernel import KernelType
from tileops_kernels.norm.interfaces import AdaLayerNormFwdInterface, AdaLayerNormZeroFwdInterface
from tileops_kernels.norm.rows import CPURows, GeneralRows, OnChipRows, RowNormKernel, StreamedRows

_THREADS, _ACCESSES = 512, 4
"""Up to four rows are held together: x, scale, shift and gate."""


class ModulatedRows(RowNormKernel[Any]):
    """A LayerNorm that reads a row's own scale and shift, and gate."""

    omissible: ClassVar[bool] = False
    names: ClassVar[tuple[str, ...]] = ("x", "scale", "shift", "gate")
    fixed: ClassVar[Mapping[str, bool]] = {"modulated": True}

    def _parameter(self, tensor: Tensor) -> Tensor:
        return tensor.as_strided((tensor.numel() // self._n, self._n), (self._n, 1))

    def modulate(self, x: Tensor, *affine: Tensor) -> Tensor:
        """The norm of x, scaled, shifted and gated, in a new tensor."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        self.launch((x,), affine, (y,))
        return y


class AdaNorm(ModulatedRows, AdaLayerNormFwdInterface):
    """What the kernel types of AdaLayerNorm share."""

    affine: ClassVar[tuple[str, ...]] = ("weighted", "biased")

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """See `AdaLayerNormFwdInterface.forward`."""
        return self.modulate(x, scale, shift)


class AdaNormOnChipKernel(AdaNorm, OnChipRows):
    """AdaLayerNorm with the whole row in registers: everything read once, written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"ada_layer_norm_streaming"})
    threads: ClassVar[int] = _THREADS
    accesses: ClassVar[int] = _ACCESSES


class AdaNormStreamingKernel(AdaNorm, StreamedRows):
    """AdaLayerNorm for rows too long to hold: x is read twice, 16 bytes at a time."""


class AdaNormKernel(AdaNorm, GeneralRows):
    """AdaLayerNorm for rows of any length."""


class AdaNormCPUKernel(AdaNorm, CPURows):
    """AdaLayerNorm on a CPU: rows are shared among the threads that torch uses; any row length."""


class AdaNormZero(ModulatedRows, AdaLayerNormZeroFwdInterface):
    """What the kernel types of AdaLayerNormZero share."""

    affine: ClassVar[tuple[str, ...]] = ("weighted", "biased", "gated")

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor, gate: Tensor) -> Tensor:
        """See `AdaLayerNormZeroFwdInterface.forward`."""
        return self.modulate(x, scale, shift, gate)


class AdaNormZeroOnChipKernel(AdaNormZero, OnChipRows):
    """AdaLayerNormZero with the whole row in registers: everything read once, written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"ada_layer_norm_zero_streaming"})
    threads: ClassVar[int] = _THREADS
    accesses: ClassVar[int] = _ACCESSES


class AdaNormZeroStreamingKernel(AdaNormZero, StreamedRows):
    """AdaLayerNormZero for rows too long to hold: x is read twice, 16 bytes at a time."""


class AdaNormZeroKernel(AdaNormZero, GeneralRows):
    """AdaLayerNormZero for rows of any length."""


class AdaNormZeroCPUKernel(AdaNormZero, CPURows):
    """AdaLayerNormZero on a CPU: rows are shared among the threads that torch uses; any row length."""


ADA_LAYER_NORM_KERNELS: Mapping[str, KernelType] = {
    "ada_layer_norm": AdaNormKernel,
    "ada_layer_norm_streaming": AdaNormStreamingKernel,
    "ada_layer_norm_on_chip": AdaNormOnChipKernel,
    "ada_layer_norm_cpu": AdaNormCPUKernel,
}
"""Every kernel type of `AdaLayerNormFwdInterface` that ships with this package, under its key."""

ADA_LAYER_NORM_ZERO_KERNELS: Mapping[str, KernelType] = {
    "ada_layer_norm_zero": AdaNormZeroKernel,
    "ada_layer_norm_zero_streaming": AdaNormZeroStreamingKernel,
    "ada_layer_norm_zero_on_chip": AdaNormZeroOnChipKernel,
    "ada_layer_norm_zero_cpu": AdaNormZeroCPUKernel,
}
"""Every kernel type of `AdaLayerNormZeroFwdInterface` that ships with this package, under its key."""
