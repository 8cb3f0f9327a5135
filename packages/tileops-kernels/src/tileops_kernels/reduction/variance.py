"""Kernel types of variances: of the variance or its root, and with the mean, each on CUDA and on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.reduction.folding import CPUFolds, CUDAFolds, Fold, FoldKernel, FoldStep, kept_extents
from tileops_kernels.reduction.interfaces import VarianceCall, VarianceFwdInterface, VarMeanFwdInterface
from tileops_kernels.reduction.launches import FLOATS, bare, spelled


class Moments(FoldKernel[VarianceCall]):
    """What the kernel types of variances share: a partial result holds a mean and the spread about it."""

    fold: ClassVar[Fold] = "moments"
    mean: ClassVar[bool]
    """Whether the mean is a second result."""

    @classmethod
    def refusal(cls, call: VarianceCall) -> str | None:
        """None for the dtypes that all kernel types serve."""
        if call.dtype not in FLOATS:
            return f"serves {spelled(FLOATS)}, not {bare(call.dtype)}"
        return super().refusal(call)

    @classmethod
    def step_of(cls, call: VarianceCall) -> FoldStep:
        """The pass that gives the results."""
        return FoldStep(call.gives, mean=cls.mean, source=FLOATS[call.dtype], parts=1, target=FLOATS[call.dtype])

    def moments(self, x: Tensor, axes: Sequence[int], correction: float) -> tuple[Tensor, ...]:
        """The results in new tensors: what the call gives, and the mean where it is asked for."""
        kept, number = kept_extents(x, axes), 2 if self.mean else 1
        if x.numel() == 0:
            return tuple(torch.full(kept, math.nan, dtype=x.dtype, device=x.device) for _ in range(number))
        results = tuple(torch.empty(kept, dtype=x.dtype, device=x.device) for _ in range(number))
        freedom = x.numel() // results[0].numel() - correction
        self.fold_axes(x, axes, results, freedom if freedom > 0 else 0.0)
        return results


class Variance(Moments, VarianceFwdInterface):
    """A variance or its root."""

    mean: ClassVar[bool] = False

    def forward(self, x: Tensor, axes: Sequence[int], correction: float) -> Tensor:
        """See `VarianceFwdInterface.forward`."""
        (y,) = self.moments(x, axes, correction)
        return y


class VarMean(Moments, VarMeanFwdInterface):
    """A variance and the mean."""

    mean: ClassVar[bool] = True

    def forward(self, x: Tensor, axes: Sequence[int], correction: float) -> tuple[Tensor, Tensor]:
        """See `VarMeanFwdInterface.forward`."""
        variance, mean = self.moments(x, axes, correction)
        return variance, mean


class CPUMoments(CPUFolds[VarianceCall]):
    """Moments on a CPU."""

    @classmethod
    def entry_for(cls, call: VarianceCall) -> tuple[Hashable, Callable[[], Kernel[VarianceCall]]]:
        """One entry for all threads, shapes and corrections."""
        return (call.dtype, call.gives), partial(cls, call)


class VarianceKernel(Variance, CUDAFolds[VarianceCall]):
    """Variances on CUDA."""


class VarianceCPUKernel(Variance, CPUMoments):
    """Variances on a CPU."""


class VarMeanKernel(VarMean, CUDAFolds[VarianceCall]):
    """Variances and means on CUDA."""


class VarMeanCPUKernel(VarMean, CPUMoments):
    """Variances and means on a CPU."""


VARIANCE_KERNELS: Mapping[str, KernelType] = {"variance": VarianceKernel, "variance_cpu": VarianceCPUKernel}

VAR_MEAN_KERNELS: Mapping[str, KernelType] = {"var_mean": VarMeanKernel, "var_mean_cpu": VarMeanCPUKernel}
