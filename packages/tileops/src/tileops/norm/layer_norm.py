"""LayerNorm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.norm.base import RowNormOp
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import LAYER_NORM, LAYER_NORM_KERNELS, LayerNormFwdInterface


class LayerNormFwdOp(RowNormOp):
    """`y = (x - mean(x)) * rsqrt(var(x) + eps) * weight + bias` over the trailing `normalized_shape` axes.

    x: `[*B, *normalized_shape]`, float16, bfloat16 or float32, any layout; weight, bias: `[*normalized_shape]` in x's
    dtype or both in float32, or None for ones and zeros, each independently. Returns a new contiguous tensor of x's
    shape and dtype. The variance divides by the number of elements and is formed from squared deviations in float32, so
    that a mean that is large against the spread costs no digits; the result is rounded once. A row with NaN or an
    infinity gives NaN in that row alone.

    normalized_shape: lengths of the trailing axes, in elements. eps: added to the variance.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or
    ArgumentError on a call, before any kernel runs.

    Source: `torch.nn.functional.layer_norm`; Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = LAYER_NORM_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {LAYER_NORM: LayerNormFwdInterface}

    def __init__(self, normalized_shape: Sequence[int], eps: float = 1e-5, *, target: str | None = None) -> None:
        super().__init__(normalized_shape, eps, target=target)

    def forward(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """Compute the norm of checked inputs."""
        weight = None if weight is None else weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        return self.computation(x, weight, bias)(x.contiguous(), weight, bias)

    def computation(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> LayerNormFwdInterface:
        """The kernel of calls like this one."""
        return self.kernel_for(LAYER_NORM, self.row_call(x, bias if weight is None else weight))

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
