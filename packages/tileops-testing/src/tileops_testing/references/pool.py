"""What each op of the pool family means, in plain PyTorch and float64."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional

from tileops_testing.references.reference import Reference

__all__ = ["REFERENCES", "max_pool2d_fwd"]

Axes = int | tuple[int, int]


def max_pool2d_fwd(
    input: Tensor,  # noqa: A002 - torch's name
    *,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    dilation: Axes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return torch's max pooling in float64; torch refuses planes without elements, which give an empty result."""
    arguments = kernel_size, stride, padding, dilation, ceil_mode
    if input.numel() == 0:
        planes = functional.max_pool2d(input.new_zeros((1, 1, *input.shape[2:])).double(), *arguments)
        return planes.new_empty((*input.shape[:2], *planes.shape[2:]))
    return functional.max_pool2d(input.double(), *arguments)


REFERENCES: Mapping[str, Reference] = {
    "MaxPool2dFwdOp": Reference(max_pool2d_fwd),
}
