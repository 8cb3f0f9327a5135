"""Rules of what a signature declares: names, kinds, defaults and dtype combinations, and what is sound of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from tileops.errors import ExpressionError
from tileops.manifest.checking import members
from tileops.manifest.document import UNREAD, Partial
from tileops.manifest.expressions import Unknown
from tileops.manifest.kinds import (
    DTYPE_NAMES,
    DimKind,
    DTypeKind,
    IntKind,
    Kind,
    SequenceKind,
    ShapeKind,
    SumKind,
    UnknownKind,
)
from tileops.manifest.model import REQUIRED, Formula
from tileops.manifest.reserved import ROW_FIELDS, taken_by_call, taken_by_op
from tileops.manifest.sums import sound, sound_kind, sum_problems
from tileops.manifest.trees import possible_names
from tileops.manifest.values import accepts, from_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tileops.manifest.model import OpEntry, Parameter, Path, Problem, Signature, TypeFamily

_RESERVED = DTYPE_NAMES | {"inf", "present", "bytes", "out", "isinstance", "len", "tuple", "any", "self", "target"}


class Declarations:
    """Checks the declarations of one entry."""

    def __init__(self, entry: OpEntry) -> None:
        self.entry = entry
        self.signature: Signature = entry.signature
        self.path: Path = (entry.name, "signature")
        self.problems: list[Problem] = []
        self.unclear: set[str] = set()
        """Names of which it is not clear what they stand for."""

    def sound(self) -> Signature:
        """Keep every problem, and return the signature with the unknown kind for names that are declared wrongly."""
        signature = self.signature
        self._names()
        self._order()
        for name in sorted(signature.own_sums):
            self.problems.extend(
                sum_problems(signature.sums[name], signature.sums, self.entry.source, (*self.path, "types"))
            )
        forall = {name: self._index(name, kind) for name, kind in signature.forall.items()}
        parameters = tuple(self._parameter(parameter) for parameter in signature.parameters)
        families = {name: self._family(family) for name, family in signature.families.items()}
        combinations = self._combinations()
        if not self.problems and not signature.lost and combinations == signature.dtype_combos:
            return signature
        return msgspec.structs.replace(
            signature,
            forall=forall,
            parameters=parameters,
            sums={
                name: sound(found, signature.sums) if name in signature.own_sums else found
                for name, found in signature.sums.items()
            },
            let={
                name: Formula(formula.text, Unknown(possible_names(formula.tree))) if name in self.unclear else formula
                for name, formula in signature.let.items()
            },
            families=families,
            dtype_combos=combinations,
        )

    def report(self, path: Path, rule: str, message: str, mend: str = "") -> None:
        """Keep a problem."""
        self.problems.append(self.entry.source.problem((*self.path, *path), rule, message, mend))

    def _names(self) -> None:
        """Report names that are declared twice, or that the language keeps for itself."""
        signature = self.signature
        sources: dict[str, str] = {}
        groups: tuple[tuple[str, Iterable[str]], ...] = (
            ("forall", signature.forall),
            ("params", (parameter.name for parameter in signature.parameters)),
            ("let", signature.let),
            ("inputs", (tensor.name for tensor in signature.inputs)),
            ("outputs", (tensor.name for tensor in signature.outputs)),
        )
        for group, names in groups:
            for name in names:
                message = _taken(group, name)
                if message:
                    self.report((group, name), "name", message, "rename it")
                    self.unclear.add(name)
                elif name in sources:
                    message = f"{name!r} is declared under {sources[name]} and under {group}"
                    self.report((group, name), "name", message, "give each its own name")
                    self.unclear.add(name)
                sources.setdefault(name, group)

    def _index(self, name: str, kind: Kind) -> Kind:
        allowed = isinstance(kind, DimKind | ShapeKind | DTypeKind | UnknownKind) or kind == SequenceKind(IntKind())
        if not allowed:
            message = f"an index is a Dim, a Shape, a DType[...] or a Seq[Int], and {name} is {kind}"
            self.report(("forall", name), "index-kind", message)
        return kind if allowed and name not in self.unclear else UnknownKind()

    def _parameter(self, parameter: Parameter) -> Parameter:
        """Return a parameter as far as it is sound."""
        sums, path = self.signature.sums, ("params", parameter.name)
        for kind in _unknown_types(parameter.kind, sums):
            self.report(path, "kind", f"unknown type {kind}", "declare it under types or in types.yaml")
        kind = sound_kind(parameter.kind, sums)
        default = parameter.default
        if default is not REQUIRED and parameter.tensor is None and default is not UNREAD:
            message = self._wrong_default(kind, default)
            if message:
                self.report((*path, "default"), "default", message)
                default = UNREAD
        if parameter.name in self.unclear:
            kind, default = UnknownKind(), UNREAD
        if (kind, default) == (parameter.kind, parameter.default):
            return parameter
        return msgspec.structs.replace(parameter, kind=kind, default=default)

    def _family(self, family: TypeFamily) -> TypeFamily:
        """Return a type family with the unknown kind for parameters of unknown types."""
        sums = self.signature.sums
        for name, kind in family.parameters.items():
            for unknown in _unknown_types(kind, sums):
                path: Path = ("types", family.name, "params", name)
                self.report(path, "kind", f"unknown type {unknown}", "declare it under types or in types.yaml")
        kinds = {name: sound_kind(kind, sums) for name, kind in family.parameters.items()}
        return family if kinds == family.parameters else msgspec.structs.replace(family, parameters=kinds)

    def _wrong_default(self, kind: Kind, default: object) -> str:
        """Return why a default is none of its parameter's kind, or nothing."""
        if isinstance(default, float) and math.isnan(default):
            return "the default .nan equals no value, itself included; state a number, or None for nothing"
        try:
            value = from_manifest(kind, default, self.signature.sums)
            fits = accepts(kind, value, self.signature.sums)
        except ExpressionError as error:
            return str(error)
        return "" if fits else f"the default {default!r} is not {kind}"

    def _order(self) -> None:
        required_after = False
        for parameter in reversed([found for found in self.signature.parameters if not found.keyword_only]):
            if parameter.required:
                required_after = True
            elif required_after and parameter.default is not UNREAD:
                message = f"{parameter.name} has a default and stands before a required parameter"
                self.report(("params", parameter.name), "default", message)

    def _combinations(self) -> tuple[Mapping[str, str], ...]:
        """Return the rows of dtypes, or none where one of them is wrong: then no combination is refused."""
        rows = self.signature.dtype_combos
        whole = [row for row in rows if not isinstance(row, Partial) and all(map(self._is_dtype, row))]
        before = len(self.problems)
        usual = Counter(frozenset(row) for row in whole).most_common(1)
        for place, row in enumerate(rows):
            path: Path = ("dtype_combos", place)
            if row in whole and row in rows[:place]:
                self.report(path, "dtype-combos", "the row stands twice", "remove it")
            if row in whole and frozenset(row) != usual[0][0]:
                self.report(path, "dtype-combos", "the rows name different indices", "name the same in each row")
            for name, dtype in row.items():
                kind = self.signature.forall.get(name)
                if not self._is_dtype(name):
                    self.report((*path, name), "dtype-combos", f"{name} is not a DType index")
                elif isinstance(kind, DTypeKind) and dtype not in kind.values:
                    self.report((*path, name), "dtype-combos", f"{name} is never {dtype}; it is {kind}")
        sound = len(whole) == len(rows) and before == len(self.problems)
        return rows if sound else ()

    def _is_dtype(self, name: str) -> bool:
        """Whether a name is an index of dtypes, or may be one."""
        kind = self.signature.forall.get(name)
        unread = kind is None and "forall" in self.signature.lost
        return unread or isinstance(kind, DTypeKind | UnknownKind)


def _taken(group: str, name: str) -> str:
    """Return why a name cannot be declared in a section, or nothing."""
    if name in _RESERVED:
        return f"{name!r} is kept by the language"
    if group == "inputs" and taken_by_call(name):
        return f"{name!r} has a meaning in the generated call"
    if group == "params" and taken_by_op(name):
        return f"{name!r} is a member of every op"
    if group in {"forall", "params"} and name in ROW_FIELDS:
        return f"{name!r} has a meaning in workload rows"
    return ""


def _unknown_types(kind: Kind, sums: Mapping[str, object]) -> list[Kind]:
    """Return the sum types that a kind names and nothing declares."""
    return [member for member in members(kind) if isinstance(member, SumKind) and member.name not in sums]
