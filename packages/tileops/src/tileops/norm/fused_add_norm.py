"""RMSNorm and LayerNorm of a sum with a residual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.norm.base import LastAxisNormOp
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import (
    FUSED_ADD_LAYER_NORM,
    FUSED_ADD_LAYER_NORM_KERNELS,
    FUSED_ADD_RMS_NORM,
    FUSED_ADD_RMS_NORM_KERNELS,
    FusedAddLayerNormFwdInterface,
    FusedAddRMSNormFwdInterface,
)


class FusedAddRMSNormFwdOp(LastAxisNormOp):
    """`residual_out = x + residual` and `y = RMSNorm(x + residual) * weight`, over the last axis.

    x, residual: `[*B, N]`, float16, bfloat16 or float32, of one dtype, any layout; weight: `[N]` in that dtype or
    float32. Returns y and residual_out, two new contiguous tensors of x's shape and dtype; no input is written. Sums
    and their squares are formed in float32 and each result is rounded once: what is normalised is the sum before it is
    rounded. A row with NaN gives NaN in that row alone.

    eps: added to the mean square.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs.

    Source: FlashInfer's `fused_add_rmsnorm`, which works in place; Zhang and Sennrich, "Root Mean Square Layer
    Normalization", 2019.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = FUSED_ADD_RMS_NORM_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {FUSED_ADD_RMS_NORM: FusedAddRMSNormFwdInterface}

    def __init__(self, eps: float = 1e-6, *, target: str | None = None) -> None:
        super().__init__(eps, target=target)

    def forward(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the norm and the sum of checked inputs."""
        kernel = self.computation(x, residual, weight)
        return kernel(x.contiguous(), residual.contiguous(), weight.contiguous())

    def computation(self, x: Tensor, residual: Tensor, weight: Tensor) -> FusedAddRMSNormFwdInterface:  # noqa: ARG002 - has x's dtype
        """The kernel of calls like this one."""
        return self.kernel_for(FUSED_ADD_RMS_NORM, self.row_call(x, weight))

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


class FusedAddLayerNormFwdOp(LastAxisNormOp):
    """`residual_out = x + residual` and `y = LayerNorm(x + residual) * weight + bias`, over the last axis.

    x, residual: `[*B, N]`, float16, bfloat16 or float32, of one dtype, any layout; weight, bias: `[N]` in that dtype
    or both in float32.
    Returns y and residual_out, two new contiguous tensors of x's shape and dtype; no input is written. What is
    normalised is the sum in float32, before it is rounded; its variance divides by the number of elements and is formed
    from squared deviations, so that a mean that is large against the spread costs no digits. Each result is rounded
    once. A row with NaN or an infinity gives NaN in that row of y alone.

    eps: added to the variance.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs.

    Source: `layer_norm_fn` of flash-attn, with a residual; Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = FUSED_ADD_LAYER_NORM_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {FUSED_ADD_LAYER_NORM: FusedAddLayerNormFwdInterface}

    def __init__(self, eps: float = 1e-5, *, target: str | None = None) -> None:
        super().__init__(eps, target=target)

    def forward(self, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the norm and the sum of checked inputs."""
        kernel = self.computation(x, residual, weight, bias)
        return kernel(x.contiguous(), residual.contiguous(), weight.contiguous(), bias.contiguous())

    def computation(
        self,
        x: Tensor,
        residual: Tensor,  # noqa: ARG002 - has x's shape and dtype
        weight: Tensor,
        bias: Tensor,  # noqa: ARG002 - has weight's dtype
    ) -> FusedAddLayerNormFwdInterface:
        """The kernel of calls like this one."""
        return self.kernel_for(FUSED_ADD_LAYER_NORM, self.row_call(x, weight))

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
