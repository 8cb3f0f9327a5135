"""Scans: what the elements of an axis up to each of them add up or multiply to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.reduction import SCAN, SCAN_KERNELS, ScanCall, ScanFwdInterface, ScanOperation


class ScanOp(Op):
    """An op that combines the elements of an axis up to each of them; a subclass says how."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = SCAN_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {SCAN: ScanFwdInterface}
    operation: ClassVar[ScanOperation]

    def __init__(self, dim: int = -1, *, target: str | None = None) -> None:
        self.dim = dim
        self._stated: list[ScanCall] = []
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the scan of a checked input."""
        return self.computation(x)(x.contiguous())

    def computation(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """The kernel of calls like this one, for their axis."""
        return partial(self.kernel_for(SCAN, self._state(x.dtype, x.device)), axis=self.dim % x.dim())

    def _state(self, dtype: torch.dtype, device: torch.device) -> ScanCall:
        """What a scan asks of its kernel: the last call spec, where calls are alike."""
        for last in self._stated:
            if last.dtype is dtype and last.device == device:
                return last
        result = dtype if dtype.is_floating_point else torch.int64
        call = ScanCall(device=device, operation=self.operation, dtype=dtype, result=result)
        self._stated[:] = [call]
        return call

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


class CumsumFwdOp(ScanOp):
    """`y[i] = sum(x[j] for j <= i)`: the sums of the elements of one axis up to each of them.

    x: any shape of at least one axis, any layout; float16, bfloat16, float32, bool or an integer dtype. Returns a new
    contiguous tensor of x's shape, in x's dtype, or int64 where x is not floating-point. Elements are summed in float32
    (int64 for integers, which wrap), and each sum is rounded once.

    dim: the axis, counted from the front or the back.

    Raises ParameterTypeError at construction, and AxisError, DTypeError, RuleError or ArgumentError on a call, before
    any kernel runs.

    Source: `torch.cumsum`.
    """

    operation: ClassVar[ScanOperation] = "sum"


class CumprodFwdOp(ScanOp):
    """`y[i] = prod(x[j] for j <= i)`: the products of the elements of one axis up to each of them.

    x: any shape of at least one axis, any layout; float16, bfloat16, float32, bool or an integer dtype. Returns a new
    contiguous tensor of x's shape, in x's dtype, or int64 where x is not floating-point. Elements are multiplied in
    float32 (int64 for integers, which wrap), and each product is rounded once. Neighbours are multiplied with one
    another before they meet what stands before them, so that a zero before neighbours whose product overflows gives
    NaN.

    dim: the axis, counted from the front or the back.

    Raises ParameterTypeError at construction, and AxisError, DTypeError, RuleError or ArgumentError on a call, before
    any kernel runs.

    Source: `torch.cumprod`.
    """

    operation: ClassVar[ScanOperation] = "prod"
