"""Kernel types of norms of a sum with a residual: three on CUDA, by how a row fits the chip, and one on CPU each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from tileops_kernels.kernel import KernelType
from tileops_kernels.norm.interfaces import FusedAddLayerNormFwdInterface, FusedAddRMSNormFwdInterface
from tileops_kernels.norm.rows import CPURows, GeneralRows, OnChipRows, RowNormKernel, StreamedRows

_THREADS, _ACCESSES = 512, 4
"""A row is held in float32 beside its weight: twice the registers of a row in a 16-bit dtype."""


class AddedRows(RowNormKernel[Any]):
    """A norm that reads two rows, and writes their sum beside its result."""

    omissible: ClassVar[bool] = False
    names: ClassVar[tuple[str, ...]] = ("x", "residual", "weight", "bias")

    def add_and_normalize(self, x: Tensor, residual: Tensor, *affine: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of the sum, and the sum, each in a new tensor."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        total = torch.empty_like(y)
        self.launch((x, residual), affine, (y, total))
        return y, total


class AddRMSNorm(AddedRows, FusedAddRMSNormFwdInterface):
    """What the kernel types of RMSNorm of a sum share."""

    fixed: ClassVar[Mapping[str, bool]] = {"added": True, "centered": False}
    affine: ClassVar[tuple[str, ...]] = ("weighted",)

    def forward(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See `FusedAddRMSNormFwdInterface.forward`."""
        return self.add_and_normalize(x, residual, weight)


class AddRMSNormOnChipKernel(AddRMSNorm, OnChipRows):
    """RMSNorm of a sum with the whole row in registers: each input read once, each result written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"fused_add_rms_norm_streaming"})
    threads: ClassVar[int] = _THREADS
    accesses: ClassVar[int] = _ACCESSES


class AddRMSNormStreamingKernel(AddRMSNorm, StreamedRows):
    """RMSNorm of a sum for rows too long to hold: read twice, 16 bytes at a time."""


class AddRMSNormKernel(AddRMSNorm, GeneralRows):
    """RMSNorm of a sum for rows of any length."""


class AddRMSNormCPUKernel(AddRMSNorm, CPURows):
    """RMSNorm of a sum on a CPU: rows are shared among the threads that torch uses; any row length."""

    def forward(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See `FusedAddRMSNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        total = torch.empty_like(y)
        read = x.data_ptr(), residual.data_ptr(), weight.data_ptr()
        if not self.run_at((*read, y.data_ptr(), total.data_ptr()), y.numel()):
            self.launch((x, residual), (weight,), (y, total))
        return y, total


class AddLayerNorm(AddedRows, FusedAddLayerNormFwdInterface):
    """What the kernel types of LayerNorm of a sum share."""

    fixed: ClassVar[Mapping[str, bool]] = {"added": True}
    affine: ClassVar[tuple[str, ...]] = ("weighted", "biased")

    def forward(self, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """See `FusedAddLayerNormFwdInterface.forward`."""
        return self.add_and_normalize(x, residual, weight, bias)


class AddLayerNormOnChipKernel(AddLayerNorm, OnChipRows):
    """LayerNorm of a sum with the whole row in registers: each input read once, each result written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"fused_add_layer_norm_streaming"})
    threads: ClassVar[int] = _THREADS
    accesses: ClassVar[int] = _ACCESSES


class AddLayerNormStreamingKernel(AddLayerNorm, StreamedRows):
    """LayerNorm of a sum for rows too long to hold: read twice, 16 bytes at a time."""


class AddLayerNormKernel(AddLayerNorm, GeneralRows):
    """LayerNorm of a sum for rows of any length."""


class AddLayerNormCPUKernel(AddLayerNorm, CPURows):
    """LayerNorm of a sum on a CPU: rows are shared among the threads that torch uses; any row length."""

    def forward(self, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """See `FusedAddLayerNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        total = torch.empty_like(y)
        read = x.data_ptr(), residual.data_ptr(), weight.data_ptr(), bias.data_ptr()
        if not self.run_at((*read, y.data_ptr(), total.data_ptr()), y.numel()):
            self.launch((x, residual), (weight, bias), (y, total))
        return y, total


FUSED_ADD_RMS_NORM_KERNELS: Mapping[str, KernelType] = {
    "fused_add_rms_norm": AddRMSNormKernel,
    "fused_add_rms_norm_streaming": AddRMSNormStreamingKernel,
    "fused_add_rms_norm_on_chip": AddRMSNormOnChipKernel,
    "fused_add_rms_norm_cpu": AddRMSNormCPUKernel,
}
"""Every kernel type of `FusedAddRMSNormFwdInterface` that ships with this package, under its key."""

FUSED_ADD_LAYER_NORM_KERNELS: Mapping[str, KernelType] = {
    "fused_add_layer_norm": AddLayerNormKernel,
    "fused_add_layer_norm_streaming": AddLayerNormStreamingKernel,
    "fused_add_layer_norm_on_chip": AddLayerNormOnChipKernel,
    "fused_add_layer_norm_cpu": AddLayerNormCPUKernel,
}
"""Every kernel type of `FusedAddLayerNormFwdInterface` that ships with this package, under its key."""
