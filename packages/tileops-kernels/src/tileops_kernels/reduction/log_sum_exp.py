"""Kernel types of log-sum-exps: one on CUDA and one on CPU, each for every shape and choice of axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.reduction.folding import CPUFolds, CUDAFolds, Fold, FoldKernel, FoldStep, kept_extents
from tileops_kernels.reduction.interfaces import LogSumExpCall, LogSumExpFwdInterface
from tileops_kernels.reduction.launches import FLOATS, INTEGERS, bare, spelled

DTYPES = {**FLOATS, **INTEGERS, torch.bool: "uint8"}
"""The dtypes of elements, with TileLang's names for those in which they lie in memory."""


class LogSumExp(FoldKernel[LogSumExpCall], LogSumExpFwdInterface):
    """What both kernel types share: a partial result is a float32 log-sum-exp, and so an element of the next pass."""

    fold: ClassVar[Fold] = "log_sum_exp"

    @classmethod
    def refusal(cls, call: LogSumExpCall) -> str | None:
        """None for the dtypes that both kernel types serve."""
        if call.dtype not in DTYPES:
            return f"takes {spelled({**FLOATS, **INTEGERS})}, not {bare(call.dtype)}"
        if call.result not in FLOATS:
            return f"gives {spelled(FLOATS)}, not {bare(call.result)}"
        return super().refusal(call)

    @classmethod
    def step_of(cls, call: LogSumExpCall) -> FoldStep:
        """The pass that gives the result."""
        return FoldStep("total", mean=False, source=DTYPES[call.dtype], parts=1, target=FLOATS[call.result])

    def forward(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """See `LogSumExpFwdInterface.forward`."""
        kept = kept_extents(x, axes)
        if x.numel() == 0:
            return torch.full(kept, -math.inf, dtype=self.call.result, device=x.device)
        y = torch.empty(kept, dtype=self.call.result, device=x.device)
        self.fold_axes(x, axes, (y,), None)
        return y


class LogSumExpKernel(LogSumExp, CUDAFolds[LogSumExpCall]):
    """Log-sum-exps on CUDA."""


class LogSumExpCPUKernel(LogSumExp, CPUFolds[LogSumExpCall]):
    """Log-sum-exps on a CPU."""

    @classmethod
    def entry_for(cls, call: LogSumExpCall) -> tuple[Hashable, Callable[[], Kernel[LogSumExpCall]]]:
        """One entry for all threads and all shapes."""
        return (call.dtype, call.result), partial(cls, call)


LOG_SUM_EXP_KERNELS: Mapping[str, KernelType] = {"log_sum_exp": LogSumExpKernel, "log_sum_exp_cpu": LogSumExpCPUKernel}
