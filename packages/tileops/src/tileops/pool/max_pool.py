"""Max pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType
from tileops_kernels.pool import MAX_POOL2D, MAX_POOL2D_KERNELS, MaxPool2dCall, MaxPool2dFwdInterface

_COUNTED = 2**31 - 2**20
"""Elements that 32 bits count with room to step beyond the last."""


class MaxPool2dFwdOp(Op):
    """`output[n, c, i, j] = max(input[n, c, window(i, j)])`: the maximum of each window of each `[H, W]` plane.

    input: float16, bfloat16 or float32, any layout. Returns a new contiguous `[N, C, H_out, W_out]` tensor of the same
    dtype, with torch's output extents. Padding counts as -inf, and so does a window that holds no element; a window
    with NaN gives NaN.

    kernel_size, stride, padding, dilation: an integer for both axes or (height, width); a stride of None is the
    kernel_size, and padding is at most half the kernel. ceil_mode: whether a last window that is not whole counts, if
    it begins before the right padding.

    Raises ParameterError or ParameterTypeError at construction, and ShapeError, DTypeError, RuleError or
    ArgumentError on a call, before any kernel runs.

    Source: `torch.nn.functional.max_pool2d`.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = MAX_POOL2D_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {MAX_POOL2D: MaxPool2dFwdInterface}

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        ceil_mode: bool = False,
        *,
        target: str | None = None,
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode
        super().__init__(target=target)
        self._kernel_size = _pair(self.kernel_size)
        self._stride = self._kernel_size if self.stride is None else _pair(self.stride)
        self._padding, self._dilation = _pair(self.padding), _pair(self.dilation)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Compute the maxima of a checked input."""
        height, width = (self._extent(input.shape[2 + axis], axis) for axis in (0, 1))
        elements = max(input.numel(), input.shape[0] * input.shape[1] * height * width)
        call = MaxPool2dCall(
            device=input.device,
            kernel_size=self._kernel_size,
            stride=self._stride,
            padding=self._padding,
            dilation=self._dilation,
            wide=elements > _COUNTED,
            dtype=input.dtype,
        )
        return self.kernel_for(MAX_POOL2D, call)(input.contiguous(), height, width)

    def _extent(self, length: int, axis: int) -> int:
        """The output's extent along one axis of a plane: the windows that fit, and under ceil_mode those that begin."""
        reach = self._dilation[axis] * (self._kernel_size[axis] - 1) + 1
        stride, padding = self._stride[axis], self._padding[axis]
        room = length + 2 * padding - reach
        if not self.ceil_mode:
            return room // stride + 1
        return min(-(-room // stride), (length + padding - 1) // stride) + 1

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    """What an argument says for height and for width; a sequence of one says the same for both."""
    if isinstance(value, int):
        return value, value
    return value[0], value[-1]
