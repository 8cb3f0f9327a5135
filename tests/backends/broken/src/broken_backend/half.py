"""Registers half of what it has, and then raises."""

from __future__ import annotations

from tileops.backend import BackendRegistry


def register(registry: BackendRegistry) -> None:
    """Claim the CPU, and fail."""
    registry.register_detector("raises_in_register", lambda device: device.type == "cpu")
    registry.register_kernel_builder("RMSNormFwdOop", "raises_in_register", lambda *specs, **parameters: print)
