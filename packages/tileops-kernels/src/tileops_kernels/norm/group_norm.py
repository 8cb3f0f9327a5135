"""Kernel types of GroupNorm: four on CUDA, by how a group fits the chip, and one on CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import addresses
from tileops_kernels.norm.interfaces import GroupNormCall, GroupNormFwdInterface
from tileops_kernels.norm.rows import (
    DTYPES,
    CUDARows,
    GeneralRows,
    NarrowRows,
    OnChipRows,
    StreamedRows,
    dtype_refusal,
    weight_dtypes,
)

_READS_WEIGHT, _READS_BIAS = 1, 2


class GroupNormCUDAKernel(CUDARows, GroupNormFwdInterface):
    """What the CUDA kernel types share: a group is a row, and weight and bias have an element for each channel."""

    affine: ClassVar[tuple[str, ...]] = ("weighted", "biased")
    call: GroupNormCall

    def _variant(self) -> Mapping[str, bool | int]:
        return {"span": self.call.span}

    def _parameter(self, tensor: Tensor) -> Tensor:
        span = self.call.span
        return tensor.as_strided((tensor.numel() // span, span), (span, 1))

    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """See `GroupNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        self.launch((x,), (weight, bias), (y,))
        return y


class GroupNormOnChipKernel(GroupNormCUDAKernel, OnChipRows):
    """GroupNorm with the whole group in registers: read once, written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"group_norm_streaming"})
    threads: ClassVar[int] = 512
    accesses: ClassVar[int] = 4


class GroupNormStreamingKernel(GroupNormCUDAKernel, StreamedRows):
    """GroupNorm for groups too large to hold: read twice, 16 bytes at a time."""


class GroupNormNarrowKernel(GroupNormCUDAKernel, NarrowRows):
    """GroupNorm with the whole group in registers, of channels that are read in less than 16 bytes at a time."""


class GroupNormKernel(GroupNormCUDAKernel, GeneralRows):
    """GroupNorm for channels of any length."""


class GroupNormCPUKernel(Kernel[GroupNormCall], GroupNormFwdInterface):
    """GroupNorm on a CPU: groups are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    @classmethod
    def refusal(cls, call: GroupNormCall) -> str | None:
        """None for the dtypes that all norms serve."""
        return dtype_refusal(call.dtype, call.weight_dtype) or super().refusal(call)

    @classmethod
    def entry_for(cls, call: GroupNormCall) -> tuple[Hashable, Callable[[], GroupNormCPUKernel]]:
        """One entry for all threads, groups and batch entries."""
        return (call.n, call.span, call.eps, call.dtype, call.weight_dtype), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The one program, whichever of weight and bias are passed."""
        module, dtype = "tileops_kernels.norm.programs.group_norm_cpu", DTYPES[self.call.dtype]
        sizes = {"n": self.call.n, "span": self.call.span}
        return [Program.of(module, "group_norm_rows", **sizes, dtype=dtype, **weight_dtypes(self.call))]

    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """See `GroupNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if (count := y.numel()) == 0:
            return y
        flags = (_READS_WEIGHT if weight is not None else 0) | (_READS_BIAS if bias is not None else 0)
        located = {name: tensor for name, tensor in (("weight", weight), ("bias", bias)) if tensor is not None}
        source, *found, target = addresses(self, x=x, **located, y=y)
        places = dict(zip(located, found, strict=True))
        given = [places.get(name, target) for name in ("weight", "bias")]
        sizes = x.shape[1] // self.call.span, count // self.call.n
        self._run(source, *given, target, self.call.eps, 0, flags, *sizes, torch.get_num_threads())
        return y

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call that needs it."""
        return cpu.load_for(self, self.programs()[0])


GROUP_NORM_KERNELS: Mapping[str, KernelType] = {
    "group_norm": GroupNormKernel,
    "group_norm_streaming": GroupNormStreamingKernel,
    "group_norm_on_chip": GroupNormOnChipKernel,
    "group_norm_narrow": GroupNormNarrowKernel,
    "group_norm_cpu": GroupNormCPUKernel,
}
"""Every kernel type of `GroupNormFwdInterface` that ships with this package, under its key."""
