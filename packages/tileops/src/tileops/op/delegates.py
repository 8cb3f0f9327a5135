"""Sub-ops of composites: held under a stage and an identity, their calls filed under the stage."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tileops.errors import DelegateError
from tileops.op.state import BindingState

if TYPE_CHECKING:
    from tileops.manifest.record import SignatureCall
    from tileops.op.base import Op


def hold(op: Op, stage: str, identity: Hashable, given: Op | None, parameters: Mapping[str, object]) -> Op:
    """The sub-op of `op` for `(stage, identity)`: the one held, else `given`, else one built from `parameters`.

    A built sub-op takes the target that `op` was constructed with; a given one keeps its own. Raises DelegateError for
    an undeclared stage and for a sub-op that another stage holds.
    """
    name, stages = type(op).__name__, op.delegate_types
    if stage not in stages:
        raise DelegateError(
            f"{name}: stage: expected one of {list(stages)}, received {stage!r}; declare it in delegate_types, as the "
            "manifest's composition does"
        )
    running = op._running
    with running.guard:
        held = running.delegates.get((stage, identity))
        if held is None:
            built = stages[stage](**parameters, target=op._construction.target) if given is None else given
            if (other := running.stages.get(id(built), stage)) != stage:
                raise DelegateError(
                    f"{name}: {stage}: expected a sub-op of this stage alone, received the one that stage {other!r} "
                    "holds; pass a second instance"
                )
            held = running.delegates[stage, identity] = built
            running.stages[id(built)] = stage
            if running.tuned:
                held.request_tune()
    return held


def file_stages(op: Op, record: SignatureCall, completed: Sequence[tuple[Op, SignatureCall]]) -> SignatureCall:
    """The record of a composite's call with the calls that its sub-ops completed during it, under their stages.

    Raises DelegateError for a completed call of an op that is not held.
    """
    stages: dict[str, tuple[SignatureCall, ...]] = {}
    for sub_op, call in completed:
        stage = op._running.stages.get(id(sub_op))
        if stage is None:
            raise DelegateError(
                f"{type(op).__name__}: forward: expected calls of held sub-ops alone, received one of "
                f"{type(sub_op).__name__}; "
                "get the sub-op from self.delegate_for(stage, identity)"
            )
        stages[stage] = (*stages.get(stage, ()), call)
    return msgspec.structs.replace(record, stages=stages)


def reset_delegates(op: Op, built: tuple[object, ...]) -> None:
    """Undo the selection of every held sub-op, recursively, and drop from it the entries in `built`."""
    for sub_op in op._running.delegates.values():
        sub_op._binding = BindingState()
        for table in sub_op._construction.tables.values():
            table.discard(built)
        reset_delegates(sub_op, built)
