"""Buffers of the caller's that an op writes, which share no memory with what it reads."""

from __future__ import annotations

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from tileops.errors import LayoutError
from tileops.moe.transforms import is_transformed
from tileops.op.base import Op
from tileops_kernels.memory import share_memory


def refuse_shared(op: Op, argument: str, buffer: Tensor, **inputs: Tensor) -> None:
    """Raise LayoutError where `buffer`, passed as `argument`, shares memory with an input of `op`."""
    if isinstance(buffer, FakeTensor) or is_transformed(buffer, *inputs.values()):  # they lie nowhere
        return
    for name, tensor in inputs.items():
        if share_memory(buffer, tensor):
            raise LayoutError(
                f"{type(op).__name__}: {argument}: expected memory of its own, received some of {name}; pass another "
                "buffer"
            )
