"""Call specs and kernel interfaces of norms with running statistics of channels: BatchNorm and InstanceNorm."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface


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
    """A normalisation by given statistics; `eps` is added to the variance, `weight_dtype` that of weight and bias."""

    eps: float
    weight_dtype: torch.dtype = torch.float32


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormTrainCall(BatchNormInferCall):
    """A normalisation by the batch's own statistics, which move running ones by `momentum`."""

    momentum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNormTrainCall(BatchNormTrainCall):
    """A normalisation of each channel of each batch entry by its own statistics, whose means move running ones."""


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
        weight, bias: `[C]` each, or None for ones and zeros, independently; `call.weight_dtype`, which is `call.dtype`
        or float32; contiguous, same device, not written.
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
        less; they stay as they are where x has no elements. An infinity among the elements makes the mean that is new
        infinite, or NaN beside one of the other sign, and the variance NaN.
        weight, bias: as in `BatchNormInferFwdInterface`.
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
"""The interface through which `BatchNormFwdOp` and `InstanceNormFwdOp` normalise by running statistics."""

BATCH_NORM_TRAIN: InterfaceKey[BatchNormTrainCall, BatchNormTrainFwdInterface] = InterfaceKey(
    "batch_norm_train", BatchNormTrainFwdInterface, BatchNormTrainCall
)
"""The interface through which `BatchNormFwdOp` normalises by the batch's statistics."""


class InstanceNormTrainFwdInterface(KernelInterface, Protocol):
    """`y = (x - mean) * rsqrt(variance + eps) * weight + bias`, by channel and entry, with their mean and variance."""

    request: ClassVar[type[CallSpec]] = InstanceNormTrainCall

    @abstractmethod
    def forward(
        self, x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Return the normalised activations in a new tensor, and move the running statistics.

        x: as in `BatchNormInferFwdInterface`; a channel of an entry has no elements or more than one.
        running_mean, running_var: `[C]`, float32, contiguous, same device. Each becomes `(1 - momentum) * old +
        momentum * new`, where new is the mean over the batch of the entries' means, or of their variances divided by
        one element less; they stay as they are where x has no elements, and take infinities as those of
        `BatchNormTrainFwdInterface` do.
        weight, bias: as in `BatchNormInferFwdInterface`.
        Returns a new contiguous tensor of x's shape, dtype and device. The variance is formed from squared deviations
        in float32, and the result is rounded once. A channel of an entry with NaN or an infinity gives NaN there alone.
        """
        ...

    def __call__(
        self, x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Run `forward`."""
        ...


INSTANCE_NORM_TRAIN: InterfaceKey[InstanceNormTrainCall, InstanceNormTrainFwdInterface] = InterfaceKey(
    "instance_norm_train", InstanceNormTrainFwdInterface, InstanceNormTrainCall
)
"""The interface through which `InstanceNormFwdOp` moves running statistics."""


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
