"""The base of ops that combine the elements of some axes to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.reduction import REDUCE, REDUCE_KERNELS, Operation, ReduceCall, ReduceFwdInterface


class ReduceOp(Op):
    """An op whose manifest entry has the parameters `dim`, `keepdim` and `dtype` and the input `x`.

    A subclass names its `operation`, and writes a constructor only where it has defaults of its own.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = REDUCE_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {REDUCE: ReduceFwdInterface}
    operation: ClassVar[Operation]
    """What two elements become when they are combined."""

    def __init__(
        self,
        dim: int | Sequence[int] | None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
        target: str | None = None,
    ) -> None:
        self.dim = dim
        self.keepdim = keepdim
        self.dtype = dtype
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the reduction of a checked input."""
        result = self.dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
        call = ReduceCall(device=x.device, operation=self.operation, dtype=x.dtype, result=result)
        axes = reduced_axes(self.dim, x.dim())
        y = self.kernel_for(REDUCE, call)(x.contiguous(), axes)
        if not self.keepdim:
            return y
        return y.view([1 if axis in axes else extent for axis, extent in enumerate(x.shape)])

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


def reduced_axes(dim: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The axes that `dim` names, counted from the front, in rising order; None and an empty list are all of them."""
    if dim is None or (not isinstance(dim, int) and not dim):
        return tuple(range(rank))
    given = (dim,) if isinstance(dim, int) else dim
    return tuple(sorted(axis % rank for axis in given)) if rank else ()
