"""Kernel types of the permutation after experts: one on CUDA and one on CPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.dtypes import FLOATS, float_refusal
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES, addresses, aligned
from tileops_kernels.moe.placement_interfaces import PostPermuteCall, PostPermuteFwdInterface

_CUDA_PROGRAMS = "tileops_kernels.moe.programs.permuted_rows"
_CPU_PROGRAMS = "tileops_kernels.moe.programs.permuted_rows_cpu"

_THREADS = 128
"""Threads of a block: widths of models are mostly whole multiples of as many 16-byte accesses."""

_AHEAD = 8
"""Rows that a thread reads before it adds the first: as many as most models have experts for a token."""


class _PostPermute(Kernel[PostPermuteCall], PostPermuteFwdInterface):
    """What the kernel types share: a sum without rows is zero."""

    @classmethod
    def refusal(cls, call: PostPermuteCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return float_refusal(call.dtype) or float_refusal(call.out_dtype) or super().refusal(call)

    def forward(self, expert_output: Tensor, topk_weights: Tensor, inverse_indices: Tensor, output: Tensor) -> Tensor:
        """See `PostPermuteFwdInterface.forward`."""
        if output.numel() == 0:
            return output
        if expert_output.numel() == 0 or topk_weights.numel() == 0:
            return output.zero_()
        self.add_up(expert_output, topk_weights, inverse_indices, output)
        return output

    @abstractmethod
    def add_up(self, rows: Tensor, weights: Tensor, places: Tensor, output: Tensor) -> None:
        """Write `output`, of tensors that all have elements."""
        ...


class PostPermuteKernel(_PostPermute):
    """Permutation on CUDA: a thread adds up one access of a token's rows, all of which it reads first."""

    def __init__(self, call: PostPermuteCall) -> None:
        super().__init__(call)
        widest = max(call.dtype.itemsize, call.out_dtype.itemsize)
        self.vector = ACCESS_BYTES // widest if call.vectors else 1

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return {"vector": self.vector, "threads": _THREADS, "ahead": _AHEAD}

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.program(),)

    def program(self) -> Program:
        """The program of the call."""
        return Program.of(
            _CUDA_PROGRAMS,
            "sum_rows",
            dtype=FLOATS[self.call.dtype],
            out_dtype=FLOATS[self.call.out_dtype],
            weighted=self.call.weighted,
            vector=self.vector,
            threads=_THREADS,
            ahead=_AHEAD,
        )

    def add_up(self, rows: Tensor, weights: Tensor, places: Tensor, output: Tensor) -> None:
        """Launch the program."""
        (tokens, top_k), (count, h), vector = weights.shape, rows.shape, self.vector
        with made_current(rows.device):
            run = self._run
            strides = h, vector, 1
            source = aligned(rows).as_strided((count, h // vector, vector), strides)
            factors = (aligned(weights).as_strided((tokens, top_k), (top_k, 1)),) if self.call.weighted else ()
            indices = aligned(places).as_strided((tokens, top_k), (top_k, 1))
            target = aligned(output)
            written = target.as_strided((tokens, h // vector, vector), strides)
            run(source, *factors, indices, written, self.call.scale)
            if target is not output:
                output.copy_(target)

    @cached_property
    def _run(self) -> cuda.CUDAFunction:
        """The program, built by the first call that launches it."""
        return cuda.load_for(self, self.program())


class PostPermuteCPUKernel(_PostPermute):
    """Permutation on a CPU: the threads that torch uses share tokens."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    @classmethod
    def entry_for(cls, call: PostPermuteCall) -> tuple[Hashable, Callable[[], Kernel[PostPermuteCall]]]:
        """One entry for all threads and widths."""
        return replace(call, device=None, facts=None, vectors=False), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.program(),)

    def program(self) -> Program:
        """The program of the call."""
        dtype, out_dtype = FLOATS[self.call.dtype], FLOATS[self.call.out_dtype]
        return Program.of(_CPU_PROGRAMS, "sum_rows", dtype=dtype, out_dtype=out_dtype, weighted=self.call.weighted)

    def add_up(self, rows: Tensor, weights: Tensor, places: Tensor, output: Tensor) -> None:
        """Run the program."""
        run = self._run
        tensors = {"expert_output": rows, "topk_weights": weights, "inverse_indices": places, "output": output}
        if not self.call.weighted:
            del tensors["topk_weights"]
        (tokens, top_k), (count, h) = weights.shape, rows.shape
        sizes = h, count, tokens, top_k
        run(*addresses(self, **tensors), self.call.scale, *sizes, torch.get_num_threads())

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call that needs it."""
        return cpu.load_for(self, self.program())


POST_PERMUTE_KERNELS: Mapping[str, KernelType] = {
    "post_permute": PostPermuteKernel,
    "post_permute_cpu": PostPermuteCPUKernel,
}
