"""The base of ops that combine the elements of some axes to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.reduction import (
    REDUCE,
    REDUCE_KERNELS,
    Contribution,
    Operation,
    Outcome,
    ReduceCall,
    ReduceFwdInterface,
)


@dataclass(frozen=True, slots=True)
class Reduction:
    """What two elements become, what each contributes, and what becomes of the whole."""

    operation: Operation
    of: Contribution = "value"
    gives: Outcome = "total"


class ReduceOp(Op):
    """An op whose manifest entry has the parameters `dim`, `keepdim` and perhaps `dtype`, and the input `x`.

    A subclass says what it computes, and writes a constructor where its parameters are others.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = REDUCE_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {REDUCE: ReduceFwdInterface}
    reduction: ClassVar[Reduction]
    """What is computed, where it does not depend on a parameter."""
    empty_list_reduces: ClassVar[bool] = True
    """Whether an empty list of axes means all of them, as in most of torch's reductions, or none."""

    def __init__(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
        target: str | None = None,
    ) -> None:
        self.dim = dim
        self.keepdim = keepdim
        self.dtype = dtype
        self._stated: list[tuple[ReduceCall, int, tuple[int, ...]]] = []
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the reduction of a checked input."""
        return self.computation(x)(x.contiguous())

    def computation(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """The kernel of calls like this one, for their axes."""
        call, axes = self._state(x.dtype, x.device, x.dim())
        kernel = partial(self.kernel_for(REDUCE, call), axes=axes)
        return partial(keeping_axes, kernel, axes) if self.keepdim else kernel

    def _state(self, dtype: torch.dtype, device: torch.device, rank: int) -> tuple[ReduceCall, tuple[int, ...]]:
        """The call spec and the axes of a call: those of the last one, the same objects, where they are alike."""
        for last, last_rank, axes in self._stated:
            if last.dtype is dtype and last_rank == rank and last.device == device:
                return last, axes
        asked, result = self.asked(), self.result_dtype(dtype)
        call = ReduceCall(
            device=device, operation=asked.operation, of=asked.of, gives=asked.gives, dtype=dtype, result=result
        )
        axes = reduced_axes(self.dim, rank, empty_is_all=self.empty_list_reduces)
        self._stated[:] = [(call, rank, axes)]
        return call, axes

    def asked(self) -> Reduction:
        """What is computed."""
        return self.reduction

    def result_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the result for elements of `dtype`: the one asked for, else a sum's."""
        return self.dtype or (dtype if dtype.is_floating_point else torch.int64)

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


def reduced_axes(dim: int | Sequence[int] | None, rank: int, *, empty_is_all: bool = True) -> tuple[int, ...]:
    """The axes that `dim` names, counted from the front, in rising order; None is all of them."""
    if dim is None or (empty_is_all and not isinstance(dim, int) and not dim):
        return tuple(range(rank))
    given = (dim,) if isinstance(dim, int) else dim
    return tuple(sorted(axis % rank for axis in given)) if rank else ()


def keeping_axes(reduce: Callable[[Tensor], Tensor], axes: Sequence[int], x: Tensor) -> Tensor:
    """What `reduce` gives of x, with each of the reduced `axes` kept with length one."""
    return keep_axes(reduce(x), x, axes)


def keep_axes(y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """y, the reduction of `axes` of x, with each of them kept with length one."""
    return y.view([1 if axis in axes else extent for axis, extent in enumerate(x.shape)])
