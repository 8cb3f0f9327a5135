"""The least work of a recorded call: arithmetic, and bytes moved."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from tileops.errors import ExpressionError
from tileops.manifest.branches import prune
from tileops.manifest.expressions import Call, Expression, Literal, Name
from tileops.manifest.source import evaluate, run
from tileops.manifest.trees import rewrite

if TYPE_CHECKING:
    from tileops.manifest.model import Formula, Roofline
    from tileops.manifest.record import SignatureCall


def flops(call: SignatureCall) -> int:
    """Return the least arithmetic of a call, in operations.

    Raises:
        ExpressionError: the entry states none, or it has no value for this call.
    """
    roofline = _roofline(call)
    if roofline.func is not None:
        return as_count(_costs(roofline.func, call)[0], call.branch.entry.name, roofline.func)
    if roofline.flops is None:
        raise ExpressionError(f"{call.branch.entry.name}: the manifest states no flops")
    return _evaluated(roofline.flops, call)


def bytes_moved(call: SignatureCall) -> int:
    """Return the least bytes that a call reads and writes; by default each tensor once."""
    roofline = call.branch.entry.roofline
    if roofline is not None and roofline.func is not None:
        return as_count(_costs(roofline.func, call)[1], call.branch.entry.name, roofline.func)
    if roofline is not None and roofline.bytes is not None:
        return _evaluated(roofline.bytes, call)
    return sum(found.reads + found.writes for found in call.traffic.values())


def _roofline(call: SignatureCall) -> Roofline:
    roofline = call.branch.entry.roofline
    if roofline is None:
        raise ExpressionError(f"{call.branch.entry.name}: the manifest states no roofline")
    return roofline


def _evaluated(formula: Formula, call: SignatureCall) -> int:
    values = {**call.parameters, **call.indices}
    branch = call.branch.branch
    found = evaluate(_sized(prune(formula.tree, branch), call), values, branch.present)
    return as_count(found, call.branch.entry.name, formula.text)


def _sized(tree: Expression, call: SignatureCall) -> Expression:
    """Return the tree with bytes(tensor) replaced by the size of that tensor, 0 for one that is not there."""
    facts = call.tensors

    def substitute(part: Expression) -> Expression | None:
        match part:
            case Call("bytes", (Name(name),)):
                return Literal(facts[name].nbytes if name in facts else 0)
        return None

    return rewrite(tree, substitute)


def _costs(name: str, call: SignatureCall) -> tuple[object, object]:
    function = cost_function(name)
    found = run(lambda: function(call))
    if not isinstance(found, tuple) or len(found) != 2:
        raise ExpressionError(f"{name} gives {found!r}, not operations and bytes")
    return found[0], found[1]


@functools.cache
def cost_function(name: str) -> Callable[[SignatureCall], tuple[object, object]]:
    """Return the function of a dotted name, which gives operations and bytes of a call.

    Raises:
        ExpressionError: it cannot be imported, or is no function.
    """
    module, _, attribute = name.rpartition(".")
    try:
        found: object = getattr(importlib.import_module(module), attribute, None)
    except (ImportError, ValueError, RuntimeError) as error:
        raise ExpressionError(f"{name} cannot be imported: {error}") from error
    if not callable(found):
        raise ExpressionError(f"{name} is no function")
    return cast("Callable[[SignatureCall], tuple[object, object]]", found)


def as_count(value: object, op: str, declared: str) -> int:
    """Return a cost that is a count. Raises ExpressionError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ExpressionError(f"{op}: {declared} gives {value!r}, not a count")
    return value
