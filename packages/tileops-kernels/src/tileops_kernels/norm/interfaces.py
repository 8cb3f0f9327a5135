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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormCall(CallSpec):
    """Activations `[B, C, *L]` with statistics of each channel.

    `length` is the product of `L`, at least 1; `dtype` is that of the activations. The numbers of batch entries and
    channels are not part of it: every kernel takes any.
    """

    length: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormBwdCall(BatchNormCall):
    """The gradients of a normalisation by the batch's own statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormInferCall(BatchNormCall):
    """A normalisation by given statistics; `eps` is added to the variance."""

    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormTrainCall(BatchNormInferCall):
    """A normalisation by the batch's own statistics, which move running ones by `momentum`."""

    momentum: float


class BatchNormInferFwdInterface(KernelInterface, Protocol):
    """`y = (x - running_mean) * rsqrt(running_var + eps) * weight + bias`, by channel."""

    request: ClassVar[type[CallSpec]] = BatchNormInferCall

    @abstractmethod
    def forward(
        self, x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Return the normalised activations in a new tensor.

        x: `[B, C, *L]`, with `call.length` the product of `L`; `call.dtype`; contiguous, at any storage offset; on the
        call's device; not written. It may hold no elements.
        running_mean, running_var: `[C]`, float32, contiguous, same device, not written.
        weight, bias: as those, or None for ones and zeros, independently.
        Returns a new contiguous tensor of x's shape, dtype and device, computed in float32 and rounded once.
        """
        ...

    def __call__(
        self, x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Run `forward`."""
        ...


class BatchNormTrainFwdInterface(KernelInterface, Protocol):
    """`y = (x - mean) * rsqrt(variance + eps) * weight + bias`, by channel, with the batch's mean and variance."""

    request: ClassVar[type[CallSpec]] = BatchNormTrainCall

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """Return the normalised activations in a new tensor, and move the running statistics.

        x: as in `BatchNormInferFwdInterface`; a channel has no elements or more than one.
        running_mean, running_var: both or neither; `[C]`, float32, contiguous, same device. Each becomes
        `(1 - momentum) * old + momentum * new`, where new is the batch's mean, or its variance divided by one element
        less; they stay as they are where x has no elements.
        weight, bias: `[C]`, float32, contiguous, same device, or None for ones and zeros, independently; not written.
        Returns a new contiguous tensor of x's shape, dtype and device. The variance is formed from squared deviations
        in float32, and the result is rounded once. A channel with NaN or an infinity gives NaN in that channel alone.
        """
        ...

    def __call__(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """Run `forward`."""
        ...


BATCH_NORM_INFER: InterfaceKey[BatchNormInferCall, BatchNormInferFwdInterface] = InterfaceKey(
    "batch_norm_infer", BatchNormInferFwdInterface, BatchNormInferCall
)
"""The interface through which `BatchNormFwdOp` normalises by running statistics."""

BATCH_NORM_TRAIN: InterfaceKey[BatchNormTrainCall, BatchNormTrainFwdInterface] = InterfaceKey(
    "batch_norm_train", BatchNormTrainFwdInterface, BatchNormTrainCall
)
"""The interface through which `BatchNormFwdOp` normalises by the batch's statistics."""


class BatchNormBwdInterface(KernelInterface, Protocol):
    """The gradients of x, weight and bias of a BatchNorm in training."""

    request: ClassVar[type[CallSpec]] = BatchNormBwdCall

    @abstractmethod
    def forward(
        self, grad_out: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, weight and bias, each in a new tensor.

        grad_out, x: `[B, C, *L]`, with `call.length` the product of `L`; `call.dtype`; contiguous, at any storage
        offset; on the call's device; not written. They may hold no elements, and may be one tensor.
        weight, mean, rstd: `[C]`, float32, contiguous, same device, not written.
        Returns grad_x, contiguous, of x's shape and dtype, and grad_weight and grad_bias, `[C]` in float32, all on the
        call's device. Over the `n` elements of a channel, grad_bias is the sum of grad_out and grad_weight the sum of
        grad_out * (x - mean) * rstd, 0 where there are none; grad_x is (grad_out - grad_bias / n - (x - mean) * rstd *
        grad_weight / n) * rstd * weight, computed in float32 and rounded once.
        """
        ...

    def __call__(
        self, grad_out: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run `forward`."""
        ...


BATCH_NORM_BWD: InterfaceKey[BatchNormBwdCall, BatchNormBwdInterface] = InterfaceKey(
    "batch_norm_bwd", BatchNormBwdInterface, BatchNormBwdCall
)
"""The interface through which `BatchNormBwdOp` calls its kernel."""
