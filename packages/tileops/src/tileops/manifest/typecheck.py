"""The kind check of an entry: every expression of its signature, roofline and types, each problem with its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tileops.errors import ExpressionError, ManifestError
from tileops.manifest.branches import decide, discriminants, finite_values
from tileops.manifest.checking import Facts, Scope, infer, learn
from tileops.manifest.expressions import Attribute, Call, Comparison, Expression, Literal, Name, ShapeItem, Spread
from tileops.manifest.families import arguments_of
from tileops.manifest.functions import GENERATOR_KINDS, PREDICATE_KINDS, PRIMITIVE_KINDS, FunctionKind
from tileops.manifest.kinds import (
    DTYPE_NAMES,
    BoolKind,
    DimKind,
    DTypeKind,
    IntKind,
    Kind,
    SequenceKind,
    ShapeKind,
    SumKind,
    TensorKind,
    UnionKind,
    fits,
)
from tileops.manifest.model import REQUIRED
from tileops.manifest.reserved import ROW_FIELDS, taken_by_call, taken_by_op
from tileops.manifest.scopes import let_order, plain_scope, scope_of
from tileops.manifest.spelling import spell
from tileops.manifest.sums import sum_problems
from tileops.manifest.values import accepts, from_manifest

if TYPE_CHECKING:
    from tileops.manifest.model import Formula, OpEntry, Path, Problem, Shape, Signature, TensorType, TypeFamily

_RESERVED = DTYPE_NAMES | {"inf", "present", "bytes", "out", "isinstance", "len", "tuple", "any", "self", "target"}
_CHECKED: set[str] = set()
"""Digests of entries without a problem."""
_BYTES = {"bytes": FunctionKind((TensorKind(),), DimKind())}


def check_kinds(entry: OpEntry) -> None:
    """Raise ManifestError with every problem that the kinds of an entry have, if there is any."""
    if entry.digest in _CHECKED:
        return
    problems = TypeCheck(entry).problems()
    if problems:
        raise ManifestError(problems)
    _CHECKED.add(entry.digest)


class TypeCheck:
    """Checks the kinds of one entry."""

    def __init__(self, entry: OpEntry) -> None:
        self.entry = entry
        self.signature: Signature = entry.signature
        self.path: Path = (entry.name, "signature")
        self.found: list[Problem] = []
        self.scope = scope_of(entry.signature)

    def problems(self) -> list[Problem]:
        """Return every problem, in no particular order."""
        self._names()
        self._declared_kinds()
        self._sums()
        self._lets()
        for family in self.signature.families.values():
            self._family(family)
        for tensor in self.signature.inputs:
            self._tensor(tensor, (*self.path, "inputs", tensor.name))
        for tensor in self.signature.outputs:
            self._tensor(tensor, (*self.path, "outputs", tensor.name))
        for parameter in self.signature.parameters:
            if parameter.tensor is not None:
                self._tensor(parameter.tensor, (*self.path, "params", parameter.name))
        self._rules()
        self._combinations()
        self._roofline()
        return self.found

    def report(self, path: Path, rule: str, message: str, mend: str = "") -> None:
        """Keep a problem."""
        self.found.append(self.entry.source.problem(path, rule, message, mend))

    def expect(self, formula: Formula, wanted: Kind, path: Path, rule: str, scope: Scope | None = None) -> bool:
        """Report a formula whose kind is not the wanted one; return whether it is."""
        try:
            kind = infer(formula.tree, scope or self.scope)
        except ExpressionError as error:
            self.report(path, rule, str(error))
            return False
        if not fits(kind, wanted):
            self.report(path, rule, f"{formula.text} is {kind}, and {_kind_name(wanted)} is needed")
            return False
        return True

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
                if name in _RESERVED:
                    self.report((*self.path, group, name), "name", f"{name!r} is kept by the language", "rename it")
                elif group == "inputs" and taken_by_call(name):
                    message = f"{name!r} has a meaning in the generated call"
                    self.report((*self.path, group, name), "name", message, "rename it")
                elif group == "params" and taken_by_op(name):
                    message = f"{name!r} is a member of every op"
                    self.report((*self.path, group, name), "name", message, "rename it")
                elif group in {"forall", "params"} and name in ROW_FIELDS:
                    message = f"{name!r} has a meaning in workload rows"
                    self.report((*self.path, group, name), "name", message, "rename it")
                elif name in sources:
                    message = f"{name!r} is declared under {sources[name]} and under {group}"
                    self.report((*self.path, group, name), "name", message, "give each its own name")
                sources.setdefault(name, group)

    def _declared_kinds(self) -> None:
        for name, kind in self.signature.forall.items():
            allowed = isinstance(kind, DimKind | ShapeKind | DTypeKind) or kind == SequenceKind(IntKind())
            if not allowed:
                message = f"an index is a Dim, a Shape, a DType[...] or a Seq[Int], and {name} is {kind}"
                self.report((*self.path, "forall", name), "index-kind", message)
        for parameter in self.signature.parameters:
            path = (*self.path, "params", parameter.name)
            for member in _members(parameter.kind):
                if isinstance(member, SumKind) and member.name not in self.signature.sums:
                    self.report(path, "kind", f"unknown type {member.name}", "declare it under types or in types.yaml")
            if parameter.default is not REQUIRED and parameter.tensor is None:
                try:
                    value = from_manifest(parameter.kind, parameter.default, self.signature.sums)
                    if not accepts(parameter.kind, value, self.signature.sums):
                        message = f"the default {parameter.default!r} is not {parameter.kind}"
                        self.report((*path, "default"), "default", message)
                except ExpressionError as error:
                    self.report((*path, "default"), "default", str(error))
        required_after = False
        for parameter in reversed([found for found in self.signature.parameters if not found.keyword_only]):
            if parameter.required:
                required_after = True
            elif required_after:
                path = (*self.path, "params", parameter.name)
                self.report(path, "default", f"{parameter.name} has a default and stands before a required parameter")

    def _sums(self) -> None:
        """Report the mistakes of the entry's own sum types; those of types.yaml are reported there."""
        for name in self.signature.own_sums:
            declared = self.signature.sums[name]
            self.found.extend(sum_problems(declared, self.signature.sums, self.entry.source, (*self.path, "types")))

    def _lets(self) -> None:
        ordered, circle = let_order(self.signature)
        scope = plain_scope(self.signature)
        for name in ordered:
            try:
                scope = scope.binding(name, infer(self.signature.let[name].tree, scope))
            except ExpressionError as error:
                self.report((*self.path, "let", name), "let", str(error))
        for name in circle:
            self.report((*self.path, "let", name), "let-cycle", f"{name} is computed from itself", "break the circle")

    def _family(self, family: TypeFamily) -> None:
        path = (*self.path, "types", family.name)
        scope = self.scope
        for name, kind in family.parameters.items():
            if name in scope.names or name in scope.tensors:
                self.report(
                    (*path, "params", name), "name", f"{name!r} already has a meaning in this signature", "rename it"
                )
            scope = scope.binding(name, kind)
        for place, case in enumerate(family.cases):
            if len(case.when) != len(family.match):
                message = f"{len(case.when)} values for {len(family.match)} discriminants"
                self.report((*path, "cases", place), "family", message, "give one value for each")
                continue
            facts = Facts()
            try:
                for formula, value in zip(family.match, case.when, strict=True):
                    self._case_value(formula, value, scope.given(facts), (*path, "cases", place, "when"))
                    if value is not None or not isinstance(formula.tree, Attribute):
                        infer(formula.tree, scope.given(facts))
                    facts = _matched(formula.tree, value, scope.given(facts))
            except ExpressionError as error:
                self.report((*path, "match"), "family", str(error))
                return
            self._shape(case.shape, scope.given(facts), (*path, "cases", place, "is"))

    def _case_value(self, formula: Formula, value: object, scope: Scope, path: Path) -> None:
        """Report a case for a value that its discriminant never has."""
        if value is None and isinstance(formula.tree, Attribute):
            return
        possible = finite_values(infer(formula.tree, scope))
        if possible is not None and value not in possible:
            shown = ", ".join(repr(found) for found in possible)
            self.report(path, "family-case", f"{formula.text} is never {value!r}; it is one of {shown}")

    def _tensor(self, tensor: TensorType, path: Path) -> None:
        self.expect(tensor.dtype, DTypeKind(()), (*path, "dtype"), "dtype")
        self._shape(tensor.shape, self.scope, (*path, "shape"))
        flags = (("optional", tensor.optional), ("mutated", tensor.mutated), ("nullable", tensor.nullable))
        for name, flag in flags:
            if flag is None or isinstance(flag, bool):
                continue
            if self.expect(flag, BoolKind(), (*path, name), "discriminant"):
                self._deciding(flag, (*path, name))
        if tensor.values is not None:
            self._applied(tensor.values, GENERATOR_KINDS, TensorKind(), (*path, "values"), "values")
        for place, formula in enumerate(tensor.requires):
            self._applied(formula, PREDICATE_KINDS, BoolKind(), (*path, "requires", place), "requires")

    def _deciding(self, formula: Formula, path: Path) -> None:
        settled = {found.tree: found.values[0] for found in discriminants(self.signature)}
        try:
            decide(formula.tree, settled)
        except ExpressionError as error:
            mend = "use booleans, words, tags of sum types and present(...)"
            self.report(path, "discriminant", f"{formula.text}: {error}", mend)

    def _applied(
        self, formula: Formula, table: Mapping[str, FunctionKind], wanted: Kind, path: Path, rule: str
    ) -> None:
        """Check a call of one generator or predicate; its arguments are ordinary expressions."""
        if not (isinstance(formula.tree, Call) and formula.tree.function in table):
            known = ", ".join(sorted(table))
            self.report(path, rule, f"{formula.text} is none of the functions for it", f"use one of {known}")
            return
        scope = Scope(
            self.scope.names,
            self.scope.tensors,
            self.scope.optional,
            self.scope.sums,
            {**PRIMITIVE_KINDS, formula.tree.function: table[formula.tree.function]},
        )
        self.expect(formula, wanted, path, rule, scope)

    def _shape(self, shape: Shape, scope: Scope, path: Path) -> None:
        if shape.family is None:
            for item in shape.items:
                self._item(item, scope, path)
            return
        try:
            family, arguments = arguments_of(shape.family, self.signature)
        except ExpressionError as error:
            self.report(path, "family", str(error))
            return
        for name, argument in arguments.items():
            wanted = ShapeKind() if isinstance(argument, Spread) else family.parameters[name]
            tree = argument.value if isinstance(argument, Spread) else argument
            try:
                kind = infer(tree, scope)
            except ExpressionError as error:
                self.report(path, "family", f"{shape.text}: {error}")
                continue
            if not fits(kind, wanted):
                self.report(path, "family", f"{shape.text}: {spell(tree)} is {kind}, and {name} is {wanted}")

    def _item(self, item: ShapeItem, scope: Scope, path: Path) -> None:
        tree = item.value if isinstance(item, Spread) else item
        wanted: Kind = SequenceKind(IntKind()) if isinstance(item, Spread) else IntKind()
        try:
            kind = infer(tree, scope)
        except ExpressionError as error:
            self.report(path, "shape", str(error))
            return
        if fits(kind, wanted):
            return
        if isinstance(kind, ShapeKind | SequenceKind) and not isinstance(item, Spread):
            self.report(path, "shape", f"{spell(tree)} is {kind} and stands as one axis", f"splice it: *{spell(tree)}")
        else:
            self.report(path, "shape", f"{spell(tree)} is {kind}, and {_kind_name(wanted)} is needed")

    def _rules(self) -> None:
        for place, rule in enumerate(self.signature.shape_rules):
            path = (*self.path, "shape_rules", place)
            self.expect(rule, BoolKind(), path, "refinement")
            match rule.tree:
                case Comparison(Name(left), ("==",), (Name(right),)) if {left, right} <= self.signature.forall.keys():
                    message = f"{rule.text} says that two indices are one"
                    self.report(path, "defining-equality", message, f"write {left} in place of {right} in the types")
                case Comparison(Name(name), ("==",), (other,)) if name in self.signature.forall and _sized(other):
                    message = f"{rule.text} defines {name}"
                    mend = f"write {spell(other)} in place of {name} in the types, or as a let"
                    self.report(path, "defining-equality", message, mend)

    def _combinations(self) -> None:
        rows = self.signature.dtype_combos
        for place, row in enumerate(rows):
            path = (*self.path, "dtype_combos", place)
            if set(row) != set(rows[0]):
                self.report(path, "dtype-combos", "the rows name different indices", "name the same in each row")
            for name, dtype in row.items():
                kind = self.signature.forall.get(name)
                if not isinstance(kind, DTypeKind):
                    self.report((*path, name), "dtype-combos", f"{name} is not a DType index")
                elif dtype not in kind.values:
                    self.report((*path, name), "dtype-combos", f"{name} is never {dtype}; it is {kind}")

    def _roofline(self) -> None:
        roofline = self.entry.roofline
        if roofline is None:
            return
        path = (self.entry.name, "roofline")
        if roofline.func is not None and (roofline.flops or roofline.bytes):
            self.report(path, "roofline", "func gives flops and bytes together", "remove the expressions or func")
        if roofline.func is None and roofline.flops is None:
            self.report(path, "roofline", "neither flops nor func is given", "write flops")
        if roofline.flops is not None:
            self.expect(roofline.flops, IntKind(), (*path, "flops"), "roofline")
        if roofline.bytes is not None:
            tensors = self.scope.tensors | {output.name for output in self.signature.outputs}
            functions = {**PRIMITIVE_KINDS, **_BYTES}
            scope = Scope(self.scope.names, tensors, self.scope.optional, self.scope.sums, functions)
            self.expect(roofline.bytes, IntKind(), (*path, "bytes"), "roofline", scope)


def _members(kind: Kind) -> Iterator[Kind]:
    yield from kind.members if isinstance(kind, UnionKind) else (kind,)


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
