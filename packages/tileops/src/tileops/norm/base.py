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


class RowNormOp(Op):
    """A norm over the trailing `normalized_shape` axes; `eps` of None means float32's machine epsilon."""

    def __init__(self, normalized_shape: Sequence[int], eps: float | None, *, target: str | None = None) -> None:
        self.normalized_shape = normalized_shape
        self.eps = eps
        super().__init__(target=target)
        self._n = math.prod(self.normalized_shape)
        self._eps = torch.finfo(torch.float32).eps if eps is None else float(eps)

    def row_call(self, x: Tensor, weight: Tensor | None) -> LayerNormCall:
        """What a norm of x's rows asks of its kernel; `weight` is any of the tensors that scale and shift them."""
        dtype = x.dtype
        return LayerNormCall(
            device=x.device, n=self._n, eps=self._eps, dtype=dtype, weight_dtype=other_dtype(weight, dtype)
        )


class LastAxisNormOp(Op):
    """A norm over the last axis, whatever its length."""

    def __init__(self, eps: float, *, target: str | None = None) -> None:
        self.eps = eps
        super().__init__(target=target)

    def row_call(self, x: Tensor, weight: Tensor | None = None) -> LayerNormCall:
        """What a norm of x's rows asks of its kernel; `weight` is any of the tensors that scale and shift them."""
        dtype = x.dtype
        return LayerNormCall(
            device=x.device, n=x.shape[-1], eps=float(self.eps), dtype=dtype, weight_dtype=other_dtype(weight, dtype)
        )
