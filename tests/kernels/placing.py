"""Tensors that begin where programs would rather not have them."""

from __future__ import annotations

from torch import Tensor


def misplaced(tensor: Tensor) -> Tensor:
    """A contiguous copy that begins between accesses."""
    flat = tensor.new_empty(tensor.numel() + 8)
    start = next(place for place in range(8) if flat[place:].data_ptr() % 16)
    return flat[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)
