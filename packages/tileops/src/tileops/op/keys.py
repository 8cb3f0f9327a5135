"""Instance keys: the string by which an operator finds the op instance that it runs for."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from tileops.errors import InstanceNotFoundError

if TYPE_CHECKING:
    from tileops.op.base import Op

_INSTANCES: dict[str, ref[Op]] = {}
"""The live instances; one that goes takes its key along."""
_COUNTERS: dict[str, itertools.count[int]] = {}
_GUARD = threading.Lock()
_SHOWN = 240
"""So many characters of the parameters stand in a key."""
_ESCAPED = str.maketrans("", "", "'\"\\\n\r")


def register(op: Op, facts: object) -> str:
    """A key for `op` that this process never uses again, the same in every run of the same program.

    `facts` is everything that the fake of the op's operators depends on. Its digest is part of the key, so that a graph
    cached on disk by another program is found only when those facts are equal. The parameters stand in the key too, for
    whoever reads a graph, or loads one where the instance is missing.
    """
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    stem = f"{type(op).__name__}-{digest}"
    with _GUARD:
        number = next(_COUNTERS.setdefault(stem, itertools.count()))
        key = f"{stem}-{number} {_parameters(op)}"
        _INSTANCES[key] = ref(op, partial(_forget, _INSTANCES, key))
    return key


def _forget(instances: dict[str, ref[Op]], key: str, _: object) -> None:
    instances.pop(key, None)


def _parameters(op: Op) -> str:
    """The settled parameters as `(eps=1e-06)`, without the characters that a string literal would have to escape."""
    text = ", ".join(f"{name}={value!r}" for name, value in op._construction.values.parameters.items())
    plain = text.translate(_ESCAPED)
    return f"({plain})" if len(plain) <= _SHOWN else f"({plain[:_SHOWN]}...)"


def instance(key: str) -> Op:
    """The live instance registered under `key`; raises InstanceNotFoundError, naming the op, when it is not there."""
    held = _INSTANCES.get(key)
    op = None if held is None else held()
    if op is None:
        raise _missing(key)
    return op


def _missing(key: str) -> InstanceNotFoundError:
    stem, _, parameters = key.partition(" ")
    name, number = stem.partition("-")[0], stem.rpartition("-")[2]
    return InstanceNotFoundError(
        f"{name}: the compiled or exported graph calls instance {stem}, "
        f"expected it alive in this process, received none; construct {name}{parameters} before running the graph "
        f"and keep it alive, as number {number} (from 0) of those with these parameters that the process "
        "constructs, with this version of tileops; in a fresh process where more have been constructed"
    )


def _after_fork() -> None:
    """Free the locks that threads of the parent held: they do not exist in the child."""
    global _GUARD  # noqa: PLW0603 - a lock of the child's own
    _GUARD = threading.Lock()
    for held in _INSTANCES.copy().values():
        op = held()
        if op is not None and (running := vars(op).get("_running")) is not None:  # else it is being constructed
            running.guard = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
