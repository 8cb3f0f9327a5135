"""Kernel types of few tokens' expert MLPs, whose weights are found by index: one on CUDA and one on CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES, addresses, aligned, aligned_matrix
from tileops_kernels.moe.interfaces import IndexedExpertMLPCall, IndexedExpertMLPFwdInterface
from tileops_kernels.products import DTYPES, dot_settings

_CUDA_PROGRAMS = "tileops_kernels.moe.programs.indexed_expert_mlp"
_CPU_PROGRAMS = "tileops_kernels.moe.programs.indexed_expert_mlp_cpu"


LINES, GROUP = 4, 4
"""Rows of weights that a warp reads at a time, and pairs of one expert that share a reading."""


class _IndexedExpertMLP(Kernel[IndexedExpertMLPCall], IndexedExpertMLPFwdInterface):
    """What every kernel type refuses, and what does not change what it builds."""

    @classmethod
    def refusal(cls, call: IndexedExpertMLPCall) -> str | None:
        """None for operands of the dtypes that all products serve."""
        if call.dtype not in DTYPES:
            return f"serves {', '.join(DTYPES.values())}, not {str(call.dtype).removeprefix('torch.')}"
        return super().refusal(call)

    @classmethod
    def entry_for(cls, call: IndexedExpertMLPCall) -> tuple[Hashable, Callable[[], Kernel[IndexedExpertMLPCall]]]:
        """One entry for all extents."""
        return replace(call, facts=None), partial(cls, call)


class IndexedExpertMLPKernel(_IndexedExpertMLP):
    """Warps read rows of weights once for up to four tokens, and multiply them in registers; then a weighted sum."""

    def __init__(self, call: IndexedExpertMLPCall) -> None:
        super().__init__(call)
        self.settings = dot_settings(call.dtype, lines=LINES, group=GROUP, vectors=call.vectors)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """The programs of the gated product, of the other one, and of the weighted sums."""
        dtype = DTYPES[self.call.dtype]
        dots = partial(Program.of, _CUDA_PROGRAMS, "expert_dots", dtype=dtype, **asdict(self.settings))
        vector = ACCESS_BYTES // torch.float32.itemsize if self.call.vectors else 1
        return (
            dots(out_dtype=dtype, gated=True, columns=LINES // 2),
            dots(out_dtype="float32", gated=False, columns=LINES),
            Program.of(_CUDA_PROGRAMS, "weighted_sums", dtype=dtype, vector=vector, threads=128),
        )

    def forward(
        self,
        output: Tensor,
        hidden_states: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        scale: float,
    ) -> None:
        """See `IndexedExpertMLPFwdInterface.forward`."""
        if output.numel() == 0:
            return
        pairs, (experts, h, f) = topk_ids.numel(), w_down.shape
        if pairs == 0 or experts == 0 or f == 0:
            output.zero_()
            return
        with made_current(output.device):
            gate_up, down, sums = self._run
            m, each = topk_ids.shape
            ids, weights = (
                aligned(topk_ids).as_strided((pairs,), (1,)),
                aligned(topk_weights).as_strided((pairs,), (1,)),
            )
            x, gates = aligned_matrix(hidden_states, m, h), aligned_matrix(w_gate_up, experts * 2 * f, h)
            hidden = aligned_matrix(output.new_empty((pairs, f)), pairs, f)
            results = aligned_matrix(output.new_empty((pairs, h), dtype=torch.float32), pairs, h)
            target = aligned(output)
            gate_up(x, gates, ids, hidden, experts, each)
            down(hidden, aligned_matrix(w_down, experts * h, f), ids, results, experts, 1)
            sums(results, weights, ids, aligned_matrix(target, m, h), experts, each, scale)
            if target is not output:
                output.copy_(target)

    @cached_property
    def _run(self) -> tuple[cuda.CUDAFunction, cuda.CUDAFunction, cuda.CUDAFunction]:
        """The programs, built by the first call that launches them."""
        gate_up, down, sums = self.programs()
        return cuda.load_for(self, gate_up), cuda.load_for(self, down), cuda.load_for(self, sums)


class IndexedExpertMLPCPUKernel(_IndexedExpertMLP):
    """On a CPU: the threads that torch uses share the columns of each product."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    @classmethod
    def entry_for(cls, call: IndexedExpertMLPCall) -> tuple[Hashable, Callable[[], Kernel[IndexedExpertMLPCall]]]:
        """One entry for all threads and extents."""
        return replace(call, device=None, facts=None, vectors=False), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The programs of the gated product, of the other one, and of the weighted sums."""
        dtype = DTYPES[self.call.dtype]
        return (
            Program.of(_CPU_PROGRAMS, "expert_dots", dtype=dtype, out_dtype=dtype, gated=True),
            Program.of(_CPU_PROGRAMS, "expert_dots", dtype=dtype, out_dtype="float32", gated=False),
            Program.of(_CPU_PROGRAMS, "weighted_sums", dtype=dtype),
        )

    def forward(
        self,
        output: Tensor,
        hidden_states: Tensor,
        w_gate_up: Tensor,
        w_down: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        scale: float,
    ) -> None:
        """See `IndexedExpertMLPFwdInterface.forward`."""
        if output.numel() == 0:
            return
        pairs, (experts, h, f) = topk_ids.numel(), w_down.shape
        if pairs == 0 or experts == 0 or f == 0:
            output.zero_()
            return
        tensors = {"output": output, "hidden_states": hidden_states, "w_gate_up": w_gate_up, "w_down": w_down}
        target, x, gates, columns, weights, ids = addresses(
            self, **tensors, topk_weights=topk_weights, topk_ids=topk_ids
        )
        gate_up, down, sums = self._run
        m, each, threads = *topk_ids.shape, torch.get_num_threads()
        hidden, results = output.new_empty((pairs, f)), output.new_empty((pairs, h), dtype=torch.float32)
        places = hidden.data_ptr(), results.data_ptr()
        gate_up(x, gates, ids, places[0], f, experts, each, 2 * f, h, f, pairs, threads)
        down(places[0], columns, ids, places[1], h, experts, 1, h, f, h, pairs, threads)
        sums(places[1], weights, ids, target, m, experts, each, scale, h, pairs, threads)

    @cached_property
    def _run(self) -> tuple[CPUFunction, CPUFunction, CPUFunction]:
        """The programs, built by the first call that runs them."""
        gate_up, down, sums = self.programs()
        return cpu.load_for(self, gate_up), cpu.load_for(self, down), cpu.load_for(self, sums)


INDEXED_EXPERT_MLP_KERNELS: Mapping[str, KernelType] = {
    "indexed_expert_mlp": IndexedExpertMLPKernel,
    "indexed_expert_mlp_cpu": IndexedExpertMLPCPUKernel,
}
