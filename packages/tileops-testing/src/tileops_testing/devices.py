"""Devices to run on: the one that an option names, and what is wrong with a name."""

from __future__ import annotations

import torch

from tileops_testing.errors import SelectionError

__all__ = ["named_device"]


def named_device(option: str, name: str | None) -> torch.device:
    """Return the device that `option` names; where it names none, CUDA's current one if there is any, else the CPU.

    Raises:
        SelectionError: torch knows no such device, has none of that kind here, or its tensors hold no values.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SelectionError(
            f"{option}: expected a device as torch names them, received {name}; write one such as cpu or cuda:1"
        ) from None
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        have = "cpu" if count == 0 else "cuda:0" if count == 1 else f"one of cuda:0 to cuda:{count - 1}"
        raise SelectionError(
            f"{option}: expected a CUDA device of this machine, on which torch finds {count}, received {name}; "
            f"write {have}"
        )
    if device.type == "meta":
        raise SelectionError(
            f"{option}: expected a device whose tensors hold values, received {name}; write one such as cpu or cuda:1"
        )
    return device
