"""The three groups of an op instance's state, by when they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from tileops.backend.registry import BackendRegistry
from tileops.backend.specs import TargetKernel
from tileops.manifest.record import ConstructionIndices, SignatureCall
from tileops_kernels.table import KernelTable

if TYPE_CHECKING:
    from tileops.op.base import Op


@dataclass(frozen=True, slots=True)
class ConstructionState:
    """Written once, by construction: requested target, backends, checked parameters, kernel tables."""

    target: str | None
    backends: BackendRegistry
    values: ConstructionIndices
    tables: Mapping[str, KernelTable[Any, Any]]


@dataclass(slots=True)
class BindingState:
    """What the first call that runs something selects, and what the target built; undo replaces the whole holder.

    `confirmed` is set when a call completes under the selection: from then on another call's failure leaves it alone.
    """

    target: str | None = None
    target_kernels: dict[Hashable, TargetKernel] = field(default_factory=dict)
    confirmed: bool = False


class SeenCall(NamedTuple):
    """A checked call, kept under its tensors' metadata: its record, and whether the signature alone answers it.

    `observed` are the names and places of the inputs that a record refers to: a call's own, not those of the one kept.
    """

    record: SignatureCall
    answered: bool
    observed: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Repeat:
    """A checked call that no operator was needed for, and what it takes to run calls alike: see `tileops.op.repeats`.

    `alike` tells whether tensors are alike its inputs and `promised` whether they are alike its results; under
    `binding`, `computation` gives them while the class's `forward` is `replaced`, else `forward` does.
    `differentiable` says that an input requires a gradient where gradients are enabled.
    """

    alike: Callable[..., bool]
    promised: Callable[..., bool]
    computation: Callable[..., Any] | None
    replaced: Callable[..., Any] | None
    seen: SeenCall
    binding: BindingState
    differentiable: bool


@dataclass(slots=True)
class RunningState:
    """What accumulates whatever target serves.

    `delegates` holds the sub-ops of a composite by stage and identity, `stages` the stage of each by the sub-op's `id`.
    `placed` holds copies of construction-time tensors on the devices of calls. `unlike` counts calls alike no repeat.
    """

    last_call: SignatureCall | None = None
    seen: dict[Hashable, SeenCall] = field(default_factory=dict)
    repeats: tuple[Repeat, ...] = ()
    unlike: int = 0
    delegates: dict[tuple[str, Hashable], Op] = field(default_factory=dict)
    stages: dict[int, str] = field(default_factory=dict)
    placed: dict[tuple[str, torch.device], Tensor] = field(default_factory=dict)
    tuned: bool = False
    warned: bool = False
    guard: AbstractContextManager[object] = field(default_factory=threading.RLock)
