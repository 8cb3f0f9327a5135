"""The fields that each part of an entry may have, and reading plain values into them without stopping early."""

from __future__ import annotations

import difflib
import functools
import operator
import types
import typing
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from tileops.errors import ExpressionError
from tileops.manifest.document import UNREAD, Partial, Unread
from tileops.manifest.expressions import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tileops.manifest.model import Path, Problem, Source

S = TypeVar("S", bound=msgspec.Struct)
V = TypeVar("V")


class EntryFields(msgspec.Struct, kw_only=True):
    """The fields of an entry."""

    family: str | Unread
    status: Literal["implemented", "spec-only"] | Unread
    signature: dict[str, object] | Unread
    ref_api: str | Unread | None = None
    workloads: list[object] | Unread = []
    roofline: dict[str, object] | Unread | None = None
    composition: dict[str, object] | Unread | None = None


class SignatureFields(msgspec.Struct, kw_only=True):
    """The fields of a signature."""

    forall: dict[str, object] | Unread = {}
    params: dict[str, object] | Unread = {}
    inputs: dict[str, object] | Unread = {}
    outputs: dict[str, object] | Unread = {}
    types: dict[str, object] | Unread = {}
    let: dict[str, object] | Unread = {}
    shape_rules: list[object] | Unread = []
    dtype_combos: list[object] | Unread = []


class TensorFields(msgspec.Struct, kw_only=True):
    """The fields of a tensor among inputs or outputs."""

    dtype: str | Unread
    shape: str | Unread
    optional: bool | str | Unread = False
    mutated: bool | str | Unread = False
    write_only: bool | Unread = False
    contiguous: bool | Unread = False
    device: Literal["cpu"] | Unread | None = None
    alias: str | Unread | None = None
    buffer: Literal["out"] | Unread | None = None
    nullable: str | Unread | None = None
    values: str | Unread | None = None
    requires: list[object] | Unread = []


class ParameterFields(msgspec.Struct, kw_only=True):
    """The fields of a construction parameter that is a value."""

    type: str | Unread
    default: object = msgspec.UNSET
    keyword_only: bool | Unread = False


class TensorParameterFields(msgspec.Struct, kw_only=True):
    """The fields of a construction parameter that is a tensor."""

    dtype: str | Unread
    shape: str | Unread
    optional: bool | str | Unread = False
    keyword_only: bool | Unread = False
    values: str | Unread | None = None
    requires: list[object] | Unread = []


class FamilyFields(msgspec.Struct, kw_only=True):
    """The fields of a type family."""

    params: dict[str, object] | Unread
    match: str | list[object] | Unread
    cases: list[object] | Unread


class CaseFields(msgspec.Struct, kw_only=True, rename={"shape": "is"}):
    """The fields of one case of a type family."""

    when: object
    shape: str | Unread


class SumFields(msgspec.Struct, kw_only=True):
    """The fields of a sum type."""

    sum: dict[str, object] | Unread


class ConstructorFields(msgspec.Struct, kw_only=True):
    """The fields of one constructor of a sum type."""

    python: str | Unread
    fields: dict[str, object] | Unread = {}
    invariant: str | Unread | None = None


class FieldFields(msgspec.Struct, kw_only=True):
    """The fields of a constructor's field when it names its Python class."""

    type: str | Unread
    python: str | Unread | None = None


class RooflineFields(msgspec.Struct, kw_only=True):
    """The fields of a roofline."""

    flops: str | int | Unread | None = None
    bytes: str | int | Unread | None = None
    func: str | Unread | None = None


class CompositionFields(msgspec.Struct, kw_only=True):
    """The fields of a composition."""

    kind: Literal["composite"] | Unread
    stages: list[object] | Unread


class StageFields(msgspec.Struct, kw_only=True):
    """The fields of one stage."""

    name: str | Unread
    op: str | Unread | None = None
    kernel: str | Unread | None = None
    optional: bool | Unread = False


class Collector:
    """Reads parts of one source and keeps every problem it meets."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []

    def report(self, path: Path, rule: str, message: str, mend: str = "") -> None:
        """Keep a problem at the declaration's position."""
        self.problems.append(self.source.problem(path, rule, message, mend))

    def struct(self, fields: type[S], value: object, path: Path) -> S | None:
        """Return the struct that a mapping fills, all that is wrong with it reported, or None for no mapping.

        A field that is missing or wrong is UNREAD, whatever its type; a misspelled one is read as the field it is near.
        """
        if not isinstance(value, dict):
            self.unfit(path, value, "a mapping")
            return None
        known = _fields(fields)
        given = self._corrected(value, known, path)
        filled: dict[str, object] = {}
        for name, (field, wanted) in known.items():
            if name not in given:
                if isinstance(value, Partial):
                    filled[field.name] = UNREAD
                elif field.required:
                    self.report(path, "missing-field", f"the field {name!r} is missing")
                    filled[field.name] = UNREAD
                continue
            filled[field.name] = self.converted(given[name], wanted, (*path, name))
        return fields(**filled)

    def _corrected(self, value: dict[str, object], known: Iterable[str], path: Path) -> dict[str, object]:
        """Return the mapping with each misspelled key as the key that it is near; report those that are unknown."""
        given = dict(value)
        for key, held in value.items():
            if key in known:
                continue
            self.report((*path, key), "unknown-field", f"unknown field {key!r}", suggestion(key, known))
            for near in difflib.get_close_matches(key, list(known), n=1):
                if near not in given:
                    given[near] = held
                    self.moved((*path, key), (*path, near))
        return given

    def moved(self, old: Path, new: Path) -> None:
        """Let a path stand where another does, with all that it encloses."""
        depth = len(old)
        moved = {(*new, *path[depth:]): at for path, at in self.source.positions.items() if path[:depth] == old}
        self.source = msgspec.structs.replace(self.source, positions={**self.source.positions, **moved})

    def converted(self, value: object, wanted: object, path: Path) -> object:
        """Return a value as a type takes it, or UNREAD after reporting why it does not."""
        if value is UNREAD:
            return UNREAD
        try:
            found: object = msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            shown = path[-1] if isinstance(path[-1], str) else f"{path[-2]}[{path[-1]}]"
            self.report(path, "structure", f"{shown}: {error}")
            return UNREAD
        return value if isinstance(value, Partial) else found

    def mapping(self, value: object) -> dict[str, object]:
        """Return what a field holds when it is a mapping, and nothing when it was not read."""
        return value if isinstance(value, dict) else {}

    def unfit(self, path: Path, value: object, wanted: str) -> None:
        """Report a value of the wrong structure, unless it is reported already."""
        if value is not UNREAD:
            self.report(path, "structure", f"expected {wanted}, received {_plain_name(value)}")

    def expression(self, parse: Callable[[str], V], text: str, path: Path, rule: str = "expression") -> V | None:
        """Return what `parse` makes of the text, or None after reporting why it cannot."""
        try:
            return parse(text)
        except ExpressionError as error:
            self.report(path, rule, str(error))
            return None

    def name(self, name: str, path: Path) -> str:
        """Return the name; report it when the language does not allow it."""
        self.expression(check_name, name, path, "name")
        return name


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a mend that lists the known words, the nearest first when one is near."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(names)}"


def counted(count: int, word: str, plural: str = "") -> str:
    """Return a number with its word: 1 entry, 2 entries."""
    return f"{count} {word if count == 1 else plural or f'{word}s'}"


def _readable_type(declared: object) -> object:
    """Return a field's type without the mark of what could not be read."""
    members = [member for member in typing.get_args(declared) if member is not Unread]
    is_union = typing.get_origin(declared) in {typing.Union, types.UnionType}
    return functools.reduce(operator.or_, members) if is_union else declared


@functools.cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, tuple[msgspec.structs.FieldInfo, object]]:
    """Return the fields of a struct by their names in YAML, each with the type that a value is read as."""
    return {field.encode_name: (field, _readable_type(field.type)) for field in msgspec.structs.fields(struct)}


def _plain_name(value: object) -> str:
    if value is None:
        return "nothing"
    return {
        dict: "a mapping",
        list: "a list",
        str: "a word",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }.get(type(value), type(value).__name__)
