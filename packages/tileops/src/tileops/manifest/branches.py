"""Discriminants and branches: the quantities with finitely many values that decide a call's form."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from tileops.errors import ExpressionError
from tileops.manifest.expressions import (
    Attribute,
    Call,
    Conditional,
    Expression,
    Literal,
    Logical,
    Name,
    ShapeItem,
    Spread,
)
from tileops.manifest.families import matched
from tileops.manifest.kinds import BoolKind, Kind, LiteralKind, SumKind, UnionKind, is_nullable
from tileops.manifest.source import evaluate
from tileops.manifest.trees import children, is_known, rewrite

if TYPE_CHECKING:
    from tileops.manifest.model import Formula, Signature, SumType

MOST_COMBINATIONS: Final = 4096
"""How many combinations of discriminant values a signature may have."""
Settled: TypeAlias = Mapping[Expression, object]


class TooManyBranchesError(ExpressionError):
    """The discriminants of a signature have more combinations of values than it may have."""


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
    settled: Settled

    def decides(self, formula: bool | Formula) -> bool:
        """Return what a flag or a discriminant formula is on this branch."""
        return formula if isinstance(formula, bool) else bool(decide(formula.tree, self.settled))

    def undecided(self, formula: bool | Formula | None) -> bool:
        """Return whether it is not known what a flag or a discriminant formula is on this branch."""
        return not (formula is None or isinstance(formula, bool) or formula.known)


def present(name: str) -> Call:
    """Return the tree that asks whether a tensor is passed."""
    return Call("present", (Name(name),))


def deciding_trees(signature: Signature) -> Iterator[Expression]:
    """Yield every formula in which only discriminants may appear."""
    for tensor in (*signature.inputs, *signature.outputs):
        for flag in (tensor.optional, tensor.mutated, tensor.nullable):
            if flag is not None and not isinstance(flag, bool):
                yield flag.tree
    yield from matched(signature)


@dataclass(frozen=True, eq=False, slots=True)
class _Same:
    """A signature as the key of a cache: equal only to itself, since it holds mappings."""

    signature: Signature

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.signature is self.signature

    def __hash__(self) -> int:
        return id(self.signature)


def discriminants(signature: Signature) -> tuple[Discriminant, ...]:
    """Return what decides in this signature: parameters first, then what a call passes."""
    return _discriminants(_Same(signature))


@functools.lru_cache(maxsize=256)
def _discriminants(key: _Same) -> tuple[Discriminant, ...]:
    signature = key.signature
    columns = [
        Discriminant(tree, tuple(dict.fromkeys(row.get(tree) for row in rows)), of_call=False)
        for rows in _parameter_rows(signature)
        for tree in dict.fromkeys(itertools.chain.from_iterable(rows))
    ]
    passed = [tensor.name for tensor in signature.inputs if tensor.is_optional]
    if any(output.buffer for output in signature.outputs):
        passed.append("out")
    return (*columns, *(Discriminant(present(name), (False, True), of_call=True) for name in passed))


def _parameter_rows(signature: Signature) -> list[list[dict[Expression, object]]]:
    """Return for each deciding parameter its possible values, as what each asked part of it then is."""
    asked: dict[str, list[Expression]] = {}
    for tree in deciding_trees(signature):
        for atom in atoms(tree):
            about = subject(atom)
            if atom not in asked.setdefault(about, []):
                asked[about].append(atom)
    found = []
    for parameter in signature.parameters:
        if parameter.tensor is not None and parameter.tensor.is_optional:
            asked[parameter.name] = [present(parameter.name)]
        parts = asked.get(parameter.name)
        if parts:
            rows = _rows(parameter.name, parameter.kind, parts, signature.sums)
            if rows:
                found.append(rows)
    return found


def subject(atom: Expression) -> str:
    """Return the name of the parameter or the tensor that a discriminant asks about."""
    match atom:
        case Name(name) | Call(_, (Name(name),)) | Attribute(Name(name), _):
            return name
    return ""


def _rows(
    name: str, kind: Kind, parts: list[Expression], sums: Mapping[str, SumType]
) -> list[dict[Expression, object]]:
    here = Name(name)
    if isinstance(kind, SumKind) and kind.name in sums:
        return _sum_rows(here, sums[kind.name], parts)
    values = finite_values(kind)
    if values is None:
        if not is_nullable(kind):
            return []
        return [{present(name): there} for there in (False, True) if present(name) in parts]
    rows: dict[tuple[object, ...], dict[Expression, object]] = {}
    for value in values:
        known: dict[Expression, object] = {
            here: value,
            present(name): value is not None,
            Attribute(here, "value"): value,
        }
        row = {part: known[part] for part in parts if part in known}
        rows.setdefault(tuple(row.values()), row)
    return list(rows.values())


def _sum_rows(here: Name, declared: SumType, parts: list[Expression]) -> list[dict[Expression, object]]:
    rows: list[dict[Expression, object]] = []
    for constructor in declared.constructors:
        finite = {field.name: finite_values(field.kind) for field in constructor.fields}
        columns: list[list[tuple[Expression, object]]] = []
        for part in parts:
            if part == Attribute(here, "kind"):
                columns.append([(part, constructor.name)])
            elif isinstance(part, Attribute):
                columns.append([(part, value) for value in finite.get(part.field) or (None,)])
        rows.extend(dict(row) for row in itertools.product(*columns))
    return rows


def atoms(tree: Expression | Spread) -> Iterator[Expression]:
    """Yield the smallest parts of a formula that can be discriminants."""
    match tree:
        case Call("present", (Name(),)) | Name() | Attribute(Name(), _):
            yield tree
        case _:
            for child in children(tree):
                yield from atoms(child)


def finite_values(kind: Kind) -> tuple[object, ...] | None:
    """Return the values of a kind that has finitely many, else None."""
    match kind:
        case BoolKind():
            return (False, True)
        case LiteralKind(values):
            return values
        case UnionKind() if kind.nullable:
            rest = finite_values(kind.without_none())
            return None if rest is None else (None, *rest)
    return None


def combinations(signature: Signature) -> Iterator[Branch]:
    """Yield every combination of discriminant values, accepted or not."""
    deciding = discriminants(signature)
    count = math.prod(len(found.values) for found in deciding)
    if count > MOST_COMBINATIONS:
        message = f"{count} combinations of discriminants are too many; at most {MOST_COMBINATIONS}"
        raise TooManyBranchesError(message)
    passed = [[{found.tree: value} for value in found.values] for found in deciding if found.of_call]
    for rows in itertools.product(*_parameter_rows(signature), *passed):
        settled: dict[Expression, object] = {}
        for row in rows:
            settled.update(row)
        key = tuple(settled.get(found.tree) for found in deciding)
        yield Branch(key, _presence(signature, settled), settled)


def branches(signature: Signature) -> tuple[Branch, ...]:
    """Return every branch that the signature accepts, in the order of its discriminants."""
    return _branches(_Same(signature))


@functools.lru_cache(maxsize=256)
def _branches(key: _Same) -> tuple[Branch, ...]:
    signature = key.signature
    restrictions = [rule for rule in signature.shape_rules if is_restriction(rule, signature)]
    return tuple(branch for branch in combinations(signature) if _accepts(signature, branch, restrictions))


def _presence(signature: Signature, settled: Settled) -> dict[str, bool]:
    presence = {tensor.name: bool(settled.get(present(tensor.name), True)) for tensor in signature.inputs}
    presence["out"] = bool(settled.get(present("out"), False))
    for parameter in signature.parameters:
        if parameter.tensor is not None:
            presence[parameter.name] = bool(settled.get(present(parameter.name), True))
    return presence


def _accepts(signature: Signature, branch: Branch, restrictions: list[Formula]) -> bool:
    for tensor in signature.inputs:
        if isinstance(tensor.optional, bool) or branch.undecided(tensor.optional):
            continue
        if branch.present[tensor.name] != branch.decides(tensor.optional):
            return False
    return all(decide(rule.tree, branch.settled) is not False for rule in restrictions)


def is_restriction(rule: Formula, signature: Signature) -> bool:
    """Whether a refinement reads only discriminants, and so restricts the branches."""
    deciding = {discriminant.tree for discriminant in discriminants(signature)}
    read = list(atoms(rule.tree))
    return bool(read) and all(atom in deciding for atom in read)


def decide(tree: Expression, settled: Settled) -> object:
    """Return the value of a formula of discriminants, where they have these values; UNDECIDED for an unknown one.

    Raises:
        ExpressionError: the formula reads anything else.
    """
    key = tuple((atom, settled.get(atom, _UNSETTLED)) for atom in dict.fromkeys(atoms(tree)))
    return _decide(tree, key)


class _Unsettled:
    """Stands for the value of what is not a discriminant."""


_UNSETTLED = _Unsettled()


class Undecided:
    """Stands for the value of a formula of which a part is unknown."""


UNDECIDED: Final = Undecided()


@functools.lru_cache(maxsize=4096)
def _decide(tree: Expression, known: tuple[tuple[Expression, object], ...]) -> object:
    if not is_known(tree):
        return UNDECIDED
    settled = dict(known)
    values: dict[str, object] = {}

    def substitute(part: Expression) -> Expression | None:
        if part not in settled:
            return None
        if settled[part] is _UNSETTLED:
            shown = part.name if isinstance(part, Name) else "part of it"
            raise ExpressionError(f"{shown!r} has no finite set of values, and cannot decide")
        name = f"discriminant{len(values)}"
        values[name] = settled[part]
        return Name(name)

    return evaluate(rewrite(tree, substitute), values, {})


def pruned(item: ShapeItem, branch: Branch) -> ShapeItem:
    """Return an expression as it reads on a branch: what a discriminant excludes is gone."""
    return Spread(prune(item.value, branch)) if isinstance(item, Spread) else prune(item, branch)


def prune(tree: Expression, branch: Branch) -> Expression:
    """Return the tree without the parts that the branch's discriminants exclude."""

    def substitute(part: Expression) -> Expression | None:
        match part:
            case Conditional(condition, then, otherwise):
                verdict = _verdict(condition, branch)
                return None if verdict is None else prune(then if verdict else otherwise, branch)
            case Logical(operator, operands):
                absorbing = operator == "or"
                left = []
                for operand in operands:
                    verdict = _verdict(operand, branch)
                    if verdict is absorbing:
                        return Literal(absorbing)
                    if verdict is None:
                        left.append(prune(operand, branch))
                if not left:
                    return Literal(not absorbing)
                return left[0] if len(left) == 1 else Logical(operator, tuple(left))
        return None

    return rewrite(tree, substitute)


def _verdict(tree: Expression, branch: Branch) -> bool | None:
    """Return what a condition is on the branch, or None when more than discriminants is read."""
    read = list(atoms(tree))
    if not read or not all(atom in branch.settled for atom in read):
        return None
    try:
        return decide(tree, branch.settled) is True
    except ExpressionError:
        return None
