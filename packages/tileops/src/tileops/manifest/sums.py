"""Rules of sum types, wherever they are declared: known field types, and invariants of the fields alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from tileops.errors import ExpressionError
from tileops.manifest.checking import Scope, infer, members
from tileops.manifest.kinds import BoolKind, Kind, SumKind, fits, parse_kind

if TYPE_CHECKING:
    from tileops.manifest.model import Constructor, Path, Problem, Source, SumType


def sum_problems(declared: SumType, sums: Mapping[str, SumType], source: Source, path: Path) -> Iterator[Problem]:
    """Yield every problem of a sum type that stands at a path, where `sums` are the types that it may name."""
    if not isinstance(_parsed(declared.name), SumKind):
        message = f"{declared.name!r} cannot be written as a type"
        yield source.problem((*path, declared.name), "name", message, "begin it with a capital, and choose a free word")
    for constructor in declared.constructors:
        here = (*path, declared.name, "sum", constructor.name)
        for field in constructor.fields:
            unknown = [kind for kind in members(field.kind) if isinstance(kind, SumKind) and kind.name not in sums]
            if unknown:
                message = f"unknown type {unknown[0]}"
                yield source.problem((*here, "fields", field.name), "kind", message, "declare it, or use a known type")
        message = _invariant(constructor)
        if message:
            yield source.problem((*here, "invariant"), "sum-type", message)


def _parsed(name: str) -> Kind | None:
    try:
        return parse_kind(name)
    except ExpressionError:
        return None


def _invariant(constructor: Constructor) -> str:
    """Return what is wrong with a constructor's invariant, or nothing."""
    if constructor.invariant is None:
        return ""
    try:
        kind = infer(constructor.invariant.tree, Scope({field.name: field.kind for field in constructor.fields}))
    except ExpressionError as error:
        return str(error)
    return "" if fits(kind, BoolKind()) else f"{constructor.invariant.text} is {kind}, and bool is needed"


def sound(declared: SumType) -> SumType:
    """Return the type without the invariants that cannot be checked: they are reported where they stand."""
    kept = (
        msgspec.structs.replace(found, invariant=None) if _invariant(found) else found
        for found in declared.constructors
    )
    return msgspec.structs.replace(declared, constructors=tuple(kept))
