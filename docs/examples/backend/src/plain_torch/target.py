"""The target `plain_torch`: three ops computed as a whole in plain PyTorch, on any device that torch has.

A builder is told the device, dtype and shape of each input, None for an absent one, and the op's parameters. The kernel
that it returns gets contiguous inputs, but for one that the call writes, and allocates what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from tileops.backend import TensorSpec

OneInput: TypeAlias = Callable[[Tensor], Tensor]


def claims(device: torch.device) -> bool:
    """Whether a device has no kernels in tileops itself, and is served by this target unasked."""
    return device.type in {"mps", "xpu", "privateuseone"}


def build_rms_norm(
    x: TensorSpec, _weight: TensorSpec | None, *, normalized_shape: tuple[int, ...], eps: float | None
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """The kernel of RMSNorm for these inputs; what does not change from call to call is settled here."""
    offset = torch.finfo(torch.float32).eps if eps is None else eps
    axes = tuple(range(-len(normalized_shape), 0))
    dtype = x.dtype

    def kernel(x: Tensor, weight: Tensor | None) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(dim=axes, keepdim=True) + offset)
        return (scaled if weight is None else scaled * weight.float()).to(dtype)

    return kernel


def build_softmax(x: TensorSpec, *, dim: int | None, dtype: torch.dtype | None) -> OneInput:
    """The kernel of softmax: elements are converted to the result's dtype first, and rounded once."""
    result = dtype or x.dtype
    axis = dim if dim is not None else 0 if len(x.shape) in {0, 1, 3} else 1
    return lambda x: torch.softmax(x.to(result).float(), axis).to(result)


def build_relu(input: TensorSpec, *, inplace: bool) -> OneInput:  # noqa: A002 - the manifest's name
    """The kernel of ReLU: a new tensor, or the caller's own, written wherever its elements lie."""
    del input
    return torch.relu_ if inplace else torch.relu
