"""Tuning an op: asked of the kernels that serve it, and of its sub-ops."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from tileops.backend.registry import BUILTIN
from tileops.errors import TuningWarning
from tileops.op.target_call import serves_elsewhere

if TYPE_CHECKING:
    from tileops.op.base import Op


def request_tune(op: Op) -> None:
    """Tune what `op` and its sub-ops have built, and what they will build; warn once when a target serves instead."""
    op._running.tuned = True
    if serves_elsewhere(op):
        warn_untuned(op, str(op._binding.target))
        return
    for table in op._construction.tables.values():
        table.request_tune()
    for sub_op in tuple(op._running.delegates.values()):
        request_tune(sub_op)


def warn_untuned(op: Op, target: str) -> None:
    """Say, once per instance, that a target's kernels are not tuned from here."""
    if not op._running.warned:
        op._running.warned = True
        warnings.warn(
            f"{type(op).__name__}: request_tune: target {target!r} serves this instance and decides its own launch "
            f"settings: nothing is tuned; construct the op with target={BUILTIN!r} to tune the in-tree kernels",
            TuningWarning,
            stacklevel=3,
        )
