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

ScanOperation: TypeAlias = Literal["sum", "prod"]
"""What the elements up to one become."""

ArgOperation: TypeAlias = Literal["argmax", "argmin"]
"""Which extreme's position is asked for."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgReduceCall(CallSpec):
    """The position of an extreme along one axis of a tensor, or in all of it.

    `operation` says which extreme, and `dtype` is that of the elements. Neither shape nor axis is part of it: every
    kernel takes any.
    """

    operation: ArgOperation
    dtype: torch.dtype


class ArgReduceFwdInterface(KernelInterface, Protocol):
    """The position of the greatest or the least element along one axis, or in a whole tensor."""

    request: ClassVar[type[CallSpec]] = ArgReduceCall

    @abstractmethod
    def forward(self, x: Tensor, axis: int | None) -> Tensor:
        """Return the positions in a new tensor.

        x: any shape; `call.dtype`; contiguous, at any storage offset; on the call's device; not written. It may hold no
        elements, but the axis does.
        axis: the axis, counted from the front; None is all of them, in which the elements of a contiguous x are
        counted.
        Returns a new contiguous tensor of int64, of the other axes. Where several elements are the extreme it is the
        first of them, and where one is NaN the first NaN; zeros of both signs are equal.
        """
        ...

    def __call__(self, x: Tensor, axis: int | None) -> Tensor:
        """Run `forward`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCall(CallSpec):
    """A scan along one axis of a tensor by `operation`.

    `dtype` is that of the elements, `result` that to which each is converted before it is combined, and in which the
    results are returned. Neither shape nor axis is part of it: every kernel takes any.
    """

    operation: ScanOperation
    dtype: torch.dtype
    result: torch.dtype


class ScanFwdInterface(KernelInterface, Protocol):
    """What the elements of an axis up to each of them combine to."""

    request: ClassVar[type[CallSpec]] = ScanCall

    @abstractmethod
    def forward(self, x: Tensor, axis: int) -> Tensor:
        """Return the scan in a new tensor.

        x: any shape of at least one axis; `call.dtype`; contiguous, at any storage offset; on the call's device; not
        written. It may hold no elements.
        axis: the axis along which elements are combined, counted from the front.
        Returns a new contiguous tensor of x's shape in `call.result`. Elements are converted to `call.result` first,
        combined in float32 (int64 for integers, which wrap), and each result is rounded once.
        """
        ...

    def __call__(self, x: Tensor, axis: int) -> Tensor:
        """Run `forward`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSumExpCall(CallSpec):
    """The logarithm of the sum of exponentials over some axes of a tensor.

    `dtype` is that of the elements, `result` that in which the result is returned. Neither shape nor axes are part of
    it: every kernel takes any.
    """

    dtype: torch.dtype
    result: torch.dtype


class LogSumExpFwdInterface(KernelInterface, Protocol):
    """`log(sum(exp(x)))` over some axes of a tensor."""

    request: ClassVar[type[CallSpec]] = LogSumExpCall

    @abstractmethod
    def forward(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return the log-sum-exp in a new tensor.

        x, axes: as in `ReduceFwdInterface`.
        Returns a new contiguous tensor of the other axes, in `call.result`. Elements are converted to float32,
        exponentials are formed of differences from the greatest, and the result is rounded once. That of nothing, or of
        nothing but minus infinity, is minus infinity; with plus infinity it is plus infinity, and with NaN it is NaN.
        """
        ...

    def __call__(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Run `forward`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceCall(CallSpec):
    """A variance over some axes of a tensor, or its root, the standard deviation.

    `dtype` is that of elements and results. Neither shape nor axes are part of it: every kernel takes any.
    """

    dtype: torch.dtype
    gives: Literal["variance", "deviation"] = "variance"


class VarianceFwdInterface(KernelInterface, Protocol):
    """`sum((x - mean(x))**2) / max(count - correction, 0)` over some axes of a tensor, or its root."""

    request: ClassVar[type[CallSpec]] = VarianceCall

    @abstractmethod
    def forward(self, x: Tensor, axes: Sequence[int], correction: float) -> Tensor:
        """Return the variance or its root in a new tensor.

        x, axes: as in `ReduceFwdInterface`.
        correction: what is taken from the number of elements, any number.
        Returns a new contiguous tensor of the other axes in `call.dtype`, formed in float32 of differences from an
        element, and rounded once. That of nothing is NaN, as with NaN or an infinity among the elements; where nothing
        is left to divide by it is infinity, or NaN of equal elements.
        """
        ...

    def __call__(self, x: Tensor, axes: Sequence[int], correction: float) -> Tensor:
        """Run `forward`."""
        ...


class VarMeanFwdInterface(KernelInterface, Protocol):
    """What `VarianceFwdInterface` gives, and the mean."""

    request: ClassVar[type[CallSpec]] = VarianceCall

    @abstractmethod
    def forward(self, x: Tensor, axes: Sequence[int], correction: float) -> tuple[Tensor, Tensor]:
        """Return the variance and the mean, each in a new tensor.

        x, axes, correction, and the variance: as in `VarianceFwdInterface`. The mean is rounded once; that of nothing
        is NaN, and with NaN or an infinity among the elements it is not finite.
        """
        ...

    def __call__(self, x: Tensor, axes: Sequence[int], correction: float) -> tuple[Tensor, Tensor]:
        """Run `forward`."""
        ...


REDUCE: InterfaceKey[ReduceCall, ReduceFwdInterface] = InterfaceKey("reduce", ReduceFwdInterface, ReduceCall)
"""The interface through which `SumFwdOp` and `ProdFwdOp` call their kernel."""

SOFTMAX: InterfaceKey[SoftmaxCall, SoftmaxFwdInterface] = InterfaceKey("softmax", SoftmaxFwdInterface, SoftmaxCall)
"""The interface through which `SoftmaxFwdOp` and `LogSoftmaxFwdOp` call their kernel."""

ARG_REDUCE: InterfaceKey[ArgReduceCall, ArgReduceFwdInterface] = InterfaceKey(
    "arg_reduce", ArgReduceFwdInterface, ArgReduceCall
)
"""The interface through which `ArgmaxFwdOp` and `ArgminFwdOp` call their kernel."""

SCAN: InterfaceKey[ScanCall, ScanFwdInterface] = InterfaceKey("scan", ScanFwdInterface, ScanCall)
"""The interface through which `CumsumFwdOp` and `CumprodFwdOp` call their kernel."""

LOG_SUM_EXP: InterfaceKey[LogSumExpCall, LogSumExpFwdInterface] = InterfaceKey(
    "log_sum_exp", LogSumExpFwdInterface, LogSumExpCall
)
"""The interface through which `LogSumExpFwdOp` calls its kernel."""

VARIANCE: InterfaceKey[VarianceCall, VarianceFwdInterface] = InterfaceKey(
    "variance", VarianceFwdInterface, VarianceCall
)
"""The interface through which `VarFwdOp` and `StdFwdOp` call their kernel."""

VAR_MEAN: InterfaceKey[VarianceCall, VarMeanFwdInterface] = InterfaceKey("var_mean", VarMeanFwdInterface, VarianceCall)
"""The interface through which `VarMeanFwdOp` calls its kernel."""
