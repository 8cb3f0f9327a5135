"""Call specs and kernel interfaces of the pool family."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface

Pair = tuple[int, int]
"""What a window has along height and along width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPool2dCall(CallSpec):
    """Maxima over windows of a plane.

    `kernel_size`, `stride`, `padding` and `dilation` are those of the window, `wide` says that input or output has
    2 ** 31 elements or nearly so, `dtype` is that of both. Extents are not part of it: every kernel takes any.
    """

    kernel_size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    wide: bool
    dtype: torch.dtype


class MaxPool2dFwdInterface(KernelInterface, Protocol):
    """The maximum of each window of each plane."""

    request: ClassVar[type[CallSpec]] = MaxPool2dCall

    @abstractmethod
    def forward(self, planes: Tensor, height: int, width: int) -> Tensor:
        """Return the maxima of windows in a new tensor.

        planes: `[n, c, h, w]`; `call.dtype`; contiguous, at any storage offset; on the call's device; not written.
        height, width: extents of the output; window (i, j) begins at (i * stride - padding, j * stride - padding).
        Returns a new contiguous `[n, c, height, width]` tensor of the same dtype. Places outside the plane count as
        -inf, and so does a window without places in it; a window with NaN gives NaN.
        """
        ...

    def __call__(self, planes: Tensor, height: int, width: int) -> Tensor:
        """Run `forward`."""
        ...


MAX_POOL2D: InterfaceKey[MaxPool2dCall, MaxPool2dFwdInterface] = InterfaceKey(
    "max_pool2d", MaxPool2dFwdInterface, MaxPool2dCall
)
"""The interface through which `MaxPool2dFwdOp` calls its kernel."""
