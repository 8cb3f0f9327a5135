"""The fields that each part of an entry may have, and reading plain values into them without stopping early."""

from __future__ import annotations

import difflib
import functools
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from tileops.errors import ExpressionError
from tileops.manifest.expressions import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tileops.manifest.model import Path, Problem, Source

S = TypeVar("S", bound=msgspec.Struct)
V = TypeVar("V")


class EntryFields(msgspec.Struct, kw_only=True):
    """The fields of an entry."""

    family: str
    status: Literal["implemented", "spec-only"]
    signature: dict[str, object]
    ref_api: str | None = None
    workloads: list[object] = []
    roofline: dict[str, object] | None = None
    composition: dict[str, object] | None = None


class SignatureFields(msgspec.Struct, kw_only=True):
    """The fields of a signature."""

    forall: dict[str, str] = {}
    params: dict[str, object] = {}
    inputs: dict[str, object] = {}
    outputs: dict[str, object] = {}
    types: dict[str, object] = {}
    let: dict[str, object] = {}
    shape_rules: list[object] = []
    dtype_combos: list[dict[str, str]] = []


class TensorFields(msgspec.Struct, kw_only=True):
    """The fields of a tensor among inputs or outputs."""

    dtype: str
    shape: str
    optional: bool | str = False
    mutated: bool | str = False
    write_only: bool = False
    contiguous: bool = False
    device: Literal["cpu"] | None = None
    alias: str | None = None
    buffer: Literal["out"] | None = None
    nullable: str | None = None
    values: str | None = None
    requires: list[str] = []


class ParameterFields(msgspec.Struct, kw_only=True):
    """The fields of a construction parameter that is a value."""

    type: str
    default: object = msgspec.UNSET
    keyword_only: bool = False


class TensorParameterFields(msgspec.Struct, kw_only=True):
    """The fields of a construction parameter that is a tensor."""

    dtype: str
    shape: str
    optional: bool | str = False
    keyword_only: bool = False
    values: str | None = None
    requires: list[str] = []


class FamilyFields(msgspec.Struct, kw_only=True):
    """The fields of a type family."""

    params: dict[str, str]
    match: str | list[str]
    cases: list[object]


class CaseFields(msgspec.Struct, kw_only=True, rename={"shape": "is"}):
    """The fields of one case of a type family."""

    when: object
    shape: str


class SumFields(msgspec.Struct, kw_only=True):
    """The fields of a sum type."""

    sum: dict[str, object]


class ConstructorFields(msgspec.Struct, kw_only=True):
    """The fields of one constructor of a sum type."""

    python: str
    fields: dict[str, object] = {}
    invariant: str | None = None


class FieldFields(msgspec.Struct, kw_only=True):
    """The fields of a constructor's field when it names its Python class."""

    type: str
    python: str | None = None


class RooflineFields(msgspec.Struct, kw_only=True):
    """The fields of a roofline."""

    flops: str | int | None = None
    bytes: str | int | None = None
    func: str | None = None


class CompositionFields(msgspec.Struct, kw_only=True):
    """The fields of a composition."""

    kind: Literal["composite"]
    stages: list[object]


class StageFields(msgspec.Struct, kw_only=True):
    """The fields of one stage."""

    name: str
    op: str | None = None
    kernel: str | None = None
    optional: bool = False


class Collector:
    """Reads parts of one source and keeps every problem it meets."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []

    def report(self, path: Path, rule: str, message: str, mend: str = "") -> None:
        """Keep a problem at the declaration's position."""
        self.problems.append(self.source.problem(path, rule, message, mend))

    def struct(self, fields: type[S], value: object, path: Path) -> S | None:
        """Return the struct that a mapping fills, or None after reporting all that is wrong with it."""
        if not isinstance(value, dict):
            self.report(path, "structure", f"expected a mapping, received {_plain_name(value)}")
            return None
        known = _fields(fields)
        for key in value:
            if key not in known:
                self.report((*path, key), "unknown-field", f"unknown field {key!r}", suggestion(key, known))
        filled: dict[str, object] = {}
        complete = True
        for name, field in known.items():
            if name not in value:
                if field.required:
                    self.report(path, "missing-field", f"the field {name!r} is missing")
                    complete = False
                continue
            try:
                filled[field.name] = msgspec.convert(value[name], field.type)
            except msgspec.ValidationError as error:
                self.report((*path, name), "structure", f"{name}: {error}")
                complete = False
        return fields(**filled) if complete else None

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


@functools.cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


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
