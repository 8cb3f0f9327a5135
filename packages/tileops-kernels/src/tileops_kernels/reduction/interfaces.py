"""Call specs and kernel interfaces of the reduction family."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface

Operation: TypeAlias = Literal["sum", "prod", "amax", "amin"]
"""What two elements become when they are combined; a maximum or minimum with NaN is NaN."""

Contribution: TypeAlias = Literal["value", "nonzero", "absolute", "square"]
"""What an element contributes: itself, 1 where it is not zero (as NaN is not) and else 0, or a function of itself."""

Outcome: TypeAlias = Literal["total", "mean", "root"]
"""What becomes of the whole: itself, itself divided by the number of elements, or its square root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceCall(CallSpec):
    """A reduction of some axes of a tensor by `operation`.

    `dtype` is that of the elements, `result` that to which each is converted before it is combined, and in which the
    result is returned. `of` is what an element contributes, and `gives` what becomes of the whole. Neither shape nor
    axes are part of it: every kernel takes any.
    """

    operation: Operation
    dtype: torch.dtype
    result: torch.dtype
    of: Contribution = "value"
    gives: Outcome = "total"


class ReduceFwdInterface(KernelInterface, Protocol):
    """Some axes of a tensor combined to one element each."""

    request: ClassVar[type[CallSpec]] = ReduceCall

    @abstractmethod
    def forward(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return the reduction in a new tensor.

        x: any shape; `call.dtype`; contiguous, at any storage offset; on the call's device; not written. It may hold no
        elements.
        axes: the axes to reduce, counted from the front, distinct, in rising order; none of them reduces nothing.
        Returns a new contiguous tensor of the other axes, in `call.result`. Elements are converted to `call.result`
        first (those that count as `nonzero` are counted as they are), combined in float32 (int64 for integers, which
        wrap), and rounded once; where nothing is reduced the result is the identity, 0 for a sum, 1 for a product, and
        NaN is the mean. The maximum or minimum of nothing is the least or greatest value, or infinity.
        """
        ...

    def __call__(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Run `forward`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxCall(CallSpec):
    """A softmax along one axis of a tensor.

    `dtype` is that of the elements, `result` that to which each is converted first, and in which the result is
    returned, or with `log` its logarithm. Neither shape nor axis is part of it: every kernel takes any.
    """

    dtype: torch.dtype
    result: torch.dtype
    log: bool = False


class SoftmaxFwdInterface(KernelInterface, Protocol):
    """`exp(x - max(x)) / sum(exp(x - max(x)))` along one axis, or its logarithm."""

    request: ClassVar[type[CallSpec]] = SoftmaxCall

    @abstractmethod
    def forward(self, x: Tensor, axis: int) -> Tensor:
        """Return the softmax, or with `call.log` its logarithm, in a new tensor.

        x: any shape of at least one axis; `call.dtype`; contiguous, at any storage offset; on the call's device; not
        written. It may hold no elements.
        axis: the axis along which results sum to one, counted from the front.
        Returns a new contiguous tensor of x's shape in `call.result`. Elements are converted to `call.result` first;
        everything else is float32 and rounded once. Where the axis holds NaN, plus infinity or nothing but minus
        infinity, its results are NaN.
        """
        ...

    def __call__(self, x: Tensor, axis: int) -> Tensor:
        """Run `forward`."""
        ...


REDUCE: InterfaceKey[ReduceCall, ReduceFwdInterface] = InterfaceKey("reduce", ReduceFwdInterface, ReduceCall)
"""The interface through which `SumFwdOp` and `ProdFwdOp` call their kernel."""

SOFTMAX: InterfaceKey[SoftmaxCall, SoftmaxFwdInterface] = InterfaceKey("softmax", SoftmaxFwdInterface, SoftmaxCall)
"""The interface through which `SoftmaxFwdOp` and `LogSoftmaxFwdOp` call their kernel."""
