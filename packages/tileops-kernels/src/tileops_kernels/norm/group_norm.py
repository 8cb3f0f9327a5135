"""Kernel types of GroupNorm: five on CUDA, by how a group fits the chip, and one on CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import addresses, aligned
from tileops_kernels.norm.channels import flags_of, parameters
from tileops_kernels.norm.interfaces import GroupNormCall, GroupNormFwdInterface
from tileops_kernels.norm.planes import (
    PlaneSettings,
    as_planes,
    is_large,
    large_split_count,
    plane_settings,
    split_count,
)
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

SHARED_BYTES = 1 << 20
"""What groups have at least that blocks share: as many as multiprocessors read at a time are more than caches hold."""


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


class GroupNormSharedKernel(Kernel[GroupNormCall], GroupNormFwdInterface):
    """GroupNorm for groups that blocks share: three launches, which read x for its statistics and to normalise it."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"group_norm_streaming"})

    def __init__(self, call: GroupNormCall) -> None:
        super().__init__(call)
        self.groups, self.planes = _shared_settings(call)
        self._loaded: Loaded[bool, cuda.CUDAFunction] = Loaded(lambda large: cuda.load_for(self, self.program(large)))

    @classmethod
    def refusal(cls, call: GroupNormCall) -> str | None:
        """None for groups of so many bytes that blocks are to share one."""
        reason = dtype_refusal(call.dtype, call.weight_dtype)
        if reason is None and (size := call.n * call.dtype.itemsize) < SHARED_BYTES:
            reason = f"blocks share groups of {SHARED_BYTES} bytes or more; n={call.n} takes {size}"
        return reason or super().refusal(call)

    @classmethod
    def entry_for(cls, call: GroupNormCall) -> tuple[Hashable, Callable[[], GroupNormSharedKernel]]:
        """One entry for all lengths of a channel that have the same settings."""
        identity = call.device, *_shared_settings(call), call.span, call.dtype, call.weight_dtype, call.eps
        return identity, partial(cls, call)

    def config(self) -> Mapping[str, object]:
        """The launch settings: those of statistics, then those of the pass that normalises."""
        return {"wide": self.groups.vector, "threads": self.groups.lanes, **asdict(self.planes)}

    def program(self, large: bool) -> Program:
        """The program for maps that caches hold a part of, or that for `large` ones."""
        planes = {name: getattr(self.planes, name) for name in ("vector", "lanes", "slots", "unroll")}
        return Program.of(
            "tileops_kernels.norm.programs.group_norm",
            "group_norm_shared",
            dtype=DTYPES[self.call.dtype],
            scales=DTYPES[self.call.weight_dtype or self.call.dtype],
            wide=self.groups.vector,
            threads=self.groups.lanes,
            depth=self.groups.depth,
            **planes,
            span=self.call.span,
            large=large,
        )

    def programs(self) -> Sequence[Program]:
        """Both programs."""
        return [self.program(large) for large in (False, True)]

    def variant(self, shape: tuple[int, int, int], size: int) -> tuple[bool, int]:
        """Whether (batch, channels, vectors) of `size` bytes is large, and in how many blocks it splits a group."""
        batch, channels, vectors = shape
        span, length = self.call.span, vectors * self.planes.vector
        groups = 1, batch * channels // span, span * length // self.groups.vector
        large = is_large(shape, size)
        count = large_split_count if large else split_count
        return large, count(groups, self.groups, self.groups.depth, self.call.sm_count)

    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """See `GroupNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel() == 0:
            return y
        batch, channels = x.shape[:2]
        groups = batch * channels // self.call.span
        source = aligned(x)
        planes = as_planes(source, batch, channels, self.planes.vector)
        large, splits = self.variant((batch, channels, planes.shape[2]), y.nbytes)
        rows = 4 * splits + 3
        workspace = torch.empty(max(rows * groups, channels), dtype=torch.float32, device=x.device)
        parts, means, scales = workspace[: rows * groups].view(rows, groups).split((4 * splits, 2, 1))
        with made_current(x.device):
            self._loaded[large](
                as_planes(source, 1, groups, self.groups.vector),
                *parameters(channels, self.call.weight_dtype or x.dtype, weight, bias, workspace),
                parts.view(splits, groups, 4),
                means.view(groups, 2),
                scales.view(groups),
                planes,
                as_planes(y, batch, channels, self.planes.vector),
                self.call.eps,
                flags_of(weight, bias),
            )
        return y


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
        located = {name: tensor for name, tensor in (("weight", weight), ("bias", bias)) if tensor is not None}
        source, *found, target = addresses(self, x=x, **located, y=y)
        places = dict(zip(located, found, strict=True))
        given = [places.get(name, target) for name in ("weight", "bias")]
        sizes = x.shape[1] // self.call.span, count // self.call.n
        self._run(source, *given, target, self.call.eps, 0, flags_of(weight, bias), *sizes, torch.get_num_threads())
        return y

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call that needs it."""
        return cpu.load_for(self, self.programs()[0])


def _shared_settings(call: GroupNormCall) -> tuple[PlaneSettings, PlaneSettings]:
    """Settings of statistics, which see a group as a plane, and of the pass over the planes of channels."""
    return plane_settings(call.n, call.dtype), plane_settings(call.piece, call.dtype)


GROUP_NORM_KERNELS: Mapping[str, KernelType] = {
    "group_norm": GroupNormKernel,
    "group_norm_streaming": GroupNormStreamingKernel,
    "group_norm_on_chip": GroupNormOnChipKernel,
    "group_norm_narrow": GroupNormNarrowKernel,
    "group_norm_shared": GroupNormSharedKernel,
    "group_norm_cpu": GroupNormCPUKernel,
}
"""Every kernel type of `GroupNormFwdInterface` that ships with this package, under its key."""
