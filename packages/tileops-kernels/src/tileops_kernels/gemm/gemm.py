"""Kernel types of the matrix product: three on CUDA, by how operands reach the chip, and one on CPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.gemm.interfaces import ACCESS_BYTES, GemmCall, GemmFwdInterface
from tileops_kernels.kernel import Kernel, KernelType

DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""The dtypes that every kernel type here serves, with TileLang's names for them."""

_CUDA_PROGRAMS = "tileops_kernels.gemm.programs.gemm"
_CPU_PROGRAMS = "tileops_kernels.gemm.programs.gemm_cpu"

_WIDE = 2**31
"""Elements of an operand beyond which compiled-in extents would be multiplied in 32 bits."""


@dataclass(frozen=True, slots=True)
class GemmSettings:
    """Launch settings: the tile of the result, terms fetched at a time, fetches under way, threads of a block."""

    rows: int
    columns: int
    depth: int
    stages: int
    threads: int


def tma_settings(call: GemmCall) -> GemmSettings:
    """Tiles for Hopper: 128 x 256 with three stages ran at 0.975 of cuBLAS on an H200 (4096 x 4096 x 7168)."""
    if call.few_rows:
        return GemmSettings(rows=64, columns=128, depth=64, stages=4, threads=128)
    return GemmSettings(rows=128, columns=256, depth=64, stages=3, threads=256)


def async_settings(call: GemmCall) -> GemmSettings:
    """Tiles that leave room for two blocks in the shared memory of every architecture."""
    return GemmSettings(rows=64 if call.few_rows else 128, columns=128, depth=32, stages=3, threads=128)


def general_settings(call: GemmCall) -> GemmSettings:
    """Small tiles: operands come an element at a time."""
    return GemmSettings(rows=64, columns=64 if call.few_rows else 128, depth=32, stages=2, threads=128)


def _dtype_refusal(call: GemmCall) -> str | None:
    if call.dtype in DTYPES:
        return None
    return f"serves {', '.join(DTYPES.values())}, not {str(call.dtype).removeprefix('torch.')}"


def _vector_refusal(call: GemmCall) -> str | None:
    if call.vectors:
        return None
    return f"rows are read {ACCESS_BYTES} bytes at a time, and those of an operand or of the result are no such wholes"


class GemmCUDAKernel(Kernel[GemmCall], GemmFwdInterface):
    """The launch, which the CUDA kernel types share."""

    settings: GemmSettings

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self._run: cuda.CUDAFunction | None = None

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        """None for the dtypes that all of them serve."""
        return _dtype_refusal(call) or super().refusal(call)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.program(),)

    @abstractmethod
    def program(self) -> Program:
        """The program of the call."""
        ...

    def program_for(self, stream: str, *, vector: int, n: int = 0, k: int = 0) -> Program:
        """The program that streams operands as `stream` says, with n and k compiled in where they are not 0."""
        return Program.of(
            _CUDA_PROGRAMS,
            "gemm_tiles",
            dtype=DTYPES[self.call.dtype],
            trans_a=self.call.trans_a,
            trans_b=self.call.trans_b,
            stream=stream,
            n=n,
            k=k,
            vector=vector,
            **asdict(self.settings),
        )

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """See `GemmFwdInterface.forward`."""
        m, n, k = _extents(self.call, a, b)
        d = a.new_empty((m, n))
        if d.numel() == 0:
            return d
        if k == 0:
            return d.zero_()
        with torch.cuda.device(a.device):
            run = self._run or self._load()
            run(_rows(a), _rows(b), d.as_strided((m, n), (n, 1)))
        return d

    def _load(self) -> cuda.CUDAFunction:
        """The program, built by the first call that launches it."""
        owner = f"{type(self).__name__} for {self.call}"
        self._run = cuda.load(self.program(), arch=self.call.arch, owner=owner)
        return self._run


class GemmTMAKernel(GemmCUDAKernel):
    """Matrix product on Hopper: tiles fetched by the tensor memory accelerator, multiplied by warp groups."""

    supported_archs: ClassVar[frozenset[int] | None] = frozenset({90})
    preferred_over: ClassVar[frozenset[str]] = frozenset({"gemm_async"})

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self.settings = tma_settings(call)

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        """None for rows of whole 16-byte accesses."""
        return super().refusal(call) or _vector_refusal(call)

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[Hashable, Callable[[], GemmTMAKernel]]:
        """One entry for all extents."""
        return (call.device, call.trans_a, call.trans_b, call.few_rows, call.dtype), partial(cls, call)

    def program(self) -> Program:
        """The program of the call."""
        return self.program_for("tma", vector=ACCESS_BYTES // self.call.dtype.itemsize)


class GemmAsyncKernel(GemmCUDAKernel):
    """Matrix product whose tiles are fetched by asynchronous copies; columns and terms are compiled in."""

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self.settings = async_settings(call)

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        """None for rows of whole 16-byte accesses along compiled-in extents, of operands that 32 bits count."""
        reason = super().refusal(call) or _vector_refusal(call)
        if reason is None and call.trans_a:
            reason = "the extent along which a is stored is compiled in, and under trans_a it is the number of rows"
        if reason is None and call.n * call.k >= _WIDE:
            reason = f"elements of b are counted in 32 bits; n * k = {call.n * call.k} is beyond"
        return reason

    def program(self) -> Program:
        """The program of the call."""
        vector = ACCESS_BYTES // self.call.dtype.itemsize
        return self.program_for("async", vector=vector, n=self.call.n, k=self.call.k)


class GemmKernel(GemmCUDAKernel):
    """Matrix product of any extents, fetched an element at a time."""

    general: ClassVar[bool] = True

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self.settings = general_settings(call)

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[Hashable, Callable[[], GemmKernel]]:
        """One entry for all extents."""
        return (call.device, call.trans_a, call.trans_b, call.few_rows, call.dtype), partial(cls, call)

    def program(self) -> Program:
        """The program of the call."""
        return self.program_for("plain", vector=1)


class GemmCPUKernel(Kernel[GemmCall], GemmFwdInterface):
    """Matrix product on a CPU: the threads that torch uses share the rows or the columns of the result."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self._loaded: dict[str, CPUFunction] = {}

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return _dtype_refusal(call) or super().refusal(call)

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[Hashable, Callable[[], GemmCPUKernel]]:
        """One entry for all threads and extents."""
        return (call.trans_a, call.trans_b, call.dtype), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The program whose threads share rows and the one whose threads share columns."""
        return self.program("rows"), self.program("columns")

    def program(self, split: str) -> Program:
        """The program whose threads share the "rows" or the "columns" of the result."""
        call = self.call
        return Program.of(
            _CPU_PROGRAMS,
            "gemm_tiles",
            dtype=DTYPES[call.dtype],
            trans_a=call.trans_a,
            trans_b=call.trans_b,
            split=split,
        )

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """See `GemmFwdInterface.forward`."""
        m, n, k = _extents(self.call, a, b)
        d = a.new_empty((m, n))
        if d.numel() == 0:
            return d
        if k == 0:
            return d.zero_()
        split = "rows" if m > n else "columns"
        run = self._loaded.get(split) or self._load(split)
        addresses = a.data_ptr(), b.data_ptr(), d.data_ptr()
        run(*addresses, m, n, k, a.shape[1], b.shape[1], n, torch.get_num_threads())
        return d

    def _load(self, split: str) -> CPUFunction:
        """One of the two programs, built by the first call that needs it."""
        run = cpu.load(self.program(split), owner=f"{type(self).__name__} for {self.call}")
        self._loaded[split] = run
        return run


def _extents(call: GemmCall, a: Tensor, b: Tensor) -> tuple[int, int, int]:
    """Rows, columns and terms of the product."""
    m, k = (a.shape[1], a.shape[0]) if call.trans_a else (a.shape[0], a.shape[1])
    return m, b.shape[0] if call.trans_b else b.shape[1], k


def _rows(matrix: Tensor) -> Tensor:
    """A contiguous `matrix` with the strides of one, from a multiple of 16 bytes on: itself, or a copy."""
    aligned = matrix if matrix.data_ptr() % ACCESS_BYTES == 0 else matrix.clone()
    return aligned.as_strided(matrix.shape, (matrix.shape[1], 1))


GEMM_KERNELS: Mapping[str, KernelType] = {
    "gemm": GemmKernel,
    "gemm_async": GemmAsyncKernel,
    "gemm_tma": GemmTMAKernel,
    "gemm_cpu": GemmCPUKernel,
}
