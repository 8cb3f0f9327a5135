"""Peers: what each op is measured against, a module per family."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tileops_testing.cases import Case, Inputs
from tileops_testing.subject import SubjectOp

__all__ = ["LIGER_ROW", "NO_PEERS", "Peers", "liger_function", "no_parts", "peers_for"]


def no_parts(op: SubjectOp, inputs: Inputs) -> Mapping[str, Callable[[], object]]:
    """Return no parts."""
    del op, inputs
    return {}


LIGER_ROW = 65536
"""The longest row that Liger's kernels launch on."""


@dataclass(frozen=True, slots=True)
class Peers:
    """What an op is measured against.

    Attributes:
        implementations: For a case and a device, each peer by name; they take the case's inputs.
        parts: For a warm op and inputs, the pieces of its host overhead that can be called alone.
    """

    implementations: Callable[[Case, torch.device], Mapping[str, Callable[..., object]]]
    parts: Callable[[SubjectOp, Inputs], Mapping[str, Callable[[], object]]] = no_parts

    def available(self, case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
        """Return the peers that run here: those of libraries that are installed, and inductor where it can compile.

        On CUDA inductor compiles through Triton, which torch does not always bring.
        """
        found = self.implementations(case, device)
        if device.type != "cuda" or importlib.util.find_spec("triton") is not None:
            return found
        return {name: implementation for name, implementation in found.items() if name != "inductor"}


NO_PEERS = Peers(lambda *_: {})
"""The peers of an op that has none."""


def peers_for(op: str, family: str) -> Peers | None:
    """Return the peers of one op, None when it has none."""
    name = f"{__name__}.{family}"
    if importlib.util.find_spec(name) is None:
        return None
    peers: Mapping[str, Peers] = importlib.import_module(name).PEERS
    return peers.get(op)


def liger_function(name: str, function: str, device: torch.device) -> Any:
    """Return Liger's autograd function, None where Liger is not installed, does not have it or cannot run."""
    module = f"liger_kernel.ops.{name}"
    if device.type != "cuda" or importlib.util.find_spec("liger_kernel") is None:
        return None
    return None if importlib.util.find_spec(module) is None else getattr(importlib.import_module(module), function)
