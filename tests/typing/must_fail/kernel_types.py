"""Kernel types that disagree with their interface."""

from __future__ import annotations

from torch import Tensor

from tileops_kernels.kernel import Kernel
from tileops_kernels.norm import LayerNormCall, RMSNormFwdInterface


class WithoutWeight(Kernel[LayerNormCall], RMSNormFwdInterface):
    """Its `forward` takes fewer tensors than the interface promises."""

    def forward(self, x: Tensor) -> Tensor:  # error: override
        return x


class NarrowWeight(Kernel[LayerNormCall], RMSNormFwdInterface):
    """Its `forward` refuses the None that the interface allows."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:  # error: override
        return x * weight


class ReturnsNothing(Kernel[LayerNormCall], RMSNormFwdInterface):
    """Its `forward` does not return the tensor that the interface promises."""

    def forward(self, x: Tensor, weight: Tensor | None) -> None:  # error: override
        del x, weight
