"""How the elements of a tensor lie in memory."""

from __future__ import annotations

from torch import Tensor


def flat_view(tensor: Tensor) -> Tensor | None:
    """The elements of `tensor` in the order of their addresses, as one axis; None where they do not lie side by side.

    A contiguous tensor has such a view, and so has one whose axes were exchanged.
    """
    elements = tensor.numel()
    if not tensor.is_contiguous():
        stride = 1
        for step, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
            if extent != 1 and step != stride:
                return None
            stride *= extent
    return tensor.as_strided((elements,), (1,))
