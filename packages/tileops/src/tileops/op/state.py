"""The three groups of an op instance's state, by when they change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tileops.manifest.record import ConstructionIndices, SignatureCall
from tileops_kernels.table import KernelTable


@dataclass(frozen=True, slots=True)
class ConstructionState:
    """Written once, by construction: the requested target, the checked parameters, the key and the kernel tables."""

    target: str | None
    values: ConstructionIndices
    instance_key: str
    tables: Mapping[str, KernelTable[Any, Any]]


@dataclass(slots=True)
class BindingState:
    """What the first call that runs something selects; undo replaces the whole holder.

    `confirmed` is set when a call completes under the selection: from then on another call's failure leaves it alone.
    """

    target: str | None = None
    confirmed: bool = False


class SeenCall(NamedTuple):
    """A checked call, kept under its tensors' metadata: its record, and whether every write holds no elements."""

    record: SignatureCall
    writes_nothing: bool


@dataclass(slots=True)
class RunningState:
    """What accumulates whatever target serves: the last completed call, and the calls checked before."""

    last_call: SignatureCall | None = None
    seen: dict[Hashable, SeenCall] = field(default_factory=dict)
