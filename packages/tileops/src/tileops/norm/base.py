"""The bases of norms over the trailing axes of their input, and over its last axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.norm import LayerNormCall


def other_dtype(weight: Tensor | None, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype of a weight where it is not that of the activations, else None."""
    if weight is None or weight.dtype is dtype:
        return None
    return weight.dtype


def write_back(*moved: tuple[Tensor | None, Tensor | None]) -> None:
    """Copy to each tensor what was written to its contiguous form, where that is another tensor."""
    for given, contiguous in moved:
        if given is not None and contiguous is not None and contiguous is not given:
            given.copy_(contiguous)


class _RowsOp(Op):
    """A norm of rows: it states its call by a call spec, the same object as long as calls are alike."""

    def __init__(self, *, target: str | None) -> None:
        self._stated: list[LayerNormCall] = []
        super().__init__(target=target)

    def _state(self, x: Tensor, n: int, eps: float, weight: Tensor | None) -> LayerNormCall:
        """The call spec of x's rows; making one and comparing it takes several times as long as reading the last."""
        dtype, device = x.dtype, x.device
        weight_dtype = None if weight is None or weight.dtype is dtype else weight.dtype
        for last in self._stated:
            if last.n == n and last.dtype is dtype and last.weight_dtype is weight_dtype and last.device == device:
                return last
        call = LayerNormCall(device=device, n=n, eps=eps, dtype=dtype, weight_dtype=weight_dtype)
        self._stated[:] = [call]
        return call


class RowNormOp(_RowsOp):
    """A norm over the trailing `normalized_shape` axes; `eps` of None means float32's machine epsilon."""

    def __init__(self, normalized_shape: Sequence[int], eps: float | None, *, target: str | None = None) -> None:
        self.normalized_shape = normalized_shape
        self.eps = eps
        super().__init__(target=target)
        self._n = math.prod(self.normalized_shape)
        self._eps = torch.finfo(torch.float32).eps if eps is None else float(eps)

    def row_call(self, x: Tensor, weight: Tensor | None) -> LayerNormCall:
        """What a norm of x's rows asks of its kernel; `weight` is any of the tensors that scale and shift them."""
        return self._state(x, self._n, self._eps, weight)


class LastAxisNormOp(_RowsOp):
    """A norm over the last axis, whatever its length."""

    def __init__(self, eps: float, *, target: str | None = None) -> None:
        self.eps = eps
        super().__init__(target=target)
        self._eps = float(self.eps)

    def row_call(self, x: Tensor, weight: Tensor | None = None) -> LayerNormCall:
        """What a norm of x's rows asks of its kernel; `weight` is any of the tensors that scale and shift them."""
        return self._state(x, x.shape[-1], self._eps, weight)
