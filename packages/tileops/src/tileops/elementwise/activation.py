"""Activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.elementwise.memory import flat_view
from tileops.op.base import Op
from tileops_kernels.elementwise import RELU, RELU_KERNELS, ActivationCall, ReluFwdInterface
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType


class ReluFwdOp(Op):
    """`output = max(input, 0)`, element by element; NaN stays NaN.

    input: any shape and layout, float16, bfloat16 or float32. Returns a new contiguous tensor of input's shape and
    dtype; with `inplace`, input itself, whose elements are replaced where they lie.

    inplace: write input in place of a new tensor. An input of which several elements share memory is refused then.

    Raises ParameterTypeError at construction, and DTypeError, LayoutError or ArgumentError on a call, before any kernel
    runs.

    Source: `torch.nn.functional.relu`.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = RELU_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {RELU: ReluFwdInterface}

    def __init__(self, *, inplace: bool = False, target: str | None = None) -> None:
        self.inplace = inplace
        super().__init__(target=target)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name for it
        """Compute the activation of a checked input."""
        kernel = self.kernel_for(RELU, ActivationCall(device=input.device, dtype=input.dtype))
        if not self.inplace:
            return kernel(input.contiguous(), None)
        flat = flat_view(input)
        if flat is not None:
            kernel(flat, flat)
        else:
            dense = input.contiguous()
            input.copy_(kernel(dense, dense))
        return input

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
