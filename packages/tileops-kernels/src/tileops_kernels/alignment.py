"""The widest access of a CUDA thread, and tensors that begin where one may."""

from __future__ import annotations

from torch import Tensor

ACCESS_BYTES = 16
"""What one thread moves in one access; addresses must be multiples of it."""


def aligned(tensor: Tensor) -> Tensor:
    """`tensor`, or a copy of it where its first element is not at a multiple of 16 bytes.

    The bits of a result do not depend on an input's address then, as they would with narrower accesses, which combine
    elements in another order.
    """
    return tensor if tensor.data_ptr() % ACCESS_BYTES == 0 else tensor.clone()
