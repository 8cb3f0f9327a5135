"""Kernel types of the grouped product: three on CUDA, by how operands reach the chip, and one on CPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.moe.interfaces import ACCESS_BYTES, GroupedGemmCall, GroupedGemmFwdInterface

DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""The dtypes of operands that every kernel type here serves, with TileLang's names for them."""

OUT_DTYPES = {**DTYPES, torch.float32: "float32"}
"""The dtypes of results."""

_CUDA_PROGRAMS = "tileops_kernels.moe.programs.grouped_gemm"
_CPU_PROGRAMS = "tileops_kernels.moe.programs.grouped_gemm_cpu"

_WIDE = 2**31
"""Elements of an expert's weights beyond which compiled-in extents would be multiplied in 32 bits."""


@dataclass(frozen=True, slots=True)
class GroupedGemmSettings:
    """Launch settings: the tile of the result, terms fetched at a time, fetches under way, threads of a block."""

    rows: int
    columns: int
    depth: int
    stages: int
    threads: int


def tma_settings(call: GroupedGemmCall) -> GroupedGemmSettings:
    """Tiles for Hopper; with an activation a block holds two products of a tile."""
    if call.few_rows:
        return GroupedGemmSettings(rows=64, columns=128, depth=64, stages=4, threads=128)
    return GroupedGemmSettings(rows=128, columns=128, depth=64, stages=3, threads=256)


def async_settings(call: GroupedGemmCall) -> GroupedGemmSettings:
    """Tiles for architectures without a tensor memory accelerator."""
    return GroupedGemmSettings(rows=64 if call.few_rows else 128, columns=64, depth=32, stages=3, threads=128)


def general_settings(call: GroupedGemmCall) -> GroupedGemmSettings:
    """Small tiles: operands come an element at a time; TileLang cannot overlap the fetches of two products."""
    stages = 2 if call.activation == "none" else 1
    return GroupedGemmSettings(rows=64, columns=64, depth=32, stages=stages, threads=128)


def _dtype_refusal(call: GroupedGemmCall) -> str | None:
    if call.dtype in DTYPES and call.out_dtype in OUT_DTYPES:
        return None
    received = " giving ".join(str(dtype).removeprefix("torch.") for dtype in (call.dtype, call.out_dtype))
    return f"serves {', '.join(DTYPES.values())} giving the same or float32, not {received}"


def _vector_refusal(call: GroupedGemmCall) -> str | None:
    if call.vectors:
        return None
    return f"rows are read {ACCESS_BYTES} bytes at a time, and k={call.k} elements are no whole number of them"


class GroupedGemmCUDAKernel(Kernel[GroupedGemmCall], GroupedGemmFwdInterface):
    """The launches, which the CUDA kernel types share: a schedule of row tiles, then the tiles."""

    settings: GroupedGemmSettings

    def __init__(self, call: GroupedGemmCall) -> None:
        super().__init__(call)
        self._run: tuple[cuda.CUDAFunction, cuda.CUDAFunction] | None = None

    @classmethod
    def refusal(cls, call: GroupedGemmCall) -> str | None:
        """None for the dtypes that all of them serve."""
        return _dtype_refusal(call) or super().refusal(call)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """The program of the schedule and that of the tiles."""
        return self.schedule(), self.program()

    def schedule(self) -> Program:
        """The program that finds each tile's expert and rows."""
        return Program.of(
            _CUDA_PROGRAMS,
            "tile_schedule",
            layout=self.call.layout,
            alignment=self.call.alignment,
            rows=self.settings.rows,
        )

    @abstractmethod
    def program(self) -> Program:
        """The program of the tiles."""
        ...

    def program_for(self, stream: str, *, vector: int, n: int = 0, k: int = 0) -> Program:
        """The program that streams operands as `stream` says, with n and k compiled in where they are not 0."""
        return Program.of(
            _CUDA_PROGRAMS,
            "grouped_gemm_tiles",
            dtype=DTYPES[self.call.dtype],
            out_dtype=OUT_DTYPES[self.call.out_dtype],
            activation=self.call.activation,
            stream=stream,
            n=n,
            k=k,
            vector=vector,
            **asdict(self.settings),
        )

    def forward(self, a: Tensor, b: Tensor, layout_metadata: Tensor, output: Tensor) -> Tensor:
        """See `GroupedGemmFwdInterface.forward`."""
        experts, rows = b.shape[0], a.numel() // a.shape[-1] if a.shape[-1] else output.numel() // output.shape[-1]
        if experts == 0 or output.numel() == 0:
            return output
        if a.shape[-1] == 0:  # no terms: a few of zero give the same
            a, b = a.new_zeros((*a.shape[:-1], 8)), b.new_zeros((*b.shape[:-1], 8))
        with torch.cuda.device(a.device):
            schedule, run = self._run or self._load()
            tiles = torch.empty((3, self._tiles(a, experts)), dtype=torch.int32, device=a.device)
            metadata = _aligned(layout_metadata).as_strided((layout_metadata.numel(),), (1,))
            schedule(metadata, tiles, a.shape[1] if self.call.layout == "masked" else experts)
            target = _aligned(output)
            run(_matrix(a, rows), _matrix(b, experts * b.shape[1]), tiles, _matrix(target, rows))
            if target is not output:
                output.copy_(target)
        return output

    def _tiles(self, a: Tensor, experts: int) -> int:
        """The most row tiles that there may be."""
        if self.call.layout == "masked":
            return experts * -(-a.shape[1] // self.settings.rows)
        return -(-a.shape[0] // self.settings.rows) + experts

    def _load(self) -> tuple[cuda.CUDAFunction, cuda.CUDAFunction]:
        """The programs, built by the first call that launches them."""
        owner = f"{type(self).__name__} for {self.call}"
        arch = self.call.arch
        self._run = (
            cuda.load(self.schedule(), arch=arch, owner=owner),
            cuda.load(self.program(), arch=arch, owner=owner),
        )
        return self._run


class GroupedGemmTMAKernel(GroupedGemmCUDAKernel):
    """Grouped product on Hopper: tiles fetched by the tensor memory accelerator, multiplied by warp groups."""

    supported_archs: ClassVar[frozenset[int] | None] = frozenset({90})
    preferred_over: ClassVar[frozenset[str]] = frozenset({"grouped_gemm_async"})

    def __init__(self, call: GroupedGemmCall) -> None:
        super().__init__(call)
        self.settings = tma_settings(call)

    @classmethod
    def refusal(cls, call: GroupedGemmCall) -> str | None:
        """None for rows of whole 16-byte accesses."""
        return super().refusal(call) or _vector_refusal(call)

    @classmethod
    def entry_for(cls, call: GroupedGemmCall) -> tuple[Hashable, Callable[[], GroupedGemmTMAKernel]]:
        """One entry for all extents."""
        return _any_extents(call), partial(cls, call)

    def program(self) -> Program:
        """The program of the tiles."""
        return self.program_for("tma", vector=ACCESS_BYTES // self.call.dtype.itemsize)


class GroupedGemmAsyncKernel(GroupedGemmCUDAKernel):
    """Grouped product whose tiles are fetched by asynchronous copies; columns and terms are compiled in."""

    def __init__(self, call: GroupedGemmCall) -> None:
        super().__init__(call)
        self.settings = async_settings(call)

    @classmethod
    def refusal(cls, call: GroupedGemmCall) -> str | None:
        """None for rows of whole 16-byte accesses, of weights that 32 bits count."""
        reason = super().refusal(call) or _vector_refusal(call)
        if reason is None and 2 * call.n * call.k >= _WIDE:
            reason = f"elements of an expert's weights are counted in 32 bits; n * k = {call.n * call.k} is beyond"
        return reason

    def program(self) -> Program:
        """The program of the tiles."""
        vector = ACCESS_BYTES // self.call.dtype.itemsize
        return self.program_for("async", vector=vector, n=self.call.n, k=self.call.k)


class GroupedGemmKernel(GroupedGemmCUDAKernel):
    """Grouped product of any extents, fetched an element at a time."""

    general: ClassVar[bool] = True

    def __init__(self, call: GroupedGemmCall) -> None:
        super().__init__(call)
        self.settings = general_settings(call)

    @classmethod
    def entry_for(cls, call: GroupedGemmCall) -> tuple[Hashable, Callable[[], GroupedGemmKernel]]:
        """One entry for all extents."""
        return _any_extents(call), partial(cls, call)

    def program(self) -> Program:
        """The program of the tiles."""
        return self.program_for("plain", vector=1)


class GroupedGemmCPUKernel(Kernel[GroupedGemmCall], GroupedGemmFwdInterface):
    """Grouped product on a CPU: one expert after the other, the threads that torch uses sharing its rows or columns."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: GroupedGemmCall) -> None:
        super().__init__(call)
        self._loaded: dict[str, CPUFunction] = {}

    @classmethod
    def refusal(cls, call: GroupedGemmCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return _dtype_refusal(call) or super().refusal(call)

    @classmethod
    def entry_for(cls, call: GroupedGemmCall) -> tuple[Hashable, Callable[[], GroupedGemmCPUKernel]]:
        """One entry for all threads and extents."""
        identity = call.layout, call.alignment, call.activation, call.dtype, call.out_dtype
        return identity, partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The program whose threads share rows and the one whose threads share columns."""
        return self.program("rows"), self.program("columns")

    def program(self, split: str) -> Program:
        """The program of one expert, whose threads share the "rows" or the "columns" of its result."""
        call = self.call
        return Program.of(
            _CPU_PROGRAMS,
            "expert_tiles",
            dtype=DTYPES[call.dtype],
            out_dtype=OUT_DTYPES[call.out_dtype],
            activation=call.activation,
            split=split,
        )

    def forward(self, a: Tensor, b: Tensor, layout_metadata: Tensor, output: Tensor) -> Tensor:
        """See `GroupedGemmFwdInterface.forward`."""
        if output.numel() == 0:
            return output
        n, (experts, weights, k) = output.shape[-1], b.shape
        rows = output.numel() // n
        addresses = a.data_ptr(), b.data_ptr(), output.data_ptr()
        steps = k * a.element_size(), weights * k * b.element_size(), n * output.element_size()
        slab = a.shape[1] if self.call.layout == "masked" else 0
        paired = () if self.call.activation == "none" else (weights,)
        for expert, first, last in _segments(self.call, layout_metadata.tolist(), experts, slab):
            m = min(last, rows) - first
            if m <= 0:
                continue
            split = "rows" if m > n else "columns"
            run = self._loaded.get(split) or self._load(split)
            places = (
                address + place * step
                for address, place, step in zip(addresses, (first, expert, first), steps, strict=True)
            )
            run(*places, m, n, k, *paired, k, k, n, torch.get_num_threads())
        return output

    def _load(self, split: str) -> CPUFunction:
        """One of the two programs, built by the first call that needs it."""
        run = cpu.load(self.program(split), owner=f"{type(self).__name__} for {self.call}")
        self._loaded[split] = run
        return run


def _segments(
    call: GroupedGemmCall, metadata: Sequence[int], experts: int, slab: int
) -> Iterator[tuple[int, int, int]]:
    """Each expert with its first row and the row after its last one."""
    if call.layout == "masked":
        for expert, count in enumerate(metadata):
            yield expert, expert * slab, expert * slab + min(count, slab)
    elif call.layout == "ends":
        last = 0
        for expert, end in enumerate(metadata):
            first = -(-last // call.alignment) * call.alignment
            yield expert, first, end
            last = end
    else:
        first = 0
        for row in range(1, len(metadata) + 1):
            if row == len(metadata) or metadata[row] != metadata[first]:
                if 0 <= metadata[first] < experts:
                    yield metadata[first], first, row
                first = row


def _any_extents(call: GroupedGemmCall) -> Hashable:
    """The identity of an entry into which no extent is compiled."""
    return (
        call.device,
        call.layout,
        call.alignment,
        call.activation,
        call.few_rows,
        call.dtype,
        call.out_dtype,
    )


def _aligned(tensor: Tensor) -> Tensor:
    """`tensor`, or a copy of it where its first element is not at a multiple of 16 bytes."""
    return tensor if tensor.data_ptr() % ACCESS_BYTES == 0 else tensor.clone()


def _matrix(tensor: Tensor, rows: int) -> Tensor:
    """A contiguous tensor as `rows` rows, aligned, with the strides of a matrix."""
    columns = tensor.shape[-1]
    return _aligned(tensor).as_strided((rows, columns), (columns, 1))


GROUPED_GEMM_KERNELS: Mapping[str, KernelType] = {
    "grouped_gemm": GroupedGemmKernel,
    "grouped_gemm_async": GroupedGemmAsyncKernel,
    "grouped_gemm_tma": GroupedGemmTMAKernel,
    "grouped_gemm_cpu": GroupedGemmCPUKernel,
}
