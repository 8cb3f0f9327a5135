"""`LabTensor`: a tensor of the device type `privateuseone`, whose elements lie on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from tileops.op.call import run_call
from tileops.op.keys import instance

DEVICE = "privateuseone"


class LabTensor(Tensor):
    """A tensor that says that it lies on the laboratory's device, and holds its elements on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls: type[Self], held: Tensor, index: int = 0) -> Self:
        """The tensor whose elements `held` has, on the card `index`."""
        device = torch.device(DEVICE, index)
        made: Self = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=device
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the stub leaves out what torch passes
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the body of an operator of tileops; compute any other on the elements, for the first tensor's card."""
        given = dict(kwargs or {})
        if func.namespace == "tileops":
            return run_call(instance(args[-1]), args[:-1])
        index = next(leaf.get_device() for leaf in tree_leaves((args, given)) if isinstance(leaf, LabTensor))
        args, given = tree_map(lambda leaf: leaf.held if isinstance(leaf, LabTensor) else leaf, (args, given))
        result = func(*args, **given)
        return tree_map(lambda leaf: LabTensor(leaf, index) if isinstance(leaf, Tensor) else leaf, result)
