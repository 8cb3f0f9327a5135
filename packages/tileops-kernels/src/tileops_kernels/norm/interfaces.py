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

    `n` is the row length in elements, `eps` is added under the square root, `dtype` is that of the activations, and
    `weight_dtype` that of weight and bias where it is another, else None.
    The number of rows is not part of it: every kernel takes any.
    """

    n: int
    eps: float
    dtype: torch.dtype
    weight_dtype: torch.dtype | None = None

    @property
    def piece(self) -> int:
        """Elements of a row that follow each other under one row of parameters."""
        return self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNormCall(LayerNormCall):
    """A norm of rows of `n` elements, each the `span` channels of a group one after the other.

    The numbers of groups and of batch entries are not part of it: every kernel takes any.
    """

    span: int

    @property
    def piece(self) -> int:
        """Elements of a channel."""
        return self.n // self.span


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


class FusedAddRMSNormFwdInterface(KernelInterface, Protocol):
    """`s = x + residual` and `y = s * rsqrt(mean(s ** 2) + eps) * weight` over rows of `n` elements."""

    request: ClassVar[type[CallSpec]] = LayerNormCall

    @abstractmethod
    def forward(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the normalised rows and the sums, each in a new tensor.

        x, residual: `[..., n]`, of one shape; `call.dtype`; contiguous, at any storage offset; on the call's device;
        not written. They may hold no rows, and may be one tensor.
        weight: `[n]`; `call.dtype`; contiguous; same device; not written.
        Returns two new contiguous tensors of x's shape, dtype and device. Sums and their squares are formed in float32
        and each result is rounded once: what is normalised is the sum before it is rounded. A row with NaN gives NaN in
        that row alone.
        """
        ...

    def __call__(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Run `forward`."""
        ...


class FusedAddLayerNormFwdInterface(KernelInterface, Protocol):
    """`s = x + residual` and `y = (s - mean) * rsqrt(variance + eps) * weight + bias` over rows of `n` elements."""

    request: ClassVar[type[CallSpec]] = LayerNormCall

    @abstractmethod
    def forward(self, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return the normalised rows and the sums, each in a new tensor.

        x, residual, weight: as in `FusedAddRMSNormFwdInterface`; bias: as weight.
        Returns two new contiguous tensors of x's shape, dtype and device. What is normalised is the sum in float32,
        before it is rounded, with the variance of `LayerNormFwdInterface`; each result is rounded once. A row with NaN
        or an infinity gives NaN in that row of the first alone.
        """
        ...

    def __call__(self, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Run `forward`."""
        ...


class AdaLayerNormFwdInterface(KernelInterface, Protocol):
    """`y = scale * (x - mean) * rsqrt(variance + eps) + shift` over rows of `n` elements, each with its own scale."""

    request: ClassVar[type[CallSpec]] = LayerNormCall

    @abstractmethod
    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Return the normalised rows in a new tensor.

        x, scale, shift: `[..., n]`, of one shape; `call.dtype`; contiguous, at any storage offset; on the call's
        device; not written. They may hold no rows.
        Returns a new contiguous tensor of x's shape, dtype and device, rounded once, with the variance of
        `LayerNormFwdInterface`.
        """
        ...

    def __call__(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Run `forward`."""
        ...


class AdaLayerNormZeroFwdInterface(KernelInterface, Protocol):
    """`y = gate * (scale * (x - mean) * rsqrt(variance + eps) + shift)` over rows of `n` elements."""

    request: ClassVar[type[CallSpec]] = LayerNormCall

    @abstractmethod
    def forward(self, x: Tensor, scale: Tensor, shift: Tensor, gate: Tensor) -> Tensor:
        """Return the normalised rows in a new tensor.

        x, scale, shift, gate: as in `AdaLayerNormFwdInterface`, and so is what is returned.
        """
        ...

    def __call__(self, x: Tensor, scale: Tensor, shift: Tensor, gate: Tensor) -> Tensor:
        """Run `forward`."""
        ...


class GroupNormFwdInterface(KernelInterface, Protocol):
    """`y = (x - mean) * rsqrt(variance + eps) * weight + bias` by groups of channels, weight and bias by channel."""

    request: ClassVar[type[CallSpec]] = GroupNormCall

    @abstractmethod
    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return the normalised activations in a new tensor.

        x: `[B, C, *L]`, with `call.span` a divisor of `C` and `call.n` that many times the product of `L`;
        `call.dtype`; contiguous, at any storage offset; on the call's device; not written. It may hold no elements.
        weight, bias: `[C]` each, or None for ones and zeros, independently; `call.dtype`; contiguous; same device; not
        written.
        Returns a new contiguous tensor of x's shape, dtype and device, rounded once, with the variance of
        `LayerNormFwdInterface`. A group with NaN or an infinity gives NaN in that group alone.
        """
        ...

    def __call__(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Run `forward`."""
        ...


GROUP_NORM: InterfaceKey[GroupNormCall, GroupNormFwdInterface] = InterfaceKey(
    "group_norm", GroupNormFwdInterface, GroupNormCall
)
"""The interface through which `GroupNormFwdOp` and `InstanceNormFwdOp` call their kernel."""

FUSED_ADD_RMS_NORM: InterfaceKey[LayerNormCall, FusedAddRMSNormFwdInterface] = InterfaceKey(
    "fused_add_rms_norm", FusedAddRMSNormFwdInterface, LayerNormCall
)
"""The interface through which `FusedAddRMSNormFwdOp` calls its kernel."""

FUSED_ADD_LAYER_NORM: InterfaceKey[LayerNormCall, FusedAddLayerNormFwdInterface] = InterfaceKey(
    "fused_add_layer_norm", FusedAddLayerNormFwdInterface, LayerNormCall
)
"""The interface through which `FusedAddLayerNormFwdOp` calls its kernel."""

ADA_LAYER_NORM: InterfaceKey[LayerNormCall, AdaLayerNormFwdInterface] = InterfaceKey(
    "ada_layer_norm", AdaLayerNormFwdInterface, LayerNormCall
)
"""The interface through which `AdaLayerNormFwdOp` calls its kernel."""

ADA_LAYER_NORM_ZERO: InterfaceKey[LayerNormCall, AdaLayerNormZeroFwdInterface] = InterfaceKey(
    "ada_layer_norm_zero", AdaLayerNormZeroFwdInterface, LayerNormCall
)
"""The interface through which `AdaLayerNormZeroFwdOp` calls its kernel."""
