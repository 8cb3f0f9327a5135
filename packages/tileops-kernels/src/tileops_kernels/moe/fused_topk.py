"""Kernel types of the choice of experts: one on CUDA, for two ways of holding a row, and one on CPU."""

from __future__ import annotations

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
from tileops_kernels.memory import addresses, aligned
from tileops_kernels.moe.placement_interfaces import FusedTopKCall, FusedTopKFwdInterface

_CUDA_PROGRAMS = "tileops_kernels.moe.programs.fused_topk"
_CPU_PROGRAMS = "tileops_kernels.moe.programs.fused_topk_cpu"

_WARP = 32

_TOKENS = 4
"""Tokens of a block, a warp for each."""

MOST_HELD = 64
"""Elements of a row that a lane keeps in registers, and their keys in as many."""


def held(experts: int) -> int:
    """The elements of a row that each lane of a warp keeps; 0 where they are too many."""
    each = max(-(-experts // _WARP), 1)
    return each if each <= MOST_HELD else 0


class _FusedTopK(Kernel[FusedTopKCall], FusedTopKFwdInterface):
    """What the kernel types refuse."""

    @classmethod
    def refusal(cls, call: FusedTopKCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return float_refusal(call.dtype) or super().refusal(call)


class FusedTopKKernel(_FusedTopK):
    """Choice of experts on CUDA: a warp for each token finds one expert after the other."""

    @classmethod
    def entry_for(cls, call: FusedTopKCall) -> tuple[Hashable, Callable[[], Kernel[FusedTopKCall]]]:
        """One entry for all numbers of experts of which a lane holds equally many."""
        kept = held(call.experts)
        return replace(call, facts=None, experts=kept * _WARP), partial(cls, call)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return {"held": held(self.call.experts), "tokens": _TOKENS}

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.program(),)

    def program(self) -> Program:
        """The program of the call."""
        call = self.call
        return Program.of(
            _CUDA_PROGRAMS,
            "choose_experts",
            dtype=FLOATS[call.dtype],
            scoring=call.scoring,
            renormalize=call.renormalize,
            biased=call.biased,
            held=held(call.experts),
            tokens=_TOKENS,
        )

    def forward(self, gating_output: Tensor, bias: Tensor | None, top_k: int) -> tuple[Tensor, Tensor]:
        """See `FusedTopKFwdInterface.forward`."""
        rows, experts = gating_output.shape
        weights = gating_output.new_empty((rows, top_k), dtype=torch.float32)
        ids = gating_output.new_empty((rows, top_k), dtype=torch.int32)
        if rows:
            with made_current(gating_output.device):
                run = self._run
                given = aligned(gating_output).as_strided((rows, experts), (experts, 1))
                biases = () if bias is None else (aligned(bias).as_strided((experts,), (1,)),)
                run(given, *biases, weights, ids)
        return weights, ids

    @cached_property
    def _run(self) -> cuda.CUDAFunction:
        """The program, built by the first call that launches it."""
        return cuda.load_for(self, self.program())


class FusedTopKCPUKernel(_FusedTopK):
    """Choice of experts on a CPU: the threads that torch uses share tokens."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    @classmethod
    def entry_for(cls, call: FusedTopKCall) -> tuple[Hashable, Callable[[], Kernel[FusedTopKCall]]]:
        """One entry for all threads and numbers of experts."""
        return replace(call, device=None, facts=None, experts=0), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.program(),)

    def program(self) -> Program:
        """The program of the call."""
        call = self.call
        return Program.of(
            _CPU_PROGRAMS,
            "choose_experts",
            dtype=FLOATS[call.dtype],
            scoring=call.scoring,
            renormalize=call.renormalize,
            biased=call.biased,
        )

    def forward(self, gating_output: Tensor, bias: Tensor | None, top_k: int) -> tuple[Tensor, Tensor]:
        """See `FusedTopKFwdInterface.forward`."""
        rows, experts = gating_output.shape
        weights, ids = torch.empty(rows, top_k), torch.empty(rows, top_k, dtype=torch.int32)
        if rows:
            run = self._run
            scores = torch.empty(rows, experts)
            keys = torch.empty(rows, experts, dtype=torch.int32)
            tensors = {"gating_output": gating_output} | ({} if bias is None else {"correction_bias": bias})
            written = (tensor.data_ptr() for tensor in (scores, keys, weights, ids))
            run(*addresses(self, **tensors), *written, experts, rows, top_k, torch.get_num_threads())
        return weights, ids

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call that needs it."""
        return cpu.load_for(self, self.program())


FUSED_TOPK_KERNELS: Mapping[str, KernelType] = {"fused_topk": FusedTopKKernel, "fused_topk_cpu": FusedTopKCPUKernel}
