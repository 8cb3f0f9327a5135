"""The names that the expressions of a signature may read, each with its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tileops.errors import ExpressionError
from tileops.manifest.checking import infer
from tileops.manifest.expressions import Attribute, Call, Name
from tileops.manifest.facts import Facts, Scope
from tileops.manifest.trees import free_names

if TYPE_CHECKING:
    from tileops.manifest.branches import Branch
    from tileops.manifest.kinds import Kind
    from tileops.manifest.model import Signature


def plain_scope(signature: Signature) -> Scope:
    """Return the scope of a signature without its lets."""
    names: dict[str, Kind] = dict(signature.forall)
    names |= {parameter.name: parameter.kind for parameter in signature.parameters if parameter.tensor is None}
    tensors = [*signature.inputs, *(found.tensor for found in signature.parameters if found.tensor is not None)]
    optional = {tensor.name for tensor in tensors if tensor.is_optional}
    if any(output.buffer for output in signature.outputs):
        optional.add("out")
    passed = frozenset(tensor.name for tensor in tensors)
    unread = bool(signature.lost & {"forall", "params", "inputs", "let"})
    return Scope(names, passed, frozenset(optional), signature.sums, open=unread)


def scope_of(signature: Signature) -> Scope:
    """Return the scope of a signature, with the lets whose kinds can be found."""
    scope = plain_scope(signature)
    for name in let_order(signature)[0]:
        try:
            scope = scope.binding(name, infer(signature.let[name].tree, scope))
        except ExpressionError:
            continue
    return scope


def let_order(signature: Signature) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return the lets, each after those that it reads, and the circles of lets that read themselves through others."""
    reads = {name: free_names(formula.tree) & signature.let.keys() for name, formula in signature.let.items()}
    circles: dict[frozenset[str], tuple[str, ...]] = {}
    ordered: list[str] = []
    pending = dict(reads)
    while pending:
        ready = [name for name, read in pending.items() if not read & pending.keys()]
        ordered.extend(ready)
        if not ready:
            reached = {name: _reached(name, reads) for name in pending}
            ready = [name for name in pending if name in reached[name]]
            for name in ready:
                circle = tuple(other for other in ready if other in reached[name] and name in reached[other])
                circles[frozenset(circle)] = circle
        for name in ready:
            del pending[name]
    return tuple(ordered), tuple(circles.values())


def _reached(name: str, reads: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the lets that a let reads, directly or through others."""
    found: frozenset[str] = frozenset()
    new = reads[name]
    while new:
        found |= new
        new = frozenset().union(*(reads[read] for read in new)) - found
    return found


def facts_of(branch: Branch) -> Facts:
    """Return what a branch makes known: which nullable names have a value, which constructor a value has."""
    facts = Facts()
    for tree, value in branch.settled.items():
        match tree:
            case Call("present", (Name(name),)) if value:
                facts = facts.and_present(name)
            case Name(name) if value is not None:
                facts = facts.and_present(name)
            case Attribute(Name(name), "kind") if isinstance(value, str):
                facts = facts.and_constructor(name, frozenset({value}))
    return facts
