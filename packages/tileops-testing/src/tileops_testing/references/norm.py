"""What each op of the norm family means, in plain PyTorch and float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tileops_testing.references.reference import Reference

__all__ = ["REFERENCES", "rms_norm_fwd"]


def rms_norm_fwd(
    x: Tensor, weight: Tensor | None = None, *, normalized_shape: Sequence[int], eps: float | None = None
) -> Tensor:
    """Return ``x / sqrt(mean(x**2) + eps) * weight`` over the trailing ``normalized_shape``, in float64.

    ``eps`` of None is float32's machine epsilon, whatever the dtype of ``x``.
    """
    axes = tuple(range(-len(normalized_shape), 0))
    wide = x.double()
    offset = torch.finfo(torch.float32).eps if eps is None else eps
    scaled = wide * torch.rsqrt(wide.square().mean(dim=axes, keepdim=True) + offset)
    return scaled if weight is None else scaled * weight.double()


def _normalized_elements(parameters: Mapping[str, object]) -> int:
    shape = parameters["normalized_shape"]
    if not isinstance(shape, Sequence):
        raise TypeError(f"normalized_shape: expected a sequence of integers, received {shape!r}")
    return math.prod(shape)


REFERENCES: Mapping[str, Reference] = {
    "RMSNormFwdOp": Reference(rms_norm_fwd, summed=_normalized_elements),
}
