"""Kernel types of the grouped product: three on CUDA, by how operands reach the chip, and one on CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES, addresses, aligned, aligned_matrix
from tileops_kernels.moe.interfaces import MOST_ROWS, GroupedGemmCall, GroupedGemmFwdInterface
from tileops_kernels.products import (
    DTYPES,
    AsyncProduct,
    CPUProduct,
    CUDAProduct,
    GeneralProduct,
    Product,
    ProductSettings,
    TMAProduct,
)

OUT_DTYPES = {**DTYPES, torch.float32: "float32"}
"""The dtypes of results."""

_CUDA_PROGRAMS = "tileops_kernels.moe.programs.grouped_gemm"
_PERSISTENT_PROGRAMS = "tileops_kernels.moe.programs.grouped_gemm_persistent"
_CPU_PROGRAMS = "tileops_kernels.moe.programs.grouped_gemm_cpu"


@dataclass(frozen=True, slots=True)
class GroupedGemmSettings(ProductSettings):
    """Launch settings: a product's, and how the tensor cores see a tile.

    `turned`: rows of weights are what an instruction has 64 of, so that a tile may have fewer of the operand's rows.
    `stacked`: gates and their factors are one tile of weights. `blocks`: how many a multiprocessor is to hold. `band`:
    row tiles that run beside one another for each tile of columns, so that they share an expert's weights in the cache.
    `early`: tiles are launched while their schedule is made, on Hopper. `persistent`: as many blocks as
    there are multiprocessors take one tile after the other; for tiles with a schedule and no activation, on Hopper.
    """

    turned: bool = False
    stacked: bool = False
    blocks: int = 1
    band: int = 8
    early: bool = False
    persistent: bool = False

    def of_program(self) -> Mapping[str, int]:
        """The settings that the program of the tiles is built with."""
        given = asdict(self)
        if given.pop("persistent"):
            given = {name: value for name, value in given.items() if name not in ("turned", "stacked", "blocks")}
        return given


def tma_settings(call: GroupedGemmCall) -> GroupedGemmSettings:
    """Tiles for Hopper; with an activation a block holds two of the weights', and few rows take as few as there are.

    Tiles are launched `early` wherever there is a schedule, which is safe: the schedule is launched after all that was
    asked of the stream before, reads the metadata and writes S; a block of tiles reads and writes no memory of the
    device before it waits until all of that is finished and can be seen, and whatever is asked of the stream later
    waits for the tiles. A capture records the same dependency as an edge of the graph. Many rows without activation are
    taken by blocks that stay, which have no room beside their stages for results of float32.
    """
    early = call.layout != "masked"
    if call.few_rows:
        return replace(_streaming_settings(call), early=early)
    stacked = call.activation != "none"
    columns = 128 if stacked else 256
    stays = early and not stacked and call.out_dtype == call.dtype
    return GroupedGemmSettings(
        128, columns, depth=64, stages=4, threads=256, stacked=stacked, early=early, persistent=stays
    )


def _streaming_settings(call: GroupedGemmCall) -> GroupedGemmSettings:
    """Two blocks a multiprocessor, each with two tiles of 128 terms under way, 32 KiB of weights at a time."""
    columns, threads = (128, 256) if call.activation == "none" else (64, 128)
    return GroupedGemmSettings(call.tile_rows, columns, depth=128, stages=2, threads=threads, turned=True, blocks=2)


def async_settings(call: GroupedGemmCall) -> GroupedGemmSettings:
    """Tiles for architectures without a tensor memory accelerator."""
    return GroupedGemmSettings(rows=64 if call.few_rows else 128, columns=64, depth=32, stages=3, threads=128)


def general_settings(call: GroupedGemmCall) -> GroupedGemmSettings:
    """Small tiles: operands come an element at a time; TileLang cannot overlap the fetches of two products."""
    stages = 2 if call.activation == "none" else 1
    return GroupedGemmSettings(rows=64, columns=64, depth=32, stages=stages, threads=128)


class _GroupedGemm(Product[GroupedGemmCall], GroupedGemmFwdInterface):
    """What every grouped product refuses."""

    @classmethod
    def refusal(cls, call: GroupedGemmCall) -> str | None:
        """None for results of the operands' dtype or float32."""
        reason = super().refusal(call)
        if reason is None and call.out_dtype not in (call.dtype, torch.float32):
            given, received = (str(dtype).removeprefix("torch.") for dtype in (call.dtype, call.out_dtype))
            reason = f"gives {given} or float32 for {given}, not {received}"
        return reason


class GroupedGemmCUDAKernel(_GroupedGemm, CUDAProduct[GroupedGemmCall]):
    """The programs and their launches, which the CUDA kernel types share.

    Where experts' rows follow one another a schedule of row tiles is launched first; slabs need none.
    """

    settings: GroupedGemmSettings

    def programs(self) -> Sequence[Program]:
        """The program of the schedule, where there is one, and that of the tiles."""
        return (self.program(),) if self.call.layout == "masked" else (self.schedule(), self.program())

    def schedule(self) -> Program:
        """The program that finds each tile's expert and rows."""
        return Program.of(
            _CUDA_PROGRAMS,
            "tile_schedule",
            layout=self.call.layout,
            alignment=self.call.alignment,
            rows=self.settings.rows,
            early=self.settings.early,
        )

    def program_for(self, stream: str, *, vector: int, n: int = 0, k: int = 0) -> Program:
        """The program that streams operands as `stream` says, with n and k compiled in where they are not 0."""
        if self.settings.persistent:
            return Program.of(
                _PERSISTENT_PROGRAMS,
                "grouped_gemm_persistent",
                dtype=DTYPES[self.call.dtype],
                out_dtype=OUT_DTYPES[self.call.out_dtype],
                vector=vector,
                **self.settings.of_program(),
            )
        return Program.of(
            _CUDA_PROGRAMS,
            "grouped_gemm_tiles",
            layout="masked" if self.call.layout == "masked" else "scheduled",
            dtype=DTYPES[self.call.dtype],
            out_dtype=OUT_DTYPES[self.call.out_dtype],
            activation=self.call.activation,
            stream=stream,
            n=n,
            k=k,
            vector=vector,
            **self.settings.of_program(),
        )

    def forward(self, a: Tensor, b: Tensor, layout_metadata: Tensor, output: Tensor) -> Tensor:
        """See `GroupedGemmFwdInterface.forward`."""
        if b.shape[0] == 0 or output.numel() == 0:
            return output
        a, b = _with_terms(a, b)
        (experts, weights, k), n = b.shape, output.shape[-1]
        rows, wide = output.numel() // n, -(-n // self.settings.columns)
        with made_current(a.device):
            *schedule, run = self._run
            found = aligned(layout_metadata).as_strided((layout_metadata.numel(),), (1,))
            target = aligned(output)
            operands = aligned_matrix(a, rows, k), aligned_matrix(b, experts * weights, k)
            result = aligned_matrix(target, rows, n)
            if schedule:
                most = -(-rows // self.settings.rows) + experts
                tiles = torch.empty((3, most), dtype=torch.int32, device=a.device)
                schedule[0](found, tiles, experts)
                grid = (self.call.sm_count,) if self.settings.persistent else ()
                run(*operands, tiles, result, wide, *grid)
            else:
                run(*operands, found, result, wide, a.shape[1])
            if target is not output:
                output.copy_(target)
        return output

    @cached_property
    def _run(self) -> tuple[cuda.CUDAFunction, ...]:
        """The programs, built by the first call that launches them."""
        return tuple(cuda.load_for(self, program) for program in self.programs())


class GroupedGemmTMAKernel(GroupedGemmCUDAKernel, TMAProduct[GroupedGemmCall]):
    """Grouped product on Hopper: tiles fetched by the tensor memory accelerator, multiplied by warp groups."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"grouped_gemm_async"})

    def __init__(self, call: GroupedGemmCall) -> None:
        super().__init__(call)
        self.settings = tma_settings(call)


class GroupedGemmAsyncKernel(GroupedGemmCUDAKernel, AsyncProduct[GroupedGemmCall]):
    """Grouped product whose tiles are fetched by asynchronous copies; columns and terms are compiled in."""

    def __init__(self, call: GroupedGemmCall) -> None:
        super().__init__(call)
        self.settings = async_settings(call)

    @classmethod
    def entry_for(cls, call: GroupedGemmCall) -> tuple[Hashable, Callable[[], Kernel[GroupedGemmCall]]]:
        """One entry for all numbers of rows that take the same tiles."""
        return super().entry_for(_any_tile(call))

    @classmethod
    def counted(cls, call: GroupedGemmCall) -> int:
        """Elements of an expert's weights, with the factors that an activation adds."""
        return 2 * call.n * call.k


class GroupedGemmKernel(GroupedGemmCUDAKernel, GeneralProduct[GroupedGemmCall]):
    """Grouped product of any extents, fetched an element at a time."""

    def __init__(self, call: GroupedGemmCall) -> None:
        super().__init__(call)
        self.settings = general_settings(call)

    @classmethod
    def entry_for(cls, call: GroupedGemmCall) -> tuple[Hashable, Callable[[], Kernel[GroupedGemmCall]]]:
        """One entry for all extents."""
        return super().entry_for(_any_tile(call))


class GroupedGemmCPUKernel(_GroupedGemm, CPUProduct[GroupedGemmCall]):
    """Grouped product on a CPU: one expert after the other, the threads that torch uses sharing its rows or columns."""

    @classmethod
    def entry_for(cls, call: GroupedGemmCall) -> tuple[Hashable, Callable[[], Kernel[GroupedGemmCall]]]:
        """One entry for all threads and extents."""
        return super().entry_for(_any_tile(call))

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
        if b.shape[0] == 0 or output.numel() == 0:
            return output
        a, b = _with_terms(a, b)
        (experts, weights, k), n = b.shape, output.shape[-1]
        rows = output.numel() // n
        *starts, _ = addresses(self, a=a, b=b, output=output, layout_metadata=layout_metadata)
        steps = k * a.element_size(), weights * k * b.element_size(), n * output.element_size()
        slab = a.shape[1] if self.call.layout == "masked" else 0
        paired = () if self.call.activation == "none" else (weights,)
        for expert, first, last in _segments(self.call, layout_metadata.tolist(), experts, slab):
            m = min(last, rows) - first
            if m > 0:
                skipped = zip(starts, (first, expert, first), steps, strict=True)
                places = (start + count * step for start, count, step in skipped)
                self.load(m, n)(*places, m, n, k, *paired, k, k, n, torch.get_num_threads())
        return output


def _any_tile(call: GroupedGemmCall) -> GroupedGemmCall:
    """The call where it does not matter how many rows a tile should have."""
    return replace(call, tile_rows=MOST_ROWS)


def _with_terms(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The operands, or where they have no terms ones with a few of zero, which give the same."""
    if b.shape[-1]:
        return a, b
    few = ACCESS_BYTES // a.element_size()
    return a.new_zeros((*a.shape[:-1], few)), b.new_zeros((*b.shape[:-1], few))


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


GROUPED_GEMM_KERNELS: Mapping[str, KernelType] = {
    "grouped_gemm": GroupedGemmKernel,
    "grouped_gemm_async": GroupedGemmAsyncKernel,
    "grouped_gemm_tma": GroupedGemmTMAKernel,
    "grouped_gemm_cpu": GroupedGemmCPUKernel,
}
