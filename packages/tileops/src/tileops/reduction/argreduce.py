"""Positions of the greatest and the least elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.reduction import ARG_REDUCE, ARG_REDUCE_KERNELS, ArgOperation, ArgReduceCall, ArgReduceFwdInterface


class ArgReduceOp(Op):
    """An op that gives where an extreme stands; a subclass says which."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = ARG_REDUCE_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {ARG_REDUCE: ArgReduceFwdInterface}
    operation: ClassVar[ArgOperation]

    def __init__(self, dim: int | None = None, keepdim: bool = False, *, target: str | None = None) -> None:
        self.dim = dim
        self.keepdim = keepdim
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Tensor:
        """Find the positions in a checked input."""
        call = ArgReduceCall(device=x.device, operation=self.operation, dtype=x.dtype)
        axis = None if self.dim is None or x.dim() == 0 else self.dim % x.dim()
        y = self.kernel_for(ARG_REDUCE, call)(x.contiguous(), axis)
        if not self.keepdim:
            return y
        return y.view([1 if axis in {None, place} else extent for place, extent in enumerate(x.shape)])

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


class ArgmaxFwdOp(ArgReduceOp):
    """`y = argmax(x, dim)`: where the greatest element of an axis stands, or of a whole tensor.

    x: any shape and layout; float16, bfloat16 or float32. Returns a new contiguous tensor of int64 without the axis, or
    with length one there. Where several elements are the greatest it is the first of them, and where one is NaN the
    first NaN; zeros of both signs are equal.

    dim: the axis, counted from the front or the back; None counts the elements of the whole tensor, the last axis
    first. Where there are results, each has an element at least. keepdim: keep the axis, or all of them, with length
    one.

    Raises ParameterTypeError at construction, and AxisError, DTypeError, RuleError or ArgumentError on a call, before
    any kernel runs.

    Source: `torch.argmax`.
    """

    operation: ClassVar[ArgOperation] = "argmax"


class ArgminFwdOp(ArgReduceOp):
    """`y = argmin(x, dim)`: where the least element of an axis stands, or of a whole tensor.

    x: any shape and layout; float16, bfloat16 or float32. Returns a new contiguous tensor of int64 without the axis, or
    with length one there. Where several elements are the least it is the first of them, and where one is NaN the first
    NaN; zeros of both signs are equal.

    dim: the axis, counted from the front or the back; None counts the elements of the whole tensor, the last axis
    first. Where there are results, each has an element at least. keepdim: keep the axis, or all of them, with length
    one.

    Raises ParameterTypeError at construction, and AxisError, DTypeError, RuleError or ArgumentError on a call, before
    any kernel runs.

    Source: `torch.argmin`.
    """

    operation: ClassVar[ArgOperation] = "argmin"
