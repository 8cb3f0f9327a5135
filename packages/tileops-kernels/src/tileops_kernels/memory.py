"""Where tensors lie: addresses for CPU programs, copies that begin where CUDA programs read, and shared memory."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tileops_kernels.errors import StorageError
from tileops_kernels.kernel import Kernel

ACCESS_BYTES = 16
"""What one thread of a CUDA program moves in one access; addresses must be multiples of it."""


def addresses(kernel: Kernel[Any], **tensors: Tensor) -> list[int]:
    """Where the elements of `tensors` lie, for a CPU program of `kernel`; each of them has elements.

    Raises StorageError for a tensor whose memory was freed.
    """
    found = [tensor.data_ptr() for tensor in tensors.values()]
    for name, address in zip(tensors, found, strict=True):
        if not address:
            raise StorageError(
                f"{type(kernel).__name__} for {kernel.call}: {name} has elements and no storage; expected memory that "
                "holds them, received address 0; restore its storage before the call"
            )
    return found


def aligned(tensor: Tensor) -> Tensor:
    """`tensor`, or a copy of it where its first element is not at a multiple of ACCESS_BYTES."""
    return tensor if tensor.data_ptr() % ACCESS_BYTES == 0 else tensor.clone()


def aligned_matrix(tensor: Tensor, rows: int, columns: int) -> Tensor:
    """A contiguous tensor as `rows` rows of `columns` elements, aligned, with the strides of such a matrix."""
    if tensor.data_ptr() % ACCESS_BYTES:
        tensor = tensor.clone()
    if tensor.shape == (rows, columns) and tensor.stride() == (columns, 1):
        return tensor
    return tensor.as_strided((rows, columns), (columns, 1))


def in_shape(tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """A contiguous tensor in another shape with as many elements, or itself: making a view takes longer than asking.

    Where an extent is 1, any stride is contiguous, and programs ask for that of `strides`.
    """
    if tensor.shape == shape and tensor.stride() == strides:
        return tensor
    return tensor.as_strided(shape, strides)


def share_memory(first: Tensor, second: Tensor) -> bool:
    """Whether the span from first to last element of one tensor meets that of another; no tensor without memory does.

    Of contiguous tensors: whether an element of one lies where one of the other does.
    """
    if not first.numel() or not second.numel():
        return False
    start, other = first.data_ptr(), second.data_ptr()
    return bool(start and other) and start < other + _span(second) and other < start + _span(first)


def _span(tensor: Tensor) -> int:
    """Bytes from the first element to the end of the last one."""
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
