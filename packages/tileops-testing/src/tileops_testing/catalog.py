"""The ops that stand implemented, found through the manifest registry."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence

from tileops.manifest import registry
from tileops.op.base import Op
from tileops_testing.errors import SelectionError

__all__ = ["family_of", "implemented_ops", "op_class"]


def op_class(name: str) -> type[Op]:
    """Return the op class of a manifest entry, ``tileops.<family>.<name>``."""
    module = importlib.import_module(f"tileops.{family_of(name)}")
    found: type[Op] = getattr(module, name)
    return found


def family_of(name: str) -> str:
    """Return the family of an op.

    Raises:
        SelectionError: The manifest has no such op.
    """
    entry = registry.find(name)
    if entry is None:
        raise SelectionError(_unknown("op", name, registry.names()))
    return entry.family


def implemented_ops(ops: Sequence[str] = (), families: Sequence[str] = ()) -> tuple[type[Op], ...]:
    """Return the op classes of every implemented entry, or of those named and those of the named families.

    Raises:
        SelectionError: A name is not in the manifest, or what it names is not implemented.
    """
    for family in families:
        if family not in registry.families():
            raise SelectionError(_unknown("family", family, registry.families()))
        if not _has_implemented(family):
            have = [known for known in registry.families() if _has_implemented(known)]
            raise SelectionError(
                f"family: expected one with an implemented op, received {family}, which has none; "
                f"choose among {', '.join(have)}"
            )
    chosen = []
    for name in ops or ():
        family_of(name)
        if not _implemented(name):
            raise SelectionError(
                f"op: expected an implemented one, received {name}, which the manifest only specifies; choose another"
            )
    for name in registry.names():
        wanted = not (ops or families) or name in ops or family_of(name) in families
        if wanted and _implemented(name):
            chosen.append(op_class(name))
    return tuple(chosen)


def _implemented(name: str) -> bool:
    entry = registry.find(name)
    return entry is not None and entry.status == "implemented"


def _has_implemented(family: str) -> bool:
    return any(entry.status == "implemented" for entry in registry.default().family(family))


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"the manifest has {', '.join(known)}"
    return f"{what}: expected one of the manifest, received {name}; {hint}"
