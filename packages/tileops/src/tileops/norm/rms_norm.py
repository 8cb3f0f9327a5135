"""RMSNorm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.norm.base import RowNormOp
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import RMS_NORM, RMS_NORM_KERNELS, RMSNormFwdInterface


class RMSNormFwdOp(RowNormOp):
    """`y = x * rsqrt(mean(x ** 2) + eps) * weight` over the trailing `normalized_shape` axes.

    x: `[*B, *normalized_shape]`, float16, bfloat16 or float32, any layout; weight: `[*normalized_shape]` in x's dtype
    or float32, or None for ones. Returns a new contiguous tensor of x's shape and dtype. Squares are summed in float32
    and the result is rounded once; a row with NaN gives NaN in that row alone.

    normalized_shape: lengths of the trailing axes, in elements. eps: added to the mean square; None means float32's
    machine epsilon.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs.

    Source: `torch.nn.functional.rms_norm`; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = RMS_NORM_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {RMS_NORM: RMSNormFwdInterface}

    def __init__(self, normalized_shape: Sequence[int], eps: float | None = None, *, target: str | None = None) -> None:
        super().__init__(normalized_shape, eps, target=target)

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the norm of checked inputs."""
        weight = None if weight is None else weight.contiguous()
        return self.computation(x, weight)(x.contiguous(), weight)

    def computation(self, x: Tensor, weight: Tensor | None = None) -> RMSNormFwdInterface:
        """The kernel of calls like this one."""
        return self.kernel_for(RMS_NORM, self.row_call(x, weight))

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
