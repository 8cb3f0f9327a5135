"""Rules of sum types, wherever they are declared: known field types, and invariants of the fields alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from tileops.errors import ExpressionError
from tileops.manifest.checking import infer, members
from tileops.manifest.facts import Scope
from tileops.manifest.kinds import BoolKind, Kind, SumKind, UnknownKind, fits, parse_kind

if TYPE_CHECKING:
    from tileops.manifest.model import Constructor, Path, Problem, Source, SumType


def sum_problems(declared: SumType, sums: Mapping[str, SumType], source: Source, path: Path) -> Iterator[Problem]:
    """Yield every problem of a sum type that stands at a path, where `sums` are the types that it may name."""
    if declared.lost:
        return
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
        for message in _faults(constructor, sums):
            yield source.problem((*here, "invariant"), "sum-type", message)


def _parsed(name: str) -> Kind | None:
    try:
        return parse_kind(name)
    except ExpressionError:
        return None


def _faults(constructor: Constructor, sums: Mapping[str, SumType]) -> list[str]:
    """Return what is wrong with a constructor's invariant."""
    if constructor.invariant is None:
        return []
    faults: list[str] = []
    names = {field.name: sound_kind(field.kind, sums) for field in constructor.fields}
    kind = infer(constructor.invariant.tree, Scope(names, faults=faults, open=constructor.incomplete))
    if not fits(kind, BoolKind()):
        faults.append(f"{constructor.invariant.text} is {kind}, and bool is needed")
    return faults


def sound(declared: SumType, sums: Mapping[str, SumType]) -> SumType:
    """Return the type without what is wrong in it: fields of unknown types, and invariants that cannot be checked."""

    def kept(found: Constructor) -> Constructor:
        wrong = found.invariant is not None and (not found.invariant.known or bool(_faults(found, sums)))
        fields = tuple(msgspec.structs.replace(field, kind=sound_kind(field.kind, sums)) for field in found.fields)
        return msgspec.structs.replace(found, fields=fields, invariant=None if wrong else found.invariant)

    return msgspec.structs.replace(declared, constructors=tuple(kept(found) for found in declared.constructors))


def sound_kind(kind: Kind, sums: Mapping[str, SumType]) -> Kind:
    """Return the kind, or the unknown kind where it names a sum type that is not declared or could not be read."""
    named = [member.name for member in members(kind) if isinstance(member, SumKind)]
    return UnknownKind() if any(name not in sums or sums[name].lost for name in named) else kind
