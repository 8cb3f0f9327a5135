"""Kernel types of RMSNorm: three on CUDA, by how a row fits the chip, and one on CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cuda
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.kernel import KernelType
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.norm.interfaces import LayerNormCall, RMSNormFwdInterface
from tileops_kernels.norm.rows import CPURows, CUDARows, GeneralRows, OnChipRows, StreamedRows, vector_width

BLOCK_THREADS = 1024
"""The threads that a block may have."""

SPREAD_ROWS = 2
"""Rows for each multiprocessor up to which every access has a thread of its own."""


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


class RMSNormOnChipKernel(RMSNormCUDAKernel, OnChipRows):
    """RMSNorm with the whole row in registers: read once, written once.

    Few rows, which a device is not busy with, have a thread for each access. A row's bits are the same either way.
    """

    preferred_over: ClassVar[frozenset[str]] = frozenset({"rms_norm_streaming"})

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self._few_rows = SPREAD_ROWS * call.sm_count if self._spreads() else 0
        self._by_rows: Loaded[tuple[bool, ...], tuple[cuda.CUDAFunction, cuda.CUDAFunction]] = Loaded(
            lambda passed: (self.load(passed), self._compiled(self.spread_program(*passed)))
        )

    def _spreads(self) -> bool:
        """Whether a thread has several accesses, and a block room for a thread for each."""
        vectors, lanes = self._n // vector_width(self.call), self.settings.lanes
        return lanes < vectors and -(-vectors // lanes) * lanes <= BLOCK_THREADS

    def programs(self) -> Sequence[Program]:
        """For each signature the program for many rows, and after them those for few."""
        programs = list(super().programs())
        return [*programs, *(self.spread_program(*passed) for passed in ((True,), (False,)) if self._few_rows)]

    def spread_program(self, weighted: bool) -> Program:
        """The program that has a thread for each access, with a weight or without one."""
        given = dict(self.program(weighted).arguments)
        kept = {name: value for name, value in given.items() if name not in {"rows", "blocks"}}
        return Program.of("tileops_kernels.norm.programs.rms_norm", "rms_norm_spread", **kept)

    def load_for(self, passed: tuple[bool, ...], rows: int) -> cuda.CUDAFunction:
        """The program of a signature for so many rows; both are built by its first call."""
        if not self._few_rows:
            return self.load(passed)
        return self._by_rows[passed][rows <= self._few_rows]


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
    "rms_norm_on_chip": RMSNormOnChipKernel,
    "rms_norm_cpu": RMSNormCPUKernel,
}
"""Every kernel type of `RMSNormFwdInterface` that ships with this package, under its key."""
