"""Reductions of some axes to one value each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from tileops.reduction.base import ReduceOp, Reduction


class SumFwdOp(ReduceOp):
    """`y = sum(x over dim)`: the sum of the elements of some axes.

    x: any shape and layout; float16, bfloat16, float32, bool or an integer dtype. Returns a new contiguous tensor
    without the reduced axes, or with each of length one. Its dtype is `dtype`, else that of floating-point x, and int64
    for others. Elements are converted to that dtype first and summed in float32 (int64 for integers, which wrap); the
    sum is rounded once. The sum of nothing is 0.

    dim: the axis or axes to reduce, counted from the front or the back; None and an empty list are all of them.
    keepdim: keep reduced axes with length one. dtype: of the result.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError or ArgumentError on a call,
    before any kernel runs.

    Source: `torch.sum`.
    """

    reduction: ClassVar[Reduction] = Reduction("sum")


class ProdFwdOp(ReduceOp):
    """`y = prod(x over dim)`: the product of the elements of one axis.

    x: any shape and layout; float16, bfloat16, float32, bool or an integer dtype. Returns a new contiguous tensor
    without the reduced axis, or with length one there. Its dtype is `dtype`, else that of floating-point x, and int64
    for others. Elements are converted to that dtype first and multiplied in float32 (int64 for integers, which wrap);
    the product is rounded once. The product of nothing is 1.

    dim: the axis to reduce, counted from the front or the back. keepdim: keep it with length one. dtype: of the result.

    Raises ParameterTypeError at construction, and AxisError, DTypeError or ArgumentError on a call, before any
    kernel runs.

    Source: `torch.prod`.
    """

    reduction: ClassVar[Reduction] = Reduction("prod")

    def __init__(
        self, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None, target: str | None = None
    ) -> None:
        super().__init__(dim, keepdim, dtype=dtype, target=target)


class MeanFwdOp(ReduceOp):
    """`y = sum(x over dim) / count`: the mean of the elements of some axes.

    x: any shape and layout; float16, bfloat16 or float32, or with `dtype` also bool or an integer dtype. Returns a new
    contiguous tensor without the reduced axes, or with each of length one, in `dtype`, else in x's dtype. Elements are
    converted to that dtype first and summed in float32; the sum divided by their number is rounded once. The mean of
    nothing is NaN.

    dim: the axis or axes to reduce, counted from the front or the back; None and an empty list are all of them.
    keepdim: keep reduced axes with length one. dtype: of the result.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError, RuleError or
    ArgumentError on a call, before any kernel runs.

    Source: `torch.mean`.
    """

    reduction: ClassVar[Reduction] = Reduction("sum", gives="mean")


class ExtremeOp(ReduceOp):
    """A reduction that gives one of the elements, in their own dtype."""

    def __init__(
        self, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, target: str | None = None
    ) -> None:
        super().__init__(dim, keepdim, target=target)

    def result_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the elements."""
        return dtype


class AmaxFwdOp(ExtremeOp):
    """`y = max(x over dim)`: the greatest of the elements of some axes.

    x: any shape and layout; float16, bfloat16, float32, bool or an integer dtype. Returns a new contiguous tensor of
    x's dtype without the reduced axes, or with each of length one. Where one of the elements is NaN, the result is NaN.

    dim: the axis or axes to reduce, counted from the front or the back; None and an empty list are all of them. Each
    has an element at least. keepdim: keep reduced axes with length one.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError, RuleError or
    ArgumentError on a call, before any kernel runs.

    Source: `torch.amax`.
    """

    reduction: ClassVar[Reduction] = Reduction("amax")


class AminFwdOp(ExtremeOp):
    """`y = min(x over dim)`: the least of the elements of some axes.

    x: any shape and layout; float16, bfloat16, float32, bool or an integer dtype. Returns a new contiguous tensor of
    x's dtype without the reduced axes, or with each of length one. Where one of the elements is NaN, the result is NaN.

    dim: the axis or axes to reduce, counted from the front or the back; None and an empty list are all of them. Each
    has an element at least. keepdim: keep reduced axes with length one.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError, RuleError or
    ArgumentError on a call, before any kernel runs.

    Source: `torch.amin`.
    """

    reduction: ClassVar[Reduction] = Reduction("amin")


class TruthOp(ReduceOp):
    """A reduction of what is not zero to a truth, in which an empty list of axes reduces nothing."""

    empty_list_reduces: ClassVar[bool] = False

    def __init__(
        self, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, target: str | None = None
    ) -> None:
        super().__init__(dim, keepdim, target=target)

    def result_dtype(self, dtype: torch.dtype) -> torch.dtype:  # noqa: ARG002 - the same for every dtype
        """Truth."""
        return torch.bool


class AllFwdOp(TruthOp):
    """`y = all(x != 0 over dim)`: whether no element of some axes is zero.

    x: any shape and layout; float16, bfloat16, float32, bool, int32, int64, complex64 or complex128. Returns a new
    contiguous tensor of bool without the reduced axes, or with each of length one. NaN is not zero, and a complex
    element is where both of its parts are. All of nothing is True.

    dim: the axis or axes to reduce, counted from the front or the back; None is all of them, and an empty list none, so
    that each element is compared with zero. keepdim: keep reduced axes with length one.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError or ArgumentError on a call,
    before any kernel runs.

    Source: `torch.all`.
    """

    reduction: ClassVar[Reduction] = Reduction("amin", of="nonzero")


class AnyFwdOp(TruthOp):
    """`y = any(x != 0 over dim)`: whether an element of some axes is not zero.

    x: any shape and layout; float16, bfloat16, float32, bool, int32, int64, complex64 or complex128. Returns a new
    contiguous tensor of bool without the reduced axes, or with each of length one. NaN is not zero, and a complex
    element is where both of its parts are. Any of nothing is False.

    dim: the axis or axes to reduce, counted from the front or the back; None is all of them, and an empty list none, so
    that each element is compared with zero. keepdim: keep reduced axes with length one.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError or ArgumentError on a call,
    before any kernel runs.

    Source: `torch.any`.
    """

    reduction: ClassVar[Reduction] = Reduction("amax", of="nonzero")


class CountNonzeroFwdOp(ReduceOp):
    """`y = sum(x != 0 over dim)`: how many elements of some axes are not zero.

    x: any shape and layout; float16, bfloat16, float32, bool, int32, int64, complex64 or complex128. Returns a new
    contiguous tensor of int64 without the reduced axes. NaN is not zero, and a complex element is where both of its
    parts are.

    dim: the axis or axes to reduce, counted from the front or the back; None and an empty list are all of them.

    Raises ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError or ArgumentError on a call,
    before any kernel runs.

    Source: `torch.count_nonzero`.
    """

    reduction: ClassVar[Reduction] = Reduction("sum", of="nonzero")

    def __init__(self, dim: int | Sequence[int] | None = None, *, target: str | None = None) -> None:
        super().__init__(dim, target=target)

    def result_dtype(self, dtype: torch.dtype) -> torch.dtype:  # noqa: ARG002 - the same for every dtype
        """A count's."""
        return torch.int64


class VectorNormFwdOp(ReduceOp):
    """`y = sum(abs(x) ** ord over dim) ** (1 / ord)`: the norm of vectors along some axes, of order 1, 2 or infinity.

    x: any shape and layout; float16, bfloat16 or float32. Returns a new contiguous tensor without the reduced axes, or
    with each of length one, in `dtype`, else in x's dtype. Elements are converted to that dtype first; their absolute
    values or squares are summed in float32, or the greatest absolute value is taken, and the norm is rounded once. A
    vector with NaN has the norm NaN. The norm of nothing is 0; there is none of order infinity.

    ord: the order, `float("inf")` for the greatest absolute value. dim: the axis or axes of a vector, counted from the
    front or the back; None and an empty list are all of them. keepdim: keep reduced axes with length one. dtype: of the
    result, x's own or float32.

    Raises ParameterError or ParameterTypeError at construction, and AxisError, RepeatedAxisError, DTypeError, RuleError
    or ArgumentError on a call, before any kernel runs.

    Source: `torch.linalg.vector_norm`.
    """

    def __init__(
        self,
        ord: float = 2.0,  # noqa: A002 - torch's name
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
        target: str | None = None,
    ) -> None:
        self.ord = ord
        super().__init__(dim, keepdim, dtype=dtype, target=target)

    def asked(self) -> Reduction:
        """The reduction of this order."""
        if self.ord == 2:
            return Reduction("sum", of="square", gives="root")
        return Reduction("sum" if self.ord == 1 else "amax", of="absolute")
