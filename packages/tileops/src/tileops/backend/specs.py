"""What a builder is told of a call: one TensorSpec per input, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

DetectTarget: TypeAlias = Callable[[torch.device], bool]
"""Whether a target's kernels are written for a device; it never raises."""

TargetKernel: TypeAlias = Callable[..., Any]
"""Takes the tensors in `signature.inputs` order, `out` by keyword, and returns what `signature.outputs` says."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Device, dtype and shape of one input; no data, no tensor."""

    device: torch.device
    dtype: torch.dtype
    shape: tuple[int, ...]


class BuildKernel(Protocol):
    """Builds the kernel that serves calls whose inputs have these specs; parameters of the op come by keyword.

    Any callable type-checks, so that a builder may name its specs and parameters:
    `def build(x: TensorSpec, weight: TensorSpec | None, *, eps: float | None) -> TargetKernel`.
    """

    def __call__(self, *specs: Any, **parameters: Any) -> TargetKernel:
        """Return the kernel; each spec is a TensorSpec, or None for an input that is absent."""
        ...
