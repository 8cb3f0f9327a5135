"""Where a call runs when its tensors do not say, and how a written tensor must lie in memory."""

from __future__ import annotations

import torch

from tileops.manifest.record import ConstructionIndices


def call_device(construction: ConstructionIndices) -> torch.device | None:
    """Return the device that construction settled, else the accelerator's current one, else None."""
    device = construction.device
    if device is None:
        return torch.accelerator.current_accelerator() and _current()
    if device.index is None and device.type not in {"cpu", "meta"}:
        current = _current()
        return current if current is not None and current.type == device.type else device
    return device


def _current() -> torch.device | None:
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or not torch.accelerator.is_available():
        return None
    return torch.device(accelerator.type, torch.accelerator.current_device_index())


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether several elements of a tensor certainly share memory, as those of an expanded one do."""
    return any(extent > 1 and stride == 0 for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
