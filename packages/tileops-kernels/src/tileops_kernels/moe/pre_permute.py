"""Kernel types of the permutation before experts: one on CUDA and one on CPU."""

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
from tileops_kernels.moe.placement import CPUPlacing, CUDAPlacing, Placement
from tileops_kernels.moe.placement_interfaces import PrePermuteCall, PrePermuteFwdInterface

_CUDA_PROGRAMS = "tileops_kernels.moe.programs.permuted_rows"
_CPU_PROGRAMS = "tileops_kernels.moe.programs.permuted_rows_cpu"

_THREADS = 128
"""Threads of a block: widths of models are mostly whole multiples of as many 16-byte accesses."""


class _PrePermute(Kernel[PrePermuteCall], PrePermuteFwdInterface):
    """What the kernel types share: places first, then rows."""

    def __init__(self, call: PrePermuteCall) -> None:
        super().__init__(call)
        self.placement = Placement(call.metadata, call.experts, call.alignment)

    @classmethod
    def refusal(cls, call: PrePermuteCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return float_refusal(call.dtype) or super().refusal(call)

    def forward(self, hidden_states: Tensor, expert_ids: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """See `PrePermuteFwdInterface.forward`."""
        call, pairs, h = self.call, expert_ids.numel(), hidden_states.shape[1]
        expert_input = hidden_states.new_empty((rows, h))
        metadata = expert_ids.new_empty((call.experts if call.metadata == "ends" else rows,))
        inverse_indices = expert_ids.new_empty((pairs,))
        if pairs == 0:
            metadata.fill_(0 if call.metadata == "ends" else call.experts)
            return expert_input, metadata, inverse_indices
        self.place(hidden_states, expert_ids, expert_input, metadata, inverse_indices)
        return expert_input, metadata, inverse_indices

    @abstractmethod
    def place(self, x: Tensor, ids: Tensor, y: Tensor, metadata: Tensor, inverse: Tensor) -> None:
        """Write `metadata` and `inverse` for ids, of which there is one at least, and the rows `y`."""
        ...


class PrePermuteKernel(_PrePermute):
    """Permutation on CUDA: a thread reads one access of a token's row and writes it to each of the token's experts."""

    def __init__(self, call: PrePermuteCall) -> None:
        super().__init__(call)
        self.vector = ACCESS_BYTES // call.dtype.itemsize if call.vectors else 1
        self._placing = CUDAPlacing(self.placement, self)

    def config(self) -> Mapping[str, object]:
        """The launch settings of the copies."""
        return {"vector": self.vector, "threads": _THREADS}

    def programs(self) -> Sequence[Program]:
        """The programs of places, and the one of rows."""
        return *self.placement.cuda_programs(), self.program()

    def program(self) -> Program:
        """The program that copies rows."""
        return Program.of(
            _CUDA_PROGRAMS, "copy_rows", dtype=FLOATS[self.call.dtype], vector=self.vector, threads=_THREADS
        )

    def place(self, x: Tensor, ids: Tensor, y: Tensor, metadata: Tensor, inverse: Tensor) -> None:
        """Launch the programs."""
        (tokens, h), (rows, _), vector = x.shape, y.shape, self.vector
        with made_current(x.device):
            self._placing(ids, metadata, inverse)
            if x.numel():
                copy = self._copy
                shape, strides = (tokens, h // vector, vector), (h, vector, 1)
                target = y.as_strided((rows, *shape[1:]), strides)
                copy(aligned(x).as_strided(shape, strides), inverse, target, ids.shape[1])

    @cached_property
    def _copy(self) -> cuda.CUDAFunction:
        """The program that copies, built by the first call that needs it."""
        return cuda.load_for(self, self.program())


class PrePermuteCPUKernel(_PrePermute):
    """Permutation on a CPU: the threads that torch uses share tokens."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: PrePermuteCall) -> None:
        super().__init__(call)
        self._placing = CPUPlacing(self.placement, self)

    @classmethod
    def entry_for(cls, call: PrePermuteCall) -> tuple[Hashable, Callable[[], Kernel[PrePermuteCall]]]:
        """One entry for all threads and widths."""
        return replace(call, device=None, facts=None, vectors=False), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The program of places, and the one of rows."""
        return self.placement.cpu_program(), self.program()

    def program(self) -> Program:
        """The program that copies rows."""
        return Program.of(_CPU_PROGRAMS, "copy_rows", dtype=FLOATS[self.call.dtype])

    def place(self, x: Tensor, ids: Tensor, y: Tensor, metadata: Tensor, inverse: Tensor) -> None:
        """Run the programs."""
        self._placing(ids, metadata, inverse)
        if x.numel():
            copy = self._copy
            (tokens, h), rows, top_k = x.shape, y.shape[0], ids.shape[1]
            (source,) = addresses(self, hidden_states=x)
            sizes = h, rows, tokens, top_k
            copy(source, inverse.data_ptr(), y.data_ptr(), *sizes, torch.get_num_threads())

    @cached_property
    def _copy(self) -> CPUFunction:
        """The program that copies, built by the first call that needs it."""
        return cpu.load_for(self, self.program())


PRE_PERMUTE_KERNELS: Mapping[str, KernelType] = {
    "pre_permute": PrePermuteKernel,
    "pre_permute_cpu": PrePermuteCPUKernel,
}
