"""Buffers that a caller passes: they share no memory with what a kernel reads while it writes."""

from __future__ import annotations

from torch import Tensor

from tileops.errors import LayoutError
from tileops_kernels.memory import share_memory


def refuse_shared(op: str, out: Tensor, **inputs: Tensor) -> None:
    """Raise LayoutError where `out` shares memory with an input, which a kernel reads while it writes."""
    for name, tensor in inputs.items():
        if share_memory(out, tensor):
            raise LayoutError(f"{op}: out: expected memory of its own, received some of {name}; pass another buffer")
