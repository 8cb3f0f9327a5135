"""Kernel types of RMSNorm: four on CUDA, by how a row fits the chip, and one on CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.kernel import KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.norm.clustered import ClusteredRows
from tileops_kernels.norm.interfaces import RMSNormFwdInterface
from tileops_kernels.norm.rows import CPURows, CUDARows, GeneralRows, StreamedRows
from tileops_kernels.norm.short import ShortRows


class RMSNormCUDAKernel(CUDARows, RMSNormFwdInterface):
    """What the CUDA kernel types share; an entry holds a program with a weight and one without."""

    stem: ClassVar[str] = "rms_norm"
    affine: ClassVar[tuple[str, ...]] = ("weighted",)

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """See `RMSNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if (
            self._launches_as_is
            and weight is not None
            and len(shape := x.shape) == 2
            and shape[0] > 1
            and weight.dim() == 1
            and not (x.data_ptr() | weight.data_ptr()) % ACCESS_BYTES
        ):  # a matrix and a vector as the program wants them: nothing to view, copy or make current
            self.load_for((True,), shape[0])(x, weight, y, self._eps)
            return y
        self.launch((x,), (weight,), (y,))
        return y


class RMSNormOnChipKernel(RMSNormCUDAKernel, ShortRows):
    """RMSNorm with the whole row in registers: read once, written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"rms_norm_streaming"})
    spread_module: ClassVar[str] = "rms_norm"
    centered: ClassVar[bool] = False


class RMSNormClusteredKernel(RMSNormCUDAKernel, ClusteredRows):
    """RMSNorm for rows that a cluster of blocks holds in registers: read once, written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"rms_norm_streaming"})


class RMSNormStreamingKernel(RMSNormCUDAKernel, StreamedRows):
    """RMSNorm for rows too long to hold: read twice, 16 bytes at a time."""


class RMSNormKernel(RMSNormCUDAKernel, GeneralRows):
    """RMSNorm for rows of any length."""


class RMSNormCPUKernel(CPURows, RMSNormFwdInterface):
    """RMSNorm on a CPU: rows are shared among the threads that torch uses; any row length."""

    fixed: ClassVar[Mapping[str, bool]] = {"centered": False}
    affine: ClassVar[tuple[str, ...]] = ("weighted",)

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """See `RMSNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if weight is None or not self.run_at((x.data_ptr(), weight.data_ptr(), y.data_ptr()), y.numel()):
            self.launch((x,), (weight,), (y,))
        return y


RMS_NORM_KERNELS: Mapping[str, KernelType] = {
    "rms_norm": RMSNormKernel,
    "rms_norm_streaming": RMSNormStreamingKernel,
    "rms_norm_clustered": RMSNormClusteredKernel,
    "rms_norm_on_chip": RMSNormOnChipKernel,
    "rms_norm_cpu": RMSNormCPUKernel,
}
"""Every kernel type of `RMSNormFwdInterface` that ships with this package, under its key."""
