"""Function transforms of torch around a call, such as `torch.vmap`: whether one is, and memory for what it gives."""

from __future__ import annotations

import torch
from torch import Tensor


def is_transformed(*tensors: Tensor) -> bool:
    """Whether a function transform stands around an eager call on `tensors`.

    Such a tensor stands for others, has no memory of its own to look at, and is written by torch's operators alone.
    """
    if torch.compiler.is_compiling():
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001 - torch has no public name for it
    return any(wrapped(tensor) for tensor in tensors)


def zeros_for(like: Tensor, *others: Tensor) -> Tensor:
    """Zeros of the shape and dtype of `like` that can hold what depends on `others` too, under a transform of any."""
    zeros = torch.zeros_like(like, memory_format=torch.contiguous_format)
    for other in others:
        zeros = zeros + torch.zeros_like(other).flatten()[:0].sum().to(like.dtype)
    return zeros
