"""Kernel types, an interface and a call spec for tests of the kernel layer; nothing here runs a program."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from tileops_kernels.calls import CallSpec
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.interface import InterfaceKey, KernelInterface
from tileops_kernels.kernel import Kernel

CPU = torch.device("cpu")
HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
AMPERE = DeviceFacts(arch=80, sm_count=108, smem_budget=166912)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleCall(CallSpec):
    """Scaling of `n` elements."""

    n: int


class ScaleInterface(KernelInterface, Protocol):
    """Returns a label that says which kernel ran."""

    request: ClassVar[type[CallSpec]] = ScaleCall

    @abstractmethod
    def forward(self, x: int) -> str:
        """Run on `x`."""
        ...

    def __call__(self, x: int) -> str:
        """Run `forward`."""
        ...


SCALE: InterfaceKey[ScaleCall, ScaleInterface] = InterfaceKey("scale", ScaleInterface, ScaleCall)


class GeneralScale(Kernel[ScaleCall], ScaleInterface):
    """Serves everything."""

    devices = frozenset({"cpu", "cuda"})
    general = True

    def forward(self, x: int) -> str:
        return f"general {x}"


class ShortScale(Kernel[ScaleCall], ScaleInterface):
    """Serves short calls."""

    devices = frozenset({"cpu", "cuda"})

    @classmethod
    def refusal(cls, call: ScaleCall) -> str | None:
        if call.n > 64:
            return f"n is {call.n}, it serves at most 64"
        return super().refusal(call)

    def forward(self, x: int) -> str:
        return f"short {x}"


class HopperScale(Kernel[ScaleCall], ScaleInterface):
    """Serves Hopper, in preference to the short one."""

    supported_archs = frozenset({90})
    preferred_over = frozenset({"short"})

    def forward(self, x: int) -> str:
        return f"hopper {x}"


TYPES = {"general": GeneralScale, "short": ShortScale, "hopper": HopperScale}
