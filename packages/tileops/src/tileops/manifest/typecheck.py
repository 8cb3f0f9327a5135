"""The kind check of an entry: every expression of its signature, roofline and types, each problem with its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tileops.errors import ExpressionError, ManifestError
from tileops.manifest.branches import atoms, decide, discriminants, finite_values
from tileops.manifest.checking import infer, learn
from tileops.manifest.declarations import Declarations
from tileops.manifest.document import UNREAD
from tileops.manifest.expressions import (
    Attribute,
    Call,
    Comparison,
    Expression,
    Literal,
    Name,
    ShapeItem,
    Spread,
    Unknown,
)
from tileops.manifest.facts import Facts, Scope
from tileops.manifest.families import arguments_of
from tileops.manifest.functions import GENERATOR_KINDS, PREDICATE_KINDS, PRIMITIVE_KINDS, FunctionKind
from tileops.manifest.kinds import (
    BoolKind,
    DimKind,
    DTypeKind,
    IntKind,
    Kind,
    SequenceKind,
    ShapeKind,
    TensorKind,
    UnknownKind,
    fits,
)
from tileops.manifest.model import FamilyCase, Formula, Roofline, Shape, TensorType, TypeFamily
from tileops.manifest.reading import counted
from tileops.manifest.scopes import let_order, plain_scope
from tileops.manifest.spelling import spell
from tileops.manifest.trees import free_names, possible_names

if TYPE_CHECKING:
    from tileops.manifest.model import OpEntry, Path, Problem, Signature

_CHECKED: set[str] = set()
"""Digests of entries without a problem."""
_BYTES = {"bytes": FunctionKind((TensorKind(),), DimKind())}


def check_kinds(entry: OpEntry) -> None:
    """Raise ManifestError with every problem that the kinds of an entry have, if there is any."""
    if entry.digest in _CHECKED:
        return
    _, problems = checked(entry)
    if problems:
        raise ManifestError(problems)
    _CHECKED.add(entry.digest)


def checked(entry: OpEntry) -> tuple[OpEntry, list[Problem]]:
    """Return the entry with what is of no kind as unknown, and every problem that its kinds have.

    An entry without a problem is returned as it is. In any other, what a wrong part decides is unknown too, so that
    checks of the result find only mistakes that do not follow from those.
    """
    check = _TypeCheck(entry)
    sound = check.sound()
    same = (sound.signature, sound.roofline) == (entry.signature, entry.roofline)
    return entry if same else sound, check.found


class _TypeCheck:
    """Checks the kinds of one entry, each method returning what is sound of its part."""

    def __init__(self, entry: OpEntry) -> None:
        self.entry = entry
        self.path: Path = (entry.name, "signature")
        declarations = Declarations(entry)
        self.signature: Signature = declarations.sound()
        self.found: list[Problem] = declarations.problems
        self.scope = plain_scope(self.signature)

    def sound(self) -> OpEntry:
        """Keep every problem, and return the entry as far as it is sound."""
        signature = self.signature
        let = self._lets()
        parts = {
            "let": let,
            "families": {name: self._family(family) for name, family in signature.families.items()},
            "inputs": tuple(self._tensor(found, (*self.path, "inputs", found.name)) for found in signature.inputs),
            "outputs": tuple(self._tensor(found, (*self.path, "outputs", found.name)) for found in signature.outputs),
            "parameters": tuple(
                found
                if found.tensor is None
                else msgspec.structs.replace(
                    found, tensor=self._tensor(found.tensor, (*self.path, "params", found.name))
                )
                for found in signature.parameters
            ),
            "shape_rules": tuple(self._rules()),
        }
        return msgspec.structs.replace(
            self.entry, signature=msgspec.structs.replace(signature, **parts), roofline=self._roofline()
        )

    def report(self, path: Path, rule: str, message: str, mend: str = "") -> None:
        """Keep a problem."""
        self.found.append(self.entry.source.problem(path, rule, message, mend))

    def kind(self, tree: Expression, path: Path, rule: str, scope: Scope, prefix: str = "") -> Kind | None:
        """Return the kind of an expression, or None after reporting everything that is wrong with it."""
        faults: list[str] = []
        kind = infer(tree, dataclasses.replace(scope, faults=faults))
        for fault in faults:
            self.report(path, rule, f"{prefix}{fault}")
        return None if faults else kind

    def expect(self, formula: Formula, wanted: Kind, path: Path, rule: str, scope: Scope | None = None) -> Formula:
        """Return the formula, unknown after reporting it where its kind is not the wanted one."""
        kind = self.kind(formula.tree, path, rule, scope or self.scope)
        if kind is not None and fits(kind, wanted):
            return formula
        if kind is not None:
            self.report(path, rule, f"{formula.text} is {kind}, and {_kind_name(wanted)} is needed")
        return _unknown(formula)

    def _lets(self) -> dict[str, Formula]:
        ordered, circles = let_order(self.signature)
        sound = dict(self.signature.let)
        for first, *others in circles:
            through = f" through {', '.join(others)}" if others else ""
            message = f"{first} is computed from itself{through}"
            self.report((*self.path, "let", first), "let-cycle", message, "break the circle")
            for name in (first, *others):
                sound[name] = _unknown(sound[name])
                self.scope = self.scope.binding(name, UnknownKind())
        for name in ordered:
            formula = sound[name]
            kind = self.kind(formula.tree, (*self.path, "let", name), "let", self.scope)
            if kind is None:
                sound[name] = _unknown(formula)
            self.scope = self.scope.binding(name, kind or UnknownKind())
        return sound

    def _family(self, family: TypeFamily) -> TypeFamily:
        path = (*self.path, "types", family.name)
        scope = self.scope
        for name, kind in family.parameters.items():
            if name in scope.names or name in scope.tensors:
                message = f"{name!r} already has a meaning in this signature"
                self.report((*path, "params", name), "name", message, "rename it")
            scope = scope.binding(name, kind)
        match = self._match(family, scope, (*path, "match"))
        cases = tuple(
            self._case(case, match, scope, (*path, "cases", place)) for place, case in enumerate(family.cases)
        )
        return msgspec.structs.replace(family, match=match, cases=cases)

    def _match(self, family: TypeFamily, scope: Scope, path: Path) -> tuple[Formula, ...]:
        """Return the discriminants of a family; one that is wrong where some case asks for it is unknown."""
        wrong: dict[str, int] = {}
        for case in family.cases or (FamilyCase((UNREAD,) * len(family.match), Shape("")),):
            facts = Facts()
            for place, (formula, value) in enumerate(zip(family.match, case.when, strict=False)):
                faults: list[str] = []
                inner = dataclasses.replace(scope.given(facts), faults=faults)
                if value is not None or not isinstance(formula.tree, Attribute):
                    infer(formula.tree, inner)
                wrong |= dict.fromkeys(faults, place)
                if faults or value is UNREAD or _excluding(formula, value, inner):
                    break
                facts = _matched(formula.tree, value, inner)
        for fault in wrong:
            self.report(path, "family", fault)
        return tuple(
            _unknown(formula)
            if place in wrong.values() or _unclear(formula.tree, scope) or not self._decides(formula, scope, path)
            else formula
            for place, formula in enumerate(family.match)
        )

    def _decides(self, formula: Formula, scope: Scope, path: Path) -> bool:
        """Whether a family may match on a formula; report one that reads what has no finite set of values."""
        settled: dict[Expression, object] = {}
        for atom in atoms(formula.tree):
            unmatched: list[str] = []
            values = finite_values(infer(atom, dataclasses.replace(scope, faults=unmatched)))
            if values or unmatched:
                settled[atom] = values[0] if values else None
        try:
            decide(formula.tree, settled)
        except ExpressionError as error:
            mend = "match booleans, words, tags of sum types and present(...)"
            self.report(path, "discriminant", f"{formula.text}: {error}", mend)
            return False
        return True

    def _case(self, case: FamilyCase, match: tuple[Formula, ...], scope: Scope, path: Path) -> FamilyCase:
        """Return a case; one for a value that its discriminant never has stands for some value that is not known."""
        when, facts = case.when, Facts()
        if UNREAD not in when and len(when) != len(match):
            message = f"{counted(len(when), 'value')} for {counted(len(match), 'discriminant')}"
            self.report(path, "family", message, "give one value for each")
            when = (UNREAD,)
        elif UNREAD not in when:
            for formula, value in zip(match, case.when, strict=True):
                if not formula.known:
                    continue
                inner = dataclasses.replace(scope.given(facts), faults=[])
                possible = _excluding(formula, value, inner)
                if possible:
                    shown = ", ".join(map(repr, possible))
                    message = f"{formula.text} is never {value!r}; it is one of {shown}"
                    self.report((*path, "when"), "family-case", message)
                    when = (UNREAD,)
                    break
                facts = _matched(formula.tree, value, inner)
        if UNREAD in when or not all(formula.known for formula in match):
            for formula in match:
                for name in possible_names(formula.tree) & scope.names.keys():
                    scope = scope.binding(name, UnknownKind())
        return FamilyCase(when, self._shape(case.shape, scope.given(facts), (*path, "is")))

    def _tensor(self, tensor: TensorType, path: Path) -> TensorType:
        values, requires = tensor.values, list(tensor.requires)
        if values is not None and values.known:
            values = self._applied(values, GENERATOR_KINDS, TensorKind(), (*path, "values"), "values")
        for place, formula in enumerate(requires):
            if formula.known:
                here = (*path, "requires", place)
                requires[place] = self._applied(formula, PREDICATE_KINDS, BoolKind(), here, "requires")
        return msgspec.structs.replace(
            tensor,
            dtype=self.expect(tensor.dtype, DTypeKind(()), (*path, "dtype"), "dtype"),
            shape=self._shape(tensor.shape, self.scope, (*path, "shape")),
            optional=self._flag(tensor.optional, (*path, "optional")),
            mutated=self._flag(tensor.mutated, (*path, "mutated")),
            nullable=None if tensor.nullable is None else self._deciding(tensor.nullable, (*path, "nullable")),
            values=values,
            requires=tuple(requires),
        )

    def _flag(self, flag: bool | Formula, path: Path) -> bool | Formula:
        return flag if isinstance(flag, bool) else self._deciding(flag, path)

    def _deciding(self, formula: Formula, path: Path) -> Formula:
        """Return a formula of discriminants; report one that reads anything else."""
        sound = self.expect(formula, BoolKind(), path, "discriminant")
        if not sound.known:
            return sound
        if _unclear(sound.tree, self.scope):
            return _unknown(sound)
        settled = {found.tree: found.values[0] for found in discriminants(self.signature)}
        try:
            decide(formula.tree, settled)
        except ExpressionError as error:
            mend = "use booleans, words, tags of sum types and present(...)"
            self.report(path, "discriminant", f"{formula.text}: {error}", mend)
            return _unknown(sound)
        return sound

    def _applied(
        self, formula: Formula, table: Mapping[str, FunctionKind], wanted: Kind, path: Path, rule: str
    ) -> Formula:
        """Check a call of one generator or predicate; its arguments are ordinary expressions."""
        if not (isinstance(formula.tree, Call) and formula.tree.function in table):
            known = ", ".join(sorted(table))
            self.report(path, rule, f"{formula.text} is none of the functions for it", f"use one of {known}")
            return _unknown(formula)
        functions = {**PRIMITIVE_KINDS, formula.tree.function: table[formula.tree.function]}
        return self.expect(formula, wanted, path, rule, dataclasses.replace(self.scope, functions=functions))

    def _shape(self, shape: Shape, scope: Scope, path: Path) -> Shape:
        if shape.family is None:
            return msgspec.structs.replace(shape, items=tuple(self._item(item, scope, path) for item in shape.items))
        arguments = dict(enumerate(shape.family.arguments))
        wanted: dict[int, tuple[str, Kind]] = {}
        sound = True
        family = self.signature.families.get(shape.family.function)
        if (family is not None or "types" not in self.signature.lost) and not (family and family.lost):
            try:
                found, _ = arguments_of(shape.family, self.signature)
                wanted = dict(enumerate(found.parameters.items()))
            except ExpressionError as error:
                self.report(path, "family", str(error))
                sound = False
        else:
            sound = False
        for place, argument in arguments.items():
            tree = argument.value if isinstance(argument, Spread) else argument
            kind = self.kind(tree, path, "family", scope, f"{shape.text}: ")
            sound = sound and kind is not None and not _unclear(tree, scope)
            name, needed = wanted.get(place, ("", UnknownKind()))
            if kind is not None and not fits(kind, ShapeKind() if isinstance(argument, Spread) else needed):
                self.report(path, "family", f"{shape.text}: {spell(tree)} is {kind}, and {name} is {needed}")
                sound = False
        if sound:
            return shape
        read = possible_names(Call("", shape.family.arguments)) | {shape.family.function}
        return Shape(shape.text, (Spread(Unknown(read)),))

    def _item(self, item: ShapeItem, scope: Scope, path: Path) -> ShapeItem:
        tree = item.value if isinstance(item, Spread) else item
        wanted: Kind = SequenceKind(IntKind()) if isinstance(item, Spread) else IntKind()
        kind = self.kind(tree, path, "shape", scope)
        if kind is not None and fits(kind, wanted):
            return item
        if isinstance(kind, ShapeKind | SequenceKind) and not isinstance(item, Spread):
            self.report(path, "shape", f"{spell(tree)} is {kind} and stands as one axis", f"splice it: *{spell(tree)}")
        elif kind is not None:
            self.report(path, "shape", f"{spell(tree)} is {kind}, and {_kind_name(wanted)} is needed")
        return Spread(Unknown(possible_names(tree)))

    def _rules(self) -> list[Formula]:
        sound = []
        for place, rule in enumerate(self.signature.shape_rules):
            path = (*self.path, "shape_rules", place)
            sound.append(self.expect(rule, BoolKind(), path, "refinement"))
            match rule.tree:
                case Comparison(Name(left), ("==",), (Name(right),)) if {left, right} <= self.signature.forall.keys():
                    message = f"{rule.text} says that two indices are one"
                    self.report(path, "defining-equality", message, f"write {left} in place of {right} in the types")
                case Comparison(Name(name), ("==",), (other,)) if name in self.signature.forall and _sized(other):
                    message = f"{rule.text} defines {name}"
                    mend = f"write {spell(other)} in place of {name} in the types, or as a let"
                    self.report(path, "defining-equality", message, mend)
        return sound

    def _roofline(self) -> Roofline | None:
        roofline = self.entry.roofline
        if roofline is None:
            return None
        path = (self.entry.name, "roofline")
        if roofline.func is not None and (roofline.flops or roofline.bytes):
            self.report(path, "roofline", "func gives flops and bytes together", "remove the expressions or func")
        if roofline.func is None and roofline.flops is None:
            self.report(path, "roofline", "neither flops nor func is given", "write flops")
        flops, size = roofline.flops, roofline.bytes
        if flops is not None:
            flops = self.expect(flops, IntKind(), (*path, "flops"), "roofline")
        if size is not None:
            tensors = self.scope.tensors | {output.name for output in self.signature.outputs}
            scope = dataclasses.replace(self.scope, tensors=tensors, functions={**PRIMITIVE_KINDS, **_BYTES})
            size = self.expect(size, IntKind(), (*path, "bytes"), "roofline", scope)
        return msgspec.structs.replace(roofline, flops=flops, bytes=size)


def _unclear(tree: Expression, scope: Scope) -> bool:
    """Whether an expression reads a name that is declared wrongly."""
    return any(isinstance(scope.names.get(name), UnknownKind) for name in free_names(tree))


def _unknown(formula: Formula) -> Formula:
    """Return the formula as one that is unknown and may read what it names."""
    return Formula(formula.text, Unknown(possible_names(formula.tree)))


def _excluding(formula: Formula, value: object, scope: Scope) -> tuple[object, ...]:
    """Return the values of a discriminant that never has this one, or nothing where it may have it."""
    if value is None and isinstance(formula.tree, Attribute):
        return ()
    possible = finite_values(infer(formula.tree, scope)) or ()
    return () if any(type(value) is type(found) and value == found for found in possible) else possible


def _matched(tree: Expression, value: object, scope: Scope) -> Facts:
    """Return what is known where a discriminant has the value of a case."""
    if isinstance(value, bool):
        return learn(tree, scope, holds=value)
    if value is None or isinstance(value, str):
        return learn(Comparison(tree, ("==",), (Literal(value),)), scope, holds=True)
    return scope.facts


def _sized(tree: Expression) -> bool:
    """Whether an expression could stand as an axis: it is no word, no truth value and no None."""
    return not (isinstance(tree, Literal) and not isinstance(tree.value, int))


def _kind_name(kind: Kind) -> str:
    if kind == DTypeKind(()):
        return "a dtype"
    return "a sequence of numbers" if kind == SequenceKind(IntKind()) else str(kind)
