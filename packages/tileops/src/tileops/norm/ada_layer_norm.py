"""LayerNorm with a scale and a shift, and a gate, of each row's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.norm.base import LastAxisNormOp
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import (
    ADA_LAYER_NORM,
    ADA_LAYER_NORM_KERNELS,
    ADA_LAYER_NORM_ZERO,
    ADA_LAYER_NORM_ZERO_KERNELS,
    AdaLayerNormFwdInterface,
    AdaLayerNormZeroFwdInterface,
)


class AdaLayerNormFwdOp(LastAxisNormOp):
    """`y = scale * (x - mean(x)) * rsqrt(var(x) + eps) + shift` over the last axis, each row with its own scale.

    x, scale, shift: `[*B, N]`, float16, bfloat16 or float32, of one shape and dtype, any layout. Returns a new
    contiguous tensor of x's shape and dtype. The variance divides by the number of elements and is formed from squared
    deviations in float32, so that a mean that is large against the spread costs no digits; the result is rounded once.
    A row with NaN or an infinity gives NaN in that row alone.

    The scale is that of the norm itself: models that state it as what is added to one pass `1 + scale`.

    eps: added to the variance.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs.

    Source: Peebles and Xie, "Scalable Diffusion Models with Transformers", 2023.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = ADA_LAYER_NORM_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {ADA_LAYER_NORM: AdaLayerNormFwdInterface}

    def __init__(self, eps: float = 1e-5, *, target: str | None = None) -> None:
        super().__init__(eps, target=target)

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Compute the norm of checked inputs."""
        return self.computation(x)(x.contiguous(), scale.contiguous(), shift.contiguous())

    def computation(self, x: Tensor, *others: Tensor | None) -> AdaLayerNormFwdInterface:  # noqa: ARG002 - they have x's dtype
        """The kernel of calls like this one."""
        return self.kernel_for(ADA_LAYER_NORM, self.row_call(x))

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


class AdaLayerNormZeroFwdOp(LastAxisNormOp):
    """`y = gate * (scale * (x - mean(x)) * rsqrt(var(x) + eps) + shift)` over the last axis, each row with its own.

    x, scale, shift, gate: `[*B, N]`, float16, bfloat16 or float32, of one shape and dtype, any layout. Otherwise it is
    `AdaLayerNormFwdOp`: the product with the gate is formed in float32 too, before the one rounding.

    eps: added to the variance.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs.

    Source: Peebles and Xie, "Scalable Diffusion Models with Transformers", 2023.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = ADA_LAYER_NORM_ZERO_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {ADA_LAYER_NORM_ZERO: AdaLayerNormZeroFwdInterface}

    def __init__(self, eps: float = 1e-5, *, target: str | None = None) -> None:
        super().__init__(eps, target=target)

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor, gate: Tensor) -> Tensor:
        """Compute the norm of checked inputs."""
        kernel = self.computation(x)
        return kernel(x.contiguous(), scale.contiguous(), shift.contiguous(), gate.contiguous())

    def computation(self, x: Tensor, *others: Tensor | None) -> AdaLayerNormZeroFwdInterface:  # noqa: ARG002 - they have x's dtype
        """The kernel of calls like this one."""
        return self.kernel_for(ADA_LAYER_NORM_ZERO, self.row_call(x))

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
