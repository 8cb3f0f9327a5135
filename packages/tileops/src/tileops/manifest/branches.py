"""Discriminants and branches: the quantities with finitely many values that decide a call's form."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tileops.errors import ExpressionError
from tileops.manifest.expressions import Attribute, Call, Expression, Name, Spread
from tileops.manifest.kinds import BoolKind, Kind, LiteralKind, UnionKind
from tileops.manifest.source import evaluate
from tileops.manifest.trees import children, rewrite

if TYPE_CHECKING:
    from tileops.manifest.model import Formula, Signature


@dataclass(frozen=True, slots=True)
class Discriminant:
    """One quantity that decides: its expression, its values, and whether a call settles it."""

    tree: Expression
    values: tuple[object, ...]
    of_call: bool


@dataclass(frozen=True, slots=True)
class Branch:
    """One combination of discriminant values that the signature accepts."""

    key: tuple[object, ...]
    present: Mapping[str, bool]
    settled: Mapping[Expression, object]

    def decides(self, formula: bool | Formula) -> bool:
        """Return what a flag or a discriminant formula is on this branch."""
        return formula if isinstance(formula, bool) else bool(decide(formula.tree, self.settled))


def present(name: str) -> Call:
    """Return the tree that asks whether a tensor is passed."""
    return Call("present", (Name(name),))


def deciding_formulas(signature: Signature) -> Iterator[Formula]:
    """Yield every formula that only discriminants may appear in."""
    for tensor in (*signature.inputs, *signature.outputs):
        for flag in (tensor.optional, tensor.mutated, tensor.nullable):
            if flag is not None and not isinstance(flag, bool):
                yield flag
    for family in signature.families.values():
        yield from family.match


def discriminants(signature: Signature) -> tuple[Discriminant, ...]:
    """Return what decides in this signature: parameters first, then what a call passes."""
    found: dict[Expression, Discriminant] = {}
    for tensor in signature.inputs:
        if tensor.is_optional:
            found[present(tensor.name)] = Discriminant(present(tensor.name), (False, True), of_call=True)
    if any(output.buffer for output in signature.outputs):
        found[present("out")] = Discriminant(present("out"), (False, True), of_call=True)
    kinds = {parameter.name: parameter.kind for parameter in signature.parameters}
    for formula in deciding_formulas(signature):
        for atom in atoms(formula.tree):
            if atom not in found:
                values = _values(atom, kinds)
                if values is not None:
                    found[atom] = Discriminant(atom, values, of_call=False)
    return tuple(sorted(found.values(), key=lambda discriminant: discriminant.of_call))


def atoms(tree: Expression | Spread) -> Iterator[Expression]:
    """Yield the smallest parts of a formula that can be discriminants."""
    match tree:
        case Call("present", _) | Name() | Attribute(Name(), _):
            yield tree
        case _:
            for child in children(tree):
                yield from atoms(child)


def _values(atom: Expression, kinds: Mapping[str, Kind]) -> tuple[object, ...] | None:
    match atom:
        case Name(name) if name in kinds:
            return finite_values(kinds[name])
        case Call("present", (Name(name),)) if name in kinds:
            return (False, True)
    return None


def finite_values(kind: Kind) -> tuple[object, ...] | None:
    """Return the values of a kind that has finitely many, else None."""
    match kind:
        case BoolKind():
            return (False, True)
        case LiteralKind(values):
            return values
        case UnionKind(members) if kind.nullable:
            rest = finite_values(kind.without_none())
            return None if rest is None or not members else (None, *rest)
    return None


def branches(signature: Signature) -> tuple[Branch, ...]:
    """Return every branch that the signature accepts, in the order of its discriminants."""
    deciding = discriminants(signature)
    accepted = []
    for values in itertools.product(*(discriminant.values for discriminant in deciding)):
        settled = {discriminant.tree: value for discriminant, value in zip(deciding, values, strict=True)}
        branch = Branch(values, _presence(signature, settled), settled)
        if _accepts(signature, branch):
            accepted.append(branch)
    return tuple(accepted)


def _presence(signature: Signature, settled: Mapping[Expression, object]) -> dict[str, bool]:
    presence = {tensor.name: bool(settled.get(present(tensor.name), True)) for tensor in signature.inputs}
    presence["out"] = bool(settled.get(present("out"), False))
    return presence


def _accepts(signature: Signature, branch: Branch) -> bool:
    for tensor in signature.inputs:
        if not isinstance(tensor.optional, bool) and branch.present[tensor.name] != branch.decides(tensor.optional):
            return False
    return all(
        decide(rule.tree, branch.settled) is not False
        for rule in signature.shape_rules
        if is_restriction(rule, signature)
    )


def is_restriction(rule: Formula, signature: Signature) -> bool:
    """Whether a refinement reads only discriminants, and so restricts the branches."""
    deciding = {discriminant.tree for discriminant in discriminants(signature)}
    return all(atom in deciding for atom in atoms(rule.tree))


def decide(tree: Expression, settled: Mapping[Expression, object]) -> object:
    """Return the value of a formula of discriminants, where they have these values.

    Raises:
        ExpressionError: the formula reads anything else.
    """
    values: dict[str, object] = {}
    replaced = _replace(tree, settled, values)
    return evaluate(replaced, values, {})


def _replace(tree: Expression, settled: Mapping[Expression, object], values: dict[str, object]) -> Expression:
    def substitute(part: Expression) -> Expression | None:
        if part in settled:
            name = f"discriminant{len(values)}"
            values[name] = settled[part]
            return Name(name)
        if isinstance(part, Name):
            raise ExpressionError(f"{part.name!r} is not a discriminant")
        return None

    return rewrite(tree, substitute)
