"""Kernel types of rotary position embeddings: one on CUDA and one on CPU, for heads of any width and any length.

The cosines and sines of every position are a table of the entry, made by its factory in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import gcd
from typing import ClassVar, Self

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.dtypes import FLOATS, float_refusal
from tileops_kernels.entry_tables import entry_table
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES, aligned
from tileops_kernels.rope.interfaces import RoPECall, RoPEFwdInterface

_CUDA_PROGRAMS = "tileops_kernels.rope.programs.rope"
_CPU_PROGRAMS = "tileops_kernels.rope.programs.rope_cpu"


_INT32_PLACES = 1 << 31
"""Rows whose places are counted in 32 bits, in which dividing by run-time sizes is fast."""


@dataclass(frozen=True, slots=True)
class RotationSettings:
    """Launch settings: elements of one access, and threads of a block."""

    vector: int
    threads: int


def rotation_settings(call: RoPECall) -> RotationSettings:
    """The widest access that divides both halves of the rotated part and the part beside it."""
    vector = gcd(call.rotated // 2, call.width - call.rotated, ACCESS_BYTES // call.dtype.itemsize)
    return RotationSettings(vector=vector, threads=256)


class _RotationKernel(Kernel[RoPECall], RoPEFwdInterface):
    """What the kernel types share: the table of cosines and sines, which the factory makes."""

    _table: Tensor

    @classmethod
    def with_table(cls, call: RoPECall) -> Self:
        """A kernel ready to be called."""
        kernel = cls(call)
        kernel._table = entry_table(call, _cosines_and_sines(call), torch.float32)
        return kernel

    @classmethod
    def entry_for(cls, call: RoPECall) -> tuple[Hashable, Callable[[], Kernel[RoPECall]]]:
        """One entry for every number of sequences, tokens and heads whose positions its table holds."""
        identity = (call.width, call.rotated, call.interleaved, call.frequencies, call.positions, call.dtype)
        return (call.device, *identity), partial(cls.with_table, call)

    @classmethod
    def refusal(cls, call: RoPECall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return float_refusal(call.dtype) or super().refusal(call)


class RotationKernel(_RotationKernel):
    """RoPE on CUDA: a thread turns neighbouring pairs of one head, 16 bytes of each half at a time where they fit."""

    def __init__(self, call: RoPECall) -> None:
        super().__init__(call)
        self.settings = rotation_settings(call)
        self._loaded: dict[bool, cuda.CUDAFunction] = {}

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """The programs that count rows in 32 bits and in 64."""
        return self.program(wide=False), self.program(wide=True)

    def program(self, *, wide: bool) -> Program:
        """The program that counts rows in 64 bits if `wide`, else in 32."""
        call = self.call
        return Program.of(
            _CUDA_PROGRAMS,
            "rotate_rows",
            width=call.width,
            rotated=call.rotated,
            dtype=FLOATS[call.dtype],
            interleaved=call.interleaved,
            index="int64" if wide else "int32",
            **asdict(self.settings),
        )

    def forward(self, x: Tensor, length: int, heads: int) -> Tensor:
        """See `RoPEFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        elements = x.numel()
        if elements == 0:
            return y
        rows, width = elements // self.call.width, self.call.width
        wide = rows >= _INT32_PLACES
        run = self._loaded.get(wide) or self._load(wide=wide)
        with torch.cuda.device(x.device):
            source = aligned(x).as_strided((rows, width), (width, 1))
            run(source, self._table, y.as_strided((rows, width), (width, 1)), heads, length)
        return y

    def _load(self, *, wide: bool) -> cuda.CUDAFunction:
        """The program of one way of counting, built by the first call that needs it."""
        owner = f"{type(self).__name__} for {self.call}"
        run = cuda.load(self.program(wide=wide), arch=self.call.arch, owner=owner)
        self._loaded[wide] = run
        return run


class RotationCPUKernel(_RotationKernel):
    """RoPE on a CPU: heads are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: RoPECall) -> None:
        super().__init__(call)
        self._run: CPUFunction | None = None

    def programs(self) -> Sequence[Program]:
        """The program, which is the same for all frequencies."""
        call = self.call
        return (
            Program.of(
                _CPU_PROGRAMS,
                "rotate_rows",
                width=call.width,
                rotated=call.rotated,
                dtype=FLOATS[call.dtype],
                interleaved=call.interleaved,
            ),
        )

    def forward(self, x: Tensor, length: int, heads: int) -> Tensor:
        """See `RoPEFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if rows := x.numel() // self.call.width:
            run = self._run or self._load()
            positions, threads = self.call.positions, torch.get_num_threads()
            run(x.data_ptr(), self._table.data_ptr(), y.data_ptr(), 0, heads, length, rows, positions, threads)
        return y

    def _load(self) -> CPUFunction:
        """The program, built by the first call."""
        self._run = cpu.load(self.programs()[0], owner=f"{type(self).__name__} for {self.call}")
        return self._run


def _cosines_and_sines(call: RoPECall) -> Tensor:
    """`[2, positions, rotated // 2]` in float64 on the CPU, times the amplitude."""
    places = torch.arange(call.positions, dtype=torch.float64, device="cpu")
    angles = torch.outer(places, call.frequencies.of_pairs(call.rotated // 2))
    return torch.stack([angles.cos(), angles.sin()]) * call.frequencies.amplitude


ROPE_KERNELS: Mapping[str, KernelType] = {"rope": RotationKernel, "rope_cpu": RotationCPUKernel}
"""Every kernel type of `RoPEFwdInterface` that ships with this package, under its key."""
