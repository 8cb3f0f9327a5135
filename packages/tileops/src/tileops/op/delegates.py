"""Sub-ops of composites: held under a stage and an identity, their calls filed under the stage."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
import torch

from tileops.errors import DelegateError
from tileops.op.state import BindingState, RunningState

if TYPE_CHECKING:
    from tileops.manifest.record import SignatureCall
    from tileops.op.base import Op


def hold(op: Op, stage: str, identity: Hashable, given: Op | None, parameters: Mapping[str, object]) -> Op:
    """The sub-op of `op` for `(stage, identity)`: the one held, else `given`, else one built from `parameters`.

    A built sub-op takes the target that `op` was constructed with; a given one keeps its own. Raises DelegateError for
    an undeclared stage, an identity that cannot key, a sub-op that another stage holds, and a given sub-op where
    another one is held.
    """
    name, stages = type(op).__name__, op.delegate_types
    if stage not in stages:
        raise DelegateError(
            f"{name}: stage: expected one of {list(stages)}, received {stage!r}; "
            "declare it in delegate_types, as the manifest's composition does"
        )
    try:
        held = op._running.delegates.get((stage, identity))
    except TypeError:
        raise DelegateError(
            f"{name}: {stage}: expected an identity that can key a table, received {identity!r}; "
            "use numbers, strings, dtypes and tuples"
        ) from None
    if held is None:
        held = _hold_new(op, stage, identity, given, parameters)
    if given is not None and given is not held:
        raise DelegateError(
            f"{name}: {stage}: expected the sub-op already held under {identity!r}, "
            f"received another {type(given).__name__}; pass the same one, or another identity"
        )
    return held


def _hold_new(op: Op, stage: str, identity: Hashable, given: Op | None, parameters: Mapping[str, object]) -> Op:
    if torch.compiler.is_compiling():
        raise DelegateError(
            f"{type(op).__name__}: {stage}: expected a sub-op held before tracing, received a request to build one; "
            "call the op once before compiling it, or hold the sub-op in the constructor"
        )
    running = op._running
    with running.guard:
        held = running.delegates.get((stage, identity))
        if held is None:
            target = op._construction.target
            held = op.delegate_types[stage](**parameters, target=target) if given is None else given
            _check_held(op, stage, held)
            running.delegates[stage, identity] = held
            running.stages[id(held)] = stage
            if running.tuned:
                held.request_tune()
    return held


def hold_copies(op: Op, delegates: Mapping[tuple[str, Hashable], Op]) -> None:
    """Hold the copied sub-ops of the op that `op` is a copy of, under their stages and identities."""
    for (stage, identity), sub_op in delegates.items():
        op._running.delegates[stage, identity] = sub_op
        op._running.stages[id(sub_op)] = stage


def file_stages(op: Op, record: SignatureCall, completed: Sequence[tuple[Op, SignatureCall]]) -> SignatureCall:
    """The record of a composite's call with the calls that its sub-ops completed during it, under their stages.

    Raises DelegateError for a completed call of an op that is not held.
    """
    stages: dict[str, tuple[SignatureCall, ...]] = {}
    for sub_op, call in completed:
        stage = op._running.stages.get(id(sub_op))
        if stage is None:
            raise DelegateError(
                f"{type(op).__name__}: forward: expected calls of held sub-ops alone, "
                f"received one of {type(sub_op).__name__}; get the sub-op from self.delegate_for(stage, identity)"
            )
        stages[stage] = (*stages.get(stage, ()), call)
    return msgspec.structs.replace(record, stages=MappingProxyType(stages))


def reset_delegates(op: Op) -> None:
    """Give every held sub-op the binding that construction gave it, recursively."""
    for sub_op in tuple(op._running.delegates.values()):
        sub_op._binding = BindingState()
        reset_delegates(sub_op)


def drop_built(op: Op, built: tuple[object, ...]) -> None:
    """Forget the entries and target kernels in `built`, of `op` and of every held sub-op."""
    for table in op._construction.tables.values():
        table.discard(built)
    dropped = set(map(id, built))
    kernels = op._binding.target_kernels
    for key in [key for key, kernel in tuple(kernels.items()) if id(kernel) in dropped]:
        kernels.pop(key, None)
    for sub_op in tuple(op._running.delegates.values()):
        drop_built(sub_op, built)


def _check_held(op: Op, stage: str, sub_op: object) -> None:
    """Refuse a sub-op that `op` cannot hold under `stage`."""
    name, running = type(op).__name__, op._running
    if not isinstance(getattr(sub_op, "_running", None), RunningState) or sub_op is op:
        received = "the composite itself" if sub_op is op else type(sub_op).__name__
        raise DelegateError(
            f"{name}: {stage}: expected another op instance, received {received}; "
            "pass an instance of an op class, and call what is not an op directly"
        )
    if (other := running.stages.get(id(sub_op), stage)) != stage:
        raise DelegateError(
            f"{name}: {stage}: expected a sub-op of this stage alone, "
            f"received the one that stage {other!r} holds; pass a second instance"
        )
