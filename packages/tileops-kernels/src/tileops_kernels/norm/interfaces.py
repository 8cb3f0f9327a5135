"""Call specs and kernel interfaces of the norm family."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNormCall(CallSpec):
    """A norm over the trailing `n` elements of each row.

    `n` is the row length in elements, `eps` is added under the square root, `dtype` is that of the activations.
    The number of rows is not part of it: every kernel takes any.
    """

    n: int
    eps: float
    dtype: torch.dtype


class RMSNormFwdInterface(KernelInterface, Protocol):
    """`y = x * rsqrt(mean(x ** 2) + eps) * weight` over rows of `n` elements."""

    request: ClassVar[type[CallSpec]] = LayerNormCall

    @abstractmethod
    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Return the normalised rows in a new tensor.

        x: `[..., n]` or any shape whose trailing axes multiply to `n`; `call.dtype`; contiguous, at any storage offset;
        on the call's device; not written. It may hold no rows.
        weight: `n` elements in the shape of the trailing axes, or None for ones; `call.dtype`; contiguous; same device;
        not written.
        Returns a new contiguous tensor of x's shape, dtype and device. Squares are summed in float32 and the result is
        rounded once. A row with NaN gives NaN in that row alone.
        """
        ...

    def __call__(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Run `forward`."""
        ...


RMS_NORM: InterfaceKey[LayerNormCall, RMSNormFwdInterface] = InterfaceKey(
    "rms_norm", RMSNormFwdInterface, LayerNormCall
)
"""The interface through which `RMSNormFwdOp` calls its kernel."""


class LayerNormFwdInterface(KernelInterface, Protocol):
    """`y = (x - mean) * rsqrt(variance + eps) * weight + bias` over rows of `n` elements."""

    request: ClassVar[type[CallSpec]] = LayerNormCall

    @abstractmethod
    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return the normalised rows in a new tensor.

        x: `[..., n]` or any shape whose trailing axes multiply to `n`; `call.dtype`; contiguous, at any storage offset;
        on the call's device; not written. It may hold no rows.
        weight, bias: `n` elements each in the shape of the trailing axes, or None for ones and zeros, independently;
        `call.dtype`; contiguous; same device; not written.
        Returns a new contiguous tensor of x's shape, dtype and device. The variance is that of the row itself (divided
        by n), from squared deviations in float32, so that a mean that is large against the spread costs no digits; the
        result is rounded once. A row with NaN or an infinity gives NaN in that row alone.
        """
        ...

    def __call__(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Run `forward`."""
        ...


LAYER_NORM: InterfaceKey[LayerNormCall, LayerNormFwdInterface] = InterfaceKey(
    "layer_norm", LayerNormFwdInterface, LayerNormCall
)
"""The interface through which `LayerNormFwdOp` calls its kernel."""
