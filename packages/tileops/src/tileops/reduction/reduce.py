"""Sums and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from tileops.reduction.base import ReduceOp
from tileops_kernels.reduction import Operation


class SumFwdOp(ReduceOp):
    """The sum of the elements of some axes.

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

    operation: ClassVar[Operation] = "sum"

    def __init__(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
        target: str | None = None,
    ) -> None:
        super().__init__(dim, keepdim, dtype=dtype, target=target)


class ProdFwdOp(ReduceOp):
    """The product of the elements of one axis.

    x: any shape and layout; float16, bfloat16, float32, bool or an integer dtype. Returns a new contiguous tensor
    without the reduced axis, or with length one there. Its dtype is `dtype`, else that of floating-point x, and int64
    for others. Elements are converted to that dtype first and multiplied in float32 (int64 for integers, which wrap);
    the product is rounded once. The product of nothing is 1.

    dim: the axis to reduce, counted from the front or the back. keepdim: keep it with length one. dtype: of the result.

    Raises ParameterTypeError at construction, and AxisError, DTypeError or ArgumentError on a call, before any
    kernel runs.

    Source: `torch.prod`.
    """

    operation: ClassVar[Operation] = "prod"

    def __init__(
        self, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None, target: str | None = None
    ) -> None:
        super().__init__(dim, keepdim, dtype=dtype, target=target)
