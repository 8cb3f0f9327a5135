"""Matrix products on the host: the call specs, tiles, refusals and entries that products of every kind share.

A kind's CUDA kernel types inherit one way of fetching operands (`TMAProduct`, `AsyncProduct` or `GeneralProduct`) and a
class of that kind, which names its program and launches it; its CPU kernel type inherits `CPUProduct`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import ClassVar, Generic, TypeVar

import torch

from tileops_kernels.build import cpu
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.calls import CallSpec
from tileops_kernels.kernel import Kernel
from tileops_kernels.memory import ACCESS_BYTES

FEW_ROWS = 64
"""Rows that one small tile holds."""

HANDFUL = 8
"""Rows that are multiplied in registers while rows of weights are read once."""

MOST_ROWS = 8192
"""Rows beyond which more make no difference to the choice of tiles."""

DTYPES: Mapping[torch.dtype, str] = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""The dtypes of operands that every product serves, with TileLang's names for them."""

_WIDE = 2**31
"""Elements beyond which compiled-in extents would be multiplied in 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductCall(CallSpec):
    """A product of rows with `k` terms, giving rows with `n` columns.

    `few_rows` says that a tile of FEW_ROWS rows suffices, `handful` that there are no more than HANDFUL, `most_rows`,
    where tiles depend on it, is what most_rows_of gives, `vectors` that the stored rows of all that a program fetches
    or stores 16 bytes at a time are whole accesses, `dtype` is that of the operands.
    """

    n: int
    k: int
    few_rows: bool
    handful: bool = False
    most_rows: int = 0
    vectors: bool
    dtype: torch.dtype


def most_rows_of(rows: int) -> int:
    """The least power of two that is no less than `rows`, from HANDFUL to MOST_ROWS: few calls that differ by rows."""
    return min(max(1 << (rows - 1).bit_length(), HANDFUL), MOST_ROWS)


@dataclass(frozen=True, slots=True)
class ProductSettings:
    """Launch settings: the tile of the result, terms fetched at a time, fetches under way, threads of a block."""

    rows: int
    columns: int
    depth: int
    stages: int
    threads: int


@dataclass(frozen=True, slots=True)
class DotSettings:
    """Launch settings: elements of a vector, vectors under way for each line, rows that share a reading, block size."""

    vector: int
    unroll: int
    group: int
    threads: int


def dot_settings(dtype: torch.dtype, *, lines: int, group: int, vectors: bool) -> DotSettings:
    """Eight 16-byte accesses under way for each lane whose warp reads `lines` rows of weights: 64 KiB for each SM.

    Rows that are no whole accesses are read an element at a time.
    """
    vector = ACCESS_BYTES // dtype.itemsize if vectors else 1
    return DotSettings(vector=vector, unroll=(8 if vectors else 32) // lines, group=group, threads=256)


ProductCallT = TypeVar("ProductCallT", bound=ProductCall)


class Product(Kernel[ProductCallT], Generic[ProductCallT]):
    """What every product refuses."""

    @classmethod
    def refusal(cls, call: ProductCallT) -> str | None:
        """None for operands of the dtypes that all products serve."""
        if call.dtype not in DTYPES:
            return f"serves {', '.join(DTYPES.values())}, not {str(call.dtype).removeprefix('torch.')}"
        return super().refusal(call)


class CUDAProduct(Product[ProductCallT]):
    """A product on CUDA; its program streams tiles of the operands through shared memory."""

    settings: ProductSettings

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    @abstractmethod
    def program(self) -> Program:
        """The program of the tiles."""
        ...

    @abstractmethod
    def program_for(self, stream: str, *, vector: int, n: int = 0, k: int = 0) -> Program:
        """The program that streams operands as `stream` says, with n and k compiled in where they are not 0."""
        ...


class TMAProduct(CUDAProduct[ProductCallT]):
    """On Hopper: tiles are fetched by the tensor memory accelerator and multiplied by warp groups."""

    supported_archs: ClassVar[frozenset[int] | None] = frozenset({90})

    @classmethod
    def refusal(cls, call: ProductCallT) -> str | None:
        """None for rows of whole 16-byte accesses."""
        return super().refusal(call) or _vector_refusal(call)

    @classmethod
    def entry_for(cls, call: ProductCallT) -> tuple[Hashable, Callable[[], Kernel[ProductCallT]]]:
        """One entry for all extents."""
        return _any_extents(call), partial(cls, call)

    def program(self) -> Program:
        """The program of the tiles."""
        return self.program_for("tma", vector=_vector(self.call))


class AsyncProduct(CUDAProduct[ProductCallT]):
    """Tiles are fetched by asynchronous copies; columns and terms are compiled in."""

    @classmethod
    def refusal(cls, call: ProductCallT) -> str | None:
        """None for rows of whole 16-byte accesses, of a right operand that 32 bits count."""
        reason = super().refusal(call) or _vector_refusal(call)
        if reason is None and (count := cls.counted(call)) >= _WIDE:
            reason = f"elements of b are counted in 32 bits where n and k are compiled in; {count} are beyond"
        return reason

    @classmethod
    def entry_for(cls, call: ProductCallT) -> tuple[Hashable, Callable[[], Kernel[ProductCallT]]]:
        """One entry for all numbers of rows that take the same tiles."""
        return replace(call, handful=False, most_rows=0), partial(cls, call)

    @classmethod
    @abstractmethod
    def counted(cls, call: ProductCallT) -> int:
        """Elements of the right operand that are counted by compiled-in extents."""
        ...

    def program(self) -> Program:
        """The program of the tiles."""
        return self.program_for("async", vector=_vector(self.call), n=self.call.n, k=self.call.k)


class GeneralProduct(CUDAProduct[ProductCallT]):
    """Any extents: operands are fetched an element at a time."""

    general: ClassVar[bool] = True

    @classmethod
    def entry_for(cls, call: ProductCallT) -> tuple[Hashable, Callable[[], Kernel[ProductCallT]]]:
        """One entry for all extents."""
        return _any_extents(call), partial(cls, call)

    def program(self) -> Program:
        """The program of the tiles."""
        return self.program_for("plain", vector=1)


class CPUProduct(Product[ProductCallT]):
    """A product on a CPU: the threads that torch uses share the rows or the columns of the result."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: ProductCallT) -> None:
        super().__init__(call)
        self._loaded: Loaded[tuple[Callable[[str], Program], str], CPUFunction] = Loaded(
            lambda key: cpu.load_for(self, key[0](key[1]))
        )

    @classmethod
    def entry_for(cls, call: ProductCallT) -> tuple[Hashable, Callable[[], Kernel[ProductCallT]]]:
        """One entry for all threads and extents."""
        return replace(_any_extents(call), device=None, few_rows=False), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The program whose threads share rows and the one whose threads share columns."""
        return self.program("rows"), self.program("columns")

    @abstractmethod
    def program(self, split: str) -> Program:
        """The program whose threads share the "rows" or the "columns" of the result."""
        ...

    def load(self, m: int, n: int, program: Callable[[str], Program] | None = None) -> CPUFunction:
        """The program whose threads share the longer extent of an m x n result, built by the first call for it.

        `program` makes it, for a kernel type that has more than one product.
        """
        return self._loaded[program or self.program, "rows" if m > n else "columns"]


def _vector(call: ProductCall) -> int:
    """Elements of one access."""
    return ACCESS_BYTES // call.dtype.itemsize


def _vector_refusal(call: ProductCall) -> str | None:
    if call.vectors:
        return None
    return (
        f"rows are read {ACCESS_BYTES} bytes at a time, and those of some tensor are no whole number of accesses; "
        f"n={call.n}, k={call.k}"
    )


def _any_extents(call: ProductCallT) -> ProductCallT:
    """The identity of an entry into which no extent is compiled."""
    return replace(call, facts=None, n=0, k=0, handful=False, most_rows=0, vectors=False)
