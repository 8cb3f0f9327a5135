"""RMSNorm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import RMS_NORM, RMS_NORM_KERNELS, LayerNormCall, RMSNormFwdInterface


class RMSNormFwdOp(Op):
    """`y = x * rsqrt(mean(x ** 2) + eps) * weight` over the trailing `normalized_shape` axes.

    x: `[*B, *normalized_shape]`, float16, bfloat16 or float32, any layout; weight: `[*normalized_shape]` in x's dtype,
    or None for ones. Returns a new contiguous tensor of x's shape and dtype. Squares are summed in float32 and the
    result is rounded once; a row with NaN gives NaN in that row alone.

    normalized_shape: lengths of the trailing axes, in elements. eps: added to the mean square; None means float32's
    machine epsilon.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs.

    Source: `torch.nn.functional.rms_norm`; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = RMS_NORM_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {RMS_NORM: RMSNormFwdInterface}

    def __init__(self, normalized_shape: Sequence[int], eps: float | None = None, *, target: str | None = None) -> None:
        self.normalized_shape = normalized_shape
        self.eps = eps
        super().__init__(target=target)
        self._n = math.prod(self.normalized_shape)
        self._eps = torch.finfo(torch.float32).eps if eps is None else float(eps)

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the norm of checked inputs."""
        call = LayerNormCall(device=x.device, n=self._n, eps=self._eps, dtype=x.dtype)
        weight = None if weight is None else weight.contiguous()
        return self.kernel_for(RMS_NORM, call)(x.contiguous(), weight)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
