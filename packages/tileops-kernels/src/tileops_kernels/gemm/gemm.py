"""Kernel types of the matrix product: five on CUDA, by how operands reach the chip, and one on CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.gemm.interfaces import GemmCall, GemmFwdInterface
from tileops_kernels.gemm.tiles import HopperSettings, divided_tile, parts_of, pays_to_divide, whole_tile
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES, addresses, aligned_matrix, in_shape
from tileops_kernels.products import (
    DTYPES,
    HANDFUL,
    AsyncProduct,
    CPUProduct,
    CUDAProduct,
    GeneralProduct,
    Product,
    ProductSettings,
    TMAProduct,
    dot_settings,
)

_CUDA_PROGRAMS = "tileops_kernels.gemm.programs.gemm"
_CPU_PROGRAMS = "tileops_kernels.gemm.programs.gemm_cpu"

LINES = 2
"""Rows of weights that a warp reads at a time: with two, 4096 of them keep two blocks busy on each of 128 SMs."""


def async_settings(call: GemmCall) -> ProductSettings:
    """Tiles that leave room for two blocks in the shared memory of every architecture."""
    return ProductSettings(rows=64 if call.few_rows else 128, columns=128, depth=32, stages=3, threads=128)


def general_settings(call: GemmCall) -> ProductSettings:
    """Small tiles: operands come an element at a time."""
    return ProductSettings(rows=64, columns=64 if call.few_rows else 128, depth=32, stages=2, threads=128)


class GemmCUDAKernel(CUDAProduct[GemmCall], GemmFwdInterface):
    """The program and its launch, which the CUDA kernel types share."""

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.program(),)

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
        with made_current(a.device):
            run = self._run
            run(aligned_matrix(a, *a.shape), aligned_matrix(b, *b.shape), in_shape(d, (m, n), (n, 1)))
        return d

    @cached_property
    def _run(self) -> cuda.CUDAFunction:
        """The program, built by the first call that launches it."""
        return cuda.load_for(self, self.program())


class GemmTMAKernel(TMAProduct[GemmCall], GemmFwdInterface):
    """Matrix product on Hopper by blocks that stay: the next tile is fetched while one is written."""

    settings: HopperSettings
    preferred_over: ClassVar[frozenset[str]] = frozenset({"gemm_async"})

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self.settings = whole_tile(call)

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[Hashable, Callable[[], Kernel[GemmCall]]]:
        """One entry for all extents that take the same tiles."""
        identity, _ = super().entry_for(replace(call, few_rows=False))
        return (identity, whole_tile(call)), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.program(),)

    def program_for(self, stream: str, *, vector: int, n: int = 0, k: int = 0) -> Program:
        """The program of the tiles, into which no extent is compiled."""
        del stream, n, k
        return Program.of(
            _CUDA_PROGRAMS,
            "gemm_persistent",
            dtype=DTYPES[self.call.dtype],
            trans_a=self.call.trans_a,
            trans_b=self.call.trans_b,
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
        blocks = min(self.call.sm_count, self.settings.count(m, n))
        with made_current(a.device):
            run = self._run
            run(aligned_matrix(a, *a.shape), aligned_matrix(b, *b.shape), in_shape(d, (m, n), (n, 1)), blocks)
        return d

    @cached_property
    def _run(self) -> cuda.CUDAFunction:
        """The program, built by the first call that launches it."""
        return cuda.load_for(self, self.program())


class GemmPartsKernel(TMAProduct[GemmCall], GemmFwdInterface):
    """Product of few tiles on Hopper: blocks share the terms of a tile, and a second launch adds what they found."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"gemm_async", "gemm_tma"})

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self.settings = divided_tile(call)

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[Hashable, Callable[[], Kernel[GemmCall]]]:
        """One entry for all extents that take the same tiles."""
        identity, _ = super().entry_for(replace(call, few_rows=False))
        return (identity, divided_tile(call)), partial(cls, call)

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        """None for few tiles of many terms, in rows of whole accesses."""
        reason = super().refusal(call)
        if reason is None and not pays_to_divide(call):
            reason = "divides the terms of few tiles, and here the tiles are enough or the terms are few"
        return reason

    def programs(self) -> Sequence[Program]:
        """The program of the parts, and that which adds them."""
        vector = ACCESS_BYTES // torch.float32.itemsize
        dtype = DTYPES[self.call.dtype]
        return self.program(), Program.of(_CUDA_PROGRAMS, "gemm_sums", dtype=dtype, vector=vector, threads=128)

    def program_for(self, stream: str, *, vector: int, n: int = 0, k: int = 0) -> Program:
        """The program of the parts, into which no extent is compiled."""
        del n, k
        return Program.of(
            _CUDA_PROGRAMS,
            "gemm_parts",
            dtype=DTYPES[self.call.dtype],
            trans_a=self.call.trans_a,
            trans_b=self.call.trans_b,
            stream=stream,
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
        tile = self.settings
        tiles = -(-m // tile.rows) * -(-n // tile.columns)
        parts, steps = parts_of(tiles, -(-k // tile.depth), self.call.sm_count)
        with made_current(a.device):
            multiply, add = self._run
            found = a.new_empty((parts, m, n), dtype=torch.float32).as_strided((parts, m, n), (m * n, n, 1))
            multiply(aligned_matrix(a, *a.shape), aligned_matrix(b, *b.shape), found, steps * tile.depth)
            add(found.as_strided((parts, m * n), (m * n, 1)), d.as_strided((m * n,), (1,)))
        return d

    @cached_property
    def _run(self) -> tuple[cuda.CUDAFunction, cuda.CUDAFunction]:
        """The programs, built by the first call that launches them."""
        multiply, add = self.programs()
        return cuda.load_for(self, multiply), cuda.load_for(self, add)


class GemmAsyncKernel(GemmCUDAKernel, AsyncProduct[GemmCall]):
    """Matrix product whose tiles are fetched by asynchronous copies; columns and terms are compiled in."""

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self.settings = async_settings(call)

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        """None where, beside what the copies need, no compiled-in extent is the number of rows."""
        reason = super().refusal(call)
        if reason is None and call.trans_a:
            reason = "the extent along which a is stored is compiled in, and under trans_a it is the number of rows"
        return reason

    @classmethod
    def counted(cls, call: GemmCall) -> int:
        """Elements of b."""
        return call.n * call.k


class GemmKernel(GemmCUDAKernel, GeneralProduct[GemmCall]):
    """Matrix product of any extents, fetched an element at a time."""

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self.settings = general_settings(call)


class GemmDotsKernel(Product[GemmCall], GemmFwdInterface):
    """Product of a handful of rows with weights stored by rows, which warps read once and multiply in registers."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"gemm_async", "gemm_parts", "gemm_tma"})

    def __init__(self, call: GemmCall) -> None:
        super().__init__(call)
        self.settings = dot_settings(call.dtype, lines=LINES, group=HANDFUL, vectors=_whole_terms(call))

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        """None for a handful of rows, and operands that are both stored by the terms of their sums."""
        reason = super().refusal(call)
        if reason is None and not call.handful:
            reason = f"serves up to {HANDFUL} rows, and there are more"
        if reason is None and (call.trans_a or not call.trans_b):
            reason = f"reads rows of both operands, not trans_a={call.trans_a} and trans_b={call.trans_b}"
        return reason

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[Hashable, Callable[[], Kernel[GemmCall]]]:
        """One entry for all extents, or two: for rows of whole accesses and for others."""
        return replace(call, facts=None, n=0, k=0, most_rows=0, vectors=_whole_terms(call)), partial(cls, call)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (
            Program.of(
                _CUDA_PROGRAMS, "gemm_dots", dtype=DTYPES[self.call.dtype], columns=LINES, **asdict(self.settings)
            ),
        )

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """See `GemmFwdInterface.forward`."""
        (m, k), n = a.shape, b.shape[0]
        d = a.new_empty((m, n))
        if d.numel() == 0:
            return d
        if k == 0:
            return d.zero_()
        with made_current(a.device):
            run = self._run
            run(aligned_matrix(a, m, k), aligned_matrix(b, n, k), in_shape(d, (m, n), (n, 1)))
        return d

    @cached_property
    def _run(self) -> cuda.CUDAFunction:
        """The program, built by the first call that launches it."""
        return cuda.load_for(self, self.programs()[0])


class GemmCPUKernel(CPUProduct[GemmCall], GemmFwdInterface):
    """Matrix product on a CPU: the threads that torch uses share the rows or the columns of the result."""

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
        places = addresses(self, a=a, b=b)
        self.load(m, n)(*places, d.data_ptr(), m, n, k, a.shape[1], b.shape[1], n, torch.get_num_threads())
        return d


def _extents(call: GemmCall, a: Tensor, b: Tensor) -> tuple[int, int, int]:
    """Rows, columns and terms of the product."""
    m, k = (a.shape[1], a.shape[0]) if call.trans_a else (a.shape[0], a.shape[1])
    return m, b.shape[0] if call.trans_b else b.shape[1], k


def _whole_terms(call: GemmCall) -> bool:
    """Whether rows of k terms are whole accesses."""
    return call.k * call.dtype.itemsize % ACCESS_BYTES == 0


GEMM_KERNELS: Mapping[str, KernelType] = {
    "gemm": GemmKernel,
    "gemm_async": GemmAsyncKernel,
    "gemm_tma": GemmTMAKernel,
    "gemm_parts": GemmPartsKernel,
    "gemm_dots": GemmDotsKernel,
    "gemm_cpu": GemmCPUKernel,
}
