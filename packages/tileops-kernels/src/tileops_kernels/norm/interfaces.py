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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormInferCall(CallSpec):
    """A normalisation of `[B, C, *L]` by given statistics of each channel.

    `length` is the product of `L`, at least 1; `eps` is added to the variance; `dtype` is that of the activations. The
    numbers of batch entries and channels are not part of it: every kernel takes any.
    """

    length: int
    eps: float
    dtype: torch.dtype


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
