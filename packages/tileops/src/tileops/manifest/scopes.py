"""The names that the expressions of a signature may read, each with its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.errors import ExpressionError
from tileops.manifest.checking import Facts, Scope, infer
from tileops.manifest.expressions import Attribute, Call, Name
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
    return Scope(names, frozenset(tensor.name for tensor in tensors), frozenset(optional), signature.sums)


def scope_of(signature: Signature) -> Scope:
    """Return the scope of a signature, with the lets whose kinds can be found."""
    scope = plain_scope(signature)
    for name in let_order(signature)[0]:
        try:
            scope = scope.binding(name, infer(signature.let[name].tree, scope))
        except ExpressionError:
            continue
    return scope


def let_order(signature: Signature) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lets, each after those that it reads, and the lets that read each other in a circle."""
    pending = dict(signature.let)
    ordered: list[str] = []
    while pending:
        ready = [name for name, formula in pending.items() if not free_names(formula.tree) & pending.keys()]
        if not ready:
            break
        for name in ready:
            del pending[name]
        ordered.extend(ready)
    return tuple(ordered), tuple(pending)


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
