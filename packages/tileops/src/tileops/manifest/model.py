"""The typed form of a manifest entry: frozen, complete, with the position of every declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from tileops.manifest.expressions import Call, Expression, ShapeItem
from tileops.manifest.kinds import Kind
from tileops.manifest.trees import is_known

Path = tuple[str | int, ...]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One breach of the language: where it stands, the rule, what is wrong and how to mend it."""

    file: str
    line: int
    column: int
    rule: str
    message: str
    mend: str = ""

    def __str__(self) -> str:
        mend = f"; {self.mend}" if self.mend else ""
        return f"{self.file}:{self.line}:{self.column}: {self.rule}: {self.message}{mend}"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry was read, and the line and column of each of its declarations."""

    file: str
    positions: Mapping[Path, tuple[int, int]]
    text: str

    def problem(self, path: Path, rule: str, message: str, mend: str = "") -> Problem:
        """Return a problem placed at the declaration, or at the nearest one that encloses it."""
        place = path
        while place and place not in self.positions:
            place = place[:-1]
        line, column = self.positions.get(place, (1, 1))
        message = message if message.isprintable() else " ".join(message.split())
        return Problem(file=self.file, line=line, column=column, rule=rule, message=message, mend=mend)


class Formula(msgspec.Struct, frozen=True):
    """An expression as it was written and as it was parsed."""

    text: str
    tree: Expression

    @property
    def known(self) -> bool:
        """Whether no part of it is unknown."""
        return is_known(self.tree)


class Shape(msgspec.Struct, frozen=True):
    """A tensor's shape: its axes, or the type family that gives them."""

    text: str
    items: tuple[ShapeItem, ...] = ()
    family: Call | None = None


class TensorType(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the signature: its type, its effects and its placement."""

    name: str
    dtype: Formula
    shape: Shape
    optional: bool | Formula = False
    mutated: bool | Formula = False
    write_only: bool = False
    contiguous: bool = False
    device: Literal["cpu"] | None = None
    alias: str | None = None
    buffer: Literal["out"] | None = None
    nullable: Formula | None = None
    values: Formula | None = None
    requires: tuple[Formula, ...] = ()

    @property
    def is_optional(self) -> bool:
        """Whether a call may leave this tensor out, freely or where its condition says so."""
        return self.optional is not False


class _Required:
    """The default of a parameter that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One construction parameter: a value, or a tensor that is passed at construction."""

    name: str
    kind: Kind
    default: object = REQUIRED
    keyword_only: bool = False
    tensor: TensorType | None = None

    @property
    def required(self) -> bool:
        """Whether the constructor has no default for it."""
        return self.default is REQUIRED


class FamilyCase(msgspec.Struct, frozen=True):
    """One case of a type family: the discriminants' values, and the shape there."""

    when: tuple[object, ...]
    shape: Shape


class TypeFamily(msgspec.Struct, frozen=True, kw_only=True):
    """A shape chosen by discriminants."""

    name: str
    parameters: Mapping[str, Kind]
    match: tuple[Formula, ...]
    cases: tuple[FamilyCase, ...]
    lost: bool = False
    """Whether its parameters or its cases could not be read."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a sum type's constructor."""

    name: str
    kind: Kind
    python: str | None = None


class Constructor(msgspec.Struct, frozen=True, kw_only=True):
    """One constructor of a sum type: its Python class, its fields and what holds between them."""

    name: str
    python: str
    fields: tuple[Field, ...] = ()
    invariant: Formula | None = None
    incomplete: bool = False
    """Whether some of its fields could not be read."""


class SumType(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is one of several constructors."""

    name: str
    constructors: tuple[Constructor, ...]
    lost: bool = False
    """Whether it could not be read, so that a value of it may be anything."""


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The type of an op: op(params) : forall indices. inputs -> outputs."""

    forall: Mapping[str, Kind]
    parameters: tuple[Parameter, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    families: Mapping[str, TypeFamily]
    sums: Mapping[str, SumType]
    let: Mapping[str, Formula]
    shape_rules: tuple[Formula, ...]
    dtype_combos: tuple[Mapping[str, str], ...]
    lost: frozenset[str] = frozenset()
    """The sections that could not be read, in whole or in part: what seems to be missing may stand there."""
    own_sums: frozenset[str] = frozenset()
    """The sum types that the signature itself declares; the others are of types.yaml."""


class WorkloadRow(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model: values of parameters and indices, and the dtypes it runs in."""

    label: str
    some: tuple[str, ...]
    dtype_cases: tuple[Mapping[str, str], ...]
    values: Mapping[str, object]
    place: int = 0
    """Which row of the entry it is, counted from 0."""
    lost: frozenset[str] = frozenset()
    """Which of `label`, `some` and `values` could not be read."""


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """The least work of a call, as expressions or as a function."""

    flops: Formula | None = None
    bytes: Formula | None = None
    func: str | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a composite: an op or a kernel of its own."""

    name: str
    op: str | None = None
    kernel: str | None = None
    optional: bool = False
    lost: bool = False


class Composition(msgspec.Struct, frozen=True, kw_only=True):
    """The ops that a composite op is made of, in order."""

    stages: tuple[Stage, ...]
    lost: bool = False


class OpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One op of the manifest."""

    name: str
    family: str
    status: Literal["implemented", "spec-only"]
    signature: Signature
    workloads: tuple[WorkloadRow, ...]
    roofline: Roofline | None
    composition: Composition | None
    ref_api: str | None
    digest: str
    source: Source
    lost: frozenset[str] = frozenset()
    """The fields that could not be read; only a draft has any."""

    def __repr__(self) -> str:
        return f"OpEntry({self.name!r})"
