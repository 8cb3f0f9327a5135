"""The parameters of an op instance as a call on some device needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tileops.errors import ArgumentError

if TYPE_CHECKING:
    from tileops.op.base import Op


def parameter_on(op: Op, name: str, device: torch.device | None) -> Any:
    """The manifest parameter `name` of `op`; a construction-time tensor is moved to `device`, once per device.

    Raises ArgumentError for a name that is no manifest parameter.
    """
    declared = next((item for item in op._plan.parameters if item.name == name), None)
    if declared is None:
        known = [item.name for item in op._plan.parameters]
        raise ArgumentError(
            f"{type(op).__name__}: parameter_on: expected one of {known}, received {name!r}; name a manifest parameter"
        )
    value = getattr(op, name)
    if declared.tensor is None:
        return op._construction.values.parameters[name]
    if not isinstance(value, Tensor) or device is None or declared.tensor.device == "cpu" or value.device == device:
        return value
    return _moved(op, name, value, device)


def _moved(op: Op, name: str, value: Tensor, device: torch.device) -> Tensor:
    placed = op._running.placed
    with op._running.guard:
        if (name, device) not in placed:
            placed[name, device] = value.to(device)
        return placed[name, device]
