"""Placing pairs of token and expert in rows: the programs, and how their launches share the pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.kernel import Kernel
from tileops_kernels.memory import addresses, aligned

Form = Literal["blocks", "ends", "per_row"]
"""What is written: the pair of each row and the expert of each block of rows, or the row of each pair with what is said
of rows.
"""

STEP = 256
"""Pairs that a block of threads takes at a time."""

CHUNK = 4 * STEP
"""Pairs that are worth a block of their own: fewer would read more counts of other blocks than pairs."""

WINDOWS = (256, 512, 1024)
"""How many experts a block may count at a time."""

MOST_CHUNKS = 128
"""Chunks at most: each block adds up the counts of all."""

_CUDA_PROGRAMS = "tileops_kernels.moe.programs.placement"
_CPU_PROGRAMS = "tileops_kernels.moe.programs.placement_cpu"


def dealt(pairs: int) -> tuple[int, int]:
    """The chunks that pairs are dealt to, and the steps in which a block takes its chunk; pairs are not 0."""
    chunks = min(-(-pairs // CHUNK), MOST_CHUNKS)
    steps = -(-pairs // (STEP * chunks))
    return -(-pairs // (STEP * steps)), steps


def window(experts: int) -> int:
    """How many experts a block counts at a time."""
    return next((width for width in WINDOWS if width >= experts), WINDOWS[-1])


@dataclass(frozen=True, slots=True)
class Placement:
    """Pairs in rows of their experts: what is written, how many experts there are, where their rows may begin."""

    form: Form
    experts: int
    alignment: int

    def cuda_programs(self) -> tuple[Program, Program]:
        """The program that counts the pairs of chunks, and the one that gives them rows."""
        width = window(self.experts)
        return (
            Program.of(_CUDA_PROGRAMS, "count_pairs", window=width),
            Program.of(_CUDA_PROGRAMS, "place_pairs", form=self.form, window=width, alignment=self.alignment),
        )

    def cpu_program(self) -> Program:
        """The program that counts and places."""
        return Program.of(_CPU_PROGRAMS, "place_pairs", form=self.form, alignment=self.alignment)


class CUDAPlacing:
    """The launches of a placement on CUDA, for one kernel."""

    def __init__(self, placement: Placement, kernel: Kernel[Any]) -> None:
        self._placement = placement
        self._kernel = kernel

    def __call__(self, expert_ids: Tensor, *outputs: Tensor) -> None:
        """Place pairs, of which there is one at least; `outputs` are the program's, contiguous, on the same device."""
        count, place = self._run
        pairs = expert_ids.numel()
        chunks, steps = dealt(pairs)
        ids = aligned(expert_ids).as_strided((pairs,), (1,))
        counts = torch.empty((chunks, self._placement.experts), dtype=torch.int32, device=ids.device)
        if chunks > 1:
            count(ids, counts, steps)
        place(ids, counts, *outputs, steps)

    @cached_property
    def _run(self) -> tuple[cuda.CUDAFunction, cuda.CUDAFunction]:
        """The programs, built by the first call."""
        count, place = self._placement.cuda_programs()
        return cuda.load_for(self._kernel, count), cuda.load_for(self._kernel, place)


class CPUPlacing:
    """The run of a placement on a CPU, for one kernel."""

    def __init__(self, placement: Placement, kernel: Kernel[Any]) -> None:
        self._placement = placement
        self._kernel = kernel

    def __call__(self, expert_ids: Tensor, *outputs: Tensor) -> None:
        """Place pairs, of which there is one at least; `outputs` are the program's, contiguous."""
        run = self._run
        pairs, experts = expert_ids.numel(), self._placement.experts
        counts = torch.empty(experts, dtype=torch.int32)
        sizes = (experts, pairs) if self._placement.form == "ends" else (experts, pairs, outputs[0].numel())
        if self._placement.form == "blocks":
            sizes = (outputs[1].numel(), *sizes)
        (ids,) = addresses(self._kernel, expert_ids=expert_ids)
        run(ids, counts.data_ptr(), *(output.data_ptr() for output in outputs), *sizes, 1)

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call."""
        return cpu.load_for(self._kernel, self._placement.cpu_program())
