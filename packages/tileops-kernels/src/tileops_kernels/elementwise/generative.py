"""Kernel types of tables made from positions alone: each with one on CUDA and one on CPU, for any length.

What depends on construction alone (a slope for each head, a frequency for each pair) is a table of the entry, made by
its factory in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from math import gcd
from typing import ClassVar, Self

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.dtypes import FLOATS, float_refusal
from tileops_kernels.elementwise.interfaces import AlibiCall, AlibiFwdInterface, SinusoidalCall, SinusoidalFwdInterface
from tileops_kernels.entry_tables import entry_table
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES

_CUDA_PROGRAMS = "tileops_kernels.elementwise.programs.generative"
_CPU_PROGRAMS = "tileops_kernels.elementwise.programs.generative_cpu"


SINUSOIDAL_BASE = 10000.0


@dataclass(frozen=True, slots=True)
class RowSettings:
    """Launch settings of a block to a row: elements of one access, and threads."""

    vector: int
    threads: int


def row_settings(length: int, dtype: torch.dtype) -> RowSettings:
    """The widest access that divides rows of `length` elements, by 128 threads."""
    return RowSettings(vector=gcd(length, ACCESS_BYTES // dtype.itemsize), threads=128)


def alibi_slopes(num_heads: int) -> list[float]:
    """The slope of each head: `2 ** (-8 * k / n)` for k from 1 to n, where the number of heads n is a power of two.

    For another number, the slopes of the power of two below it, then as many as are missing of the first, third, ... of
    those of the power of two above it.
    """
    below = 1 << (num_heads.bit_length() - 1)
    first = [2.0 ** (-8 * k / below) for k in range(1, below + 1)]
    return first + [2.0 ** (-4 * k / below) for k in range(1, 2 * (num_heads - below), 2)]


def sinusoidal_frequencies(width: int) -> list[float]:
    """The angle of one position for each pair of a sine and a cosine."""
    return [SINUSOIDAL_BASE ** (-2 * k / width) for k in range(width // 2)]


class _AlibiKernel(Kernel[AlibiCall], AlibiFwdInterface):
    """What the kernel types of ALiBi share: the slopes, which the factory makes."""

    _slopes: Tensor

    @classmethod
    def refusal(cls, call: AlibiCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return float_refusal(call.dtype) or super().refusal(call)

    @classmethod
    def with_slopes(cls, call: AlibiCall) -> Self:
        """A kernel ready to be called."""
        kernel = cls(call)
        kernel._slopes = entry_table(call, alibi_slopes(call.num_heads), torch.float32)
        return kernel

    @classmethod
    def entry_for(cls, call: AlibiCall) -> tuple[Hashable, Callable[[], Kernel[AlibiCall]]]:
        """One entry for all lengths."""
        return (call.device, call.num_heads, call.dtype), partial(cls.with_slopes, call)


class AlibiKernel(_AlibiKernel):
    """ALiBi on CUDA: a block writes one row of one head."""

    def __init__(self, call: AlibiCall) -> None:
        super().__init__(call)
        self._loaded: Loaded[int, cuda.CUDAFunction] = Loaded(lambda each: cuda.load_for(self, self.program(each)))

    def programs(self) -> Sequence[Program]:
        """The programs for the widest access and for lengths that it does not divide."""
        widest = ACCESS_BYTES // self.call.dtype.itemsize
        return [self.program(1 << power) for power in range(widest.bit_length())]

    def program(self, length: int) -> Program:
        """The program for rows of `length` elements."""
        settings = row_settings(length, self.call.dtype)
        return Program.of(_CUDA_PROGRAMS, "alibi_rows", dtype=FLOATS[self.call.dtype], **asdict(settings))

    def forward(self, length: int) -> Tensor:
        """See `AlibiFwdInterface.forward`."""
        call = self.call
        y = torch.empty((call.num_heads, length, length), dtype=call.dtype, device=call.device)
        if length == 0:
            return y
        vector = row_settings(length, call.dtype).vector
        run = self._loaded[vector]
        with made_current(y.device):
            run(self._slopes, y.view(call.num_heads * length, length // vector, vector))
        return y


class AlibiCPUKernel(_AlibiKernel):
    """ALiBi on a CPU: rows are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def programs(self) -> Sequence[Program]:
        """The program, which is the same for every number of heads."""
        return (Program.of(_CPU_PROGRAMS, "alibi_rows", dtype=FLOATS[self.call.dtype]),)

    def forward(self, length: int) -> Tensor:
        """See `AlibiFwdInterface.forward`."""
        heads = self.call.num_heads
        y = torch.empty((heads, length, length), dtype=self.call.dtype, device="cpu")
        if length:
            run = self._run
            run(self._slopes.data_ptr(), y.data_ptr(), 0, heads, heads * length, length, torch.get_num_threads())
        return y

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call that needs it."""
        return cpu.load_for(self, self.programs()[0])


class _SinusoidalKernel(Kernel[SinusoidalCall], SinusoidalFwdInterface):
    """What the kernel types of sinusoidal embeddings share: the frequencies, which the factory makes."""

    _frequencies: Tensor

    @classmethod
    def refusal(cls, call: SinusoidalCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return float_refusal(call.dtype) or super().refusal(call)

    @classmethod
    def with_frequencies(cls, call: SinusoidalCall) -> Self:
        """A kernel ready to be called."""
        kernel = cls(call)
        kernel._frequencies = entry_table(call, sinusoidal_frequencies(call.width), torch.float64)
        return kernel

    @classmethod
    def entry_for(cls, call: SinusoidalCall) -> tuple[Hashable, Callable[[], Kernel[SinusoidalCall]]]:
        """One entry for all lengths."""
        return (call.device, call.width, call.dtype), partial(cls.with_frequencies, call)


class SinusoidalKernel(_SinusoidalKernel):
    """Sinusoidal embeddings on CUDA: a block writes one position."""

    def __init__(self, call: SinusoidalCall) -> None:
        super().__init__(call)
        self.settings = row_settings(call.width, call.dtype)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """The program, which is the same for every width that its access divides."""
        dtype = FLOATS[self.call.dtype]
        return (Program.of(_CUDA_PROGRAMS, "sinusoidal_rows", dtype=dtype, **asdict(self.settings)),)

    def forward(self, length: int) -> Tensor:
        """See `SinusoidalFwdInterface.forward`."""
        call, vector = self.call, self.settings.vector
        y = torch.empty((length, call.width), dtype=call.dtype, device=call.device)
        if length == 0:
            return y
        run = self._run
        with made_current(y.device):
            frequencies = self._frequencies.view(call.width // vector, vector // 2)
            run(frequencies, y.view(length, call.width // vector, vector))
        return y

    @cached_property
    def _run(self) -> cuda.CUDAFunction:
        """The program, built by the first call that needs it."""
        return cuda.load_for(self, self.programs()[0])


class SinusoidalCPUKernel(_SinusoidalKernel):
    """Sinusoidal embeddings on a CPU: positions are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def programs(self) -> Sequence[Program]:
        """The program, which is the same for every width."""
        return (Program.of(_CPU_PROGRAMS, "sinusoidal_rows", dtype=FLOATS[self.call.dtype]),)

    def forward(self, length: int) -> Tensor:
        """See `SinusoidalFwdInterface.forward`."""
        width = self.call.width
        y = torch.empty((length, width), dtype=self.call.dtype, device="cpu")
        if length:
            run = self._run
            run(self._frequencies.data_ptr(), y.data_ptr(), 0, length, width // 2, torch.get_num_threads())
        return y

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call that needs it."""
        return cpu.load_for(self, self.programs()[0])


ALIBI_KERNELS: Mapping[str, KernelType] = {"alibi": AlibiKernel, "alibi_cpu": AlibiCPUKernel}
"""Every kernel type of `AlibiFwdInterface` that ships with this package, under its key."""

SINUSOIDAL_KERNELS: Mapping[str, KernelType] = {
    "sinusoidal": SinusoidalKernel,
    "sinusoidal_cpu": SinusoidalCPUKernel,
}
"""Every kernel type of `SinusoidalFwdInterface` that ships with this package, under its key."""
