"""Kernel types of rotary position embeddings, for heads of any width: one on CUDA and one on CPU for each interface.

Where positions are places in a sequence, their cosines and sines are a table of the entry, made by its factory in
float64. Where they are stated by token, the entry keeps how far each pair turns from one position to the next, in fixed
point.
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
from tileops_kernels.devices import is_current
from tileops_kernels.division import divisor32, divisor64
from tileops_kernels.dtypes import FLOATS, float_refusal
from tileops_kernels.entry_tables import entry_table
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES, addresses, aligned, aligned_matrix, in_shape
from tileops_kernels.rope.frequencies import fixed_turns
from tileops_kernels.rope.interfaces import RoPECall, RoPEFwdInterface, RoPEPositionIdsCall, RoPEPositionIdsFwdInterface

_CUDA_PROGRAMS = "tileops_kernels.rope.programs.rope"
_CPU_PROGRAMS = "tileops_kernels.rope.programs.rope_cpu"

_IDS: Mapping[torch.dtype, str] = {torch.int32: "int32", torch.int64: "int64"}
"""The dtypes of positions, with TileLang's names for them."""

_INT32_PLACES = 1 << 31
"""Rows whose places are counted in 64 bits; in 32, dividing them takes fewer instructions."""


@dataclass(frozen=True, slots=True)
class RotationSettings:
    """Launch settings: elements of one access, and threads of a block."""

    vector: int
    threads: int


@dataclass(frozen=True, slots=True)
class TokenRotationSettings(RotationSettings):
    """Launch settings: heads, of one token, that a thread turns by the angles it has computed."""

    shared: int


def rotation_settings(call: RoPECall) -> RotationSettings:
    """The widest access that divides both halves of the rotated part and the part beside it."""
    return RotationSettings(vector=_vector(call), threads=128)


def token_rotation_settings(call: RoPEPositionIdsCall) -> TokenRotationSettings:
    """At most four elements an access, and four heads a thread: angles cost what turning two or three heads does.

    Angles are computed one after another, so that a thread with fewer of them is done sooner.
    """
    return TokenRotationSettings(vector=gcd(4, _vector(call)), threads=128, shared=4)


def _vector(call: RoPECall | RoPEPositionIdsCall) -> int:
    """The elements of the widest access that divides both halves of the rotated part and the part beside it."""
    return gcd(call.rotated // 2, call.width - call.rotated, ACCESS_BYTES // call.dtype.itemsize)


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
        self._loaded: Loaded[bool, cuda.CUDAFunction] = Loaded(
            lambda wide: cuda.load_for(self, self.program(wide=wide))
        )

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
        """See `RoPEFwdInterface.forward`; the current device is what it was."""
        if (elements := x.numel()) and not is_current(x.device):
            with torch.cuda.device(x.device):
                return self.forward(x, length, heads)
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if not elements:
            return y
        rows, width = elements // self.call.width, self.call.width
        wide = rows >= _INT32_PLACES
        run = self._loaded[wide]
        target = in_shape(y, (rows, width), (width, 1))
        divisor = divisor64 if wide else divisor32
        run(aligned_matrix(x, rows, width), self._table, target, *divisor(heads), *divisor(length), length)
        return y


class RotationCPUKernel(_RotationKernel):
    """RoPE on a CPU: heads are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

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
            run = self._run
            positions, threads = self.call.positions, torch.get_num_threads()
            run(x.data_ptr(), self._table.data_ptr(), y.data_ptr(), 0, heads, length, rows, positions, threads)
        return y

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call."""
        return cpu.load_for(self, self.programs()[0])


class _TokenRotationKernel(Kernel[RoPEPositionIdsCall], RoPEPositionIdsFwdInterface):
    """What the kernel types for stated positions share: the steps of pairs, which the factory makes."""

    _steps: Tensor

    @classmethod
    def with_steps(cls, call: RoPEPositionIdsCall) -> Self:
        """A kernel ready to be called."""
        kernel = cls(call)
        steps = fixed_turns(call.frequencies.of_pairs(call.rotated // 2).tolist() if call.rotated else ())
        kernel._steps = entry_table(call, torch.tensor(steps, dtype=torch.int64, device="cpu"), torch.int64)
        return kernel

    @classmethod
    def entry_for(cls, call: RoPEPositionIdsCall) -> tuple[Hashable, Callable[[], Kernel[RoPEPositionIdsCall]]]:
        """One entry for every number of tokens and heads, and for all positions."""
        identity = (call.width, call.rotated, call.frequencies, call.ids_dtype, call.dtype)
        return (call.device, *identity), partial(cls.with_steps, call)

    @classmethod
    def refusal(cls, call: RoPEPositionIdsCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        if call.ids_dtype not in _IDS:
            return f"serves positions of {', '.join(_IDS.values())}, not {str(call.ids_dtype).removeprefix('torch.')}"
        return float_refusal(call.dtype) or super().refusal(call)


class TokenRotationKernel(_TokenRotationKernel):
    """RoPE by stated positions on CUDA: a thread computes the angles of neighbouring pairs, and turns several heads."""

    def __init__(self, call: RoPEPositionIdsCall) -> None:
        super().__init__(call)
        self.settings = token_rotation_settings(call)
        self._loaded: Loaded[bool, cuda.CUDAFunction] = Loaded(
            lambda wide: cuda.load_for(self, self.program(wide=wide))
        )

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """The programs that count groups of heads in 32 bits and in 64; none where nothing is rotated."""
        return (self.program(wide=False), self.program(wide=True)) if self.call.rotated else ()

    def program(self, *, wide: bool) -> Program:
        """The program that counts groups of heads in 64 bits if `wide`, else in 32."""
        call = self.call
        return Program.of(
            _CUDA_PROGRAMS,
            "rotate_tokens",
            width=call.width,
            rotated=call.rotated,
            dtype=FLOATS[call.dtype],
            ids=_IDS[call.ids_dtype],
            index="int64" if wide else "int32",
            **asdict(self.settings),
        )

    def forward(self, x: Tensor, position_ids: Tensor) -> Tensor:
        """See `RoPEPositionIdsFwdInterface.forward`; the current device is what it was."""
        if not self.call.rotated:
            return x.clone(memory_format=torch.contiguous_format)
        if (elements := x.numel()) and not is_current(x.device):
            with torch.cuda.device(x.device):
                return self.forward(x, position_ids)
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if not elements:
            return y
        n, heads, width = x.shape
        wide = n * heads >= _INT32_PLACES
        run = self._loaded[wide]
        strides = heads * width, width, 1
        ids = in_shape(aligned(position_ids), (n,), (1,))
        source, target = in_shape(aligned(x), x.shape, strides), in_shape(y, x.shape, strides)
        run(source, ids, self._steps, target, *(divisor64 if wide else divisor32)(-(-heads // self.settings.shared)))
        return y


class TokenRotationCPUKernel(_TokenRotationKernel):
    """RoPE by stated positions on a CPU: tokens are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def programs(self) -> Sequence[Program]:
        """The program, which is the same for all frequencies; none where nothing is rotated."""
        call = self.call
        if not call.rotated:
            return ()
        return (
            Program.of(
                _CPU_PROGRAMS,
                "rotate_tokens",
                width=call.width,
                rotated=call.rotated,
                dtype=FLOATS[call.dtype],
                ids=_IDS[call.ids_dtype],
            ),
        )

    def forward(self, x: Tensor, position_ids: Tensor) -> Tensor:
        """See `RoPEPositionIdsFwdInterface.forward`."""
        if not self.call.rotated:
            return x.clone(memory_format=torch.contiguous_format)
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if x.numel():
            run = self._run
            source, ids = x.data_ptr(), position_ids.data_ptr()
            if not (source and ids):
                source, ids = addresses(self, x=x, position_ids=position_ids)  # names the tensor
            steps, (n, heads, _) = self._steps.data_ptr(), x.shape
            run(source, ids, steps, y.data_ptr(), heads, n, torch.get_num_threads())
        return y

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call."""
        return cpu.load_for(self, self.programs()[0])


def _cosines_and_sines(call: RoPECall) -> Tensor:
    """`[2, positions, rotated // 2]` in float64 on the CPU, times the amplitude."""
    places = torch.arange(call.positions, dtype=torch.float64, device="cpu")
    angles = torch.outer(places, call.frequencies.of_pairs(call.rotated // 2))
    return torch.stack([angles.cos(), angles.sin()]) * call.frequencies.amplitude


ROPE_KERNELS: Mapping[str, KernelType] = {"rope": RotationKernel, "rope_cpu": RotationCPUKernel}
"""Every kernel type of `RoPEFwdInterface` that ships with this package, under its key."""

ROPE_POSITION_IDS_KERNELS: Mapping[str, KernelType] = {
    "rope_position_ids": TokenRotationKernel,
    "rope_position_ids_cpu": TokenRotationCPUKernel,
}
"""Every kernel type of `RoPEPositionIdsFwdInterface` that ships with this package, under its key."""
