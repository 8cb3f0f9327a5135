"""Reading the types that an entry or types.yaml declares: type families and sum types."""

from __future__ import annotations

from tileops.manifest.document import UNREAD
from tileops.manifest.expressions import Unknown
from tileops.manifest.kinds import Kind, UnknownKind
from tileops.manifest.model import Constructor, FamilyCase, Field, Formula, Path, SumType, TypeFamily
from tileops.manifest.parts import PartReader, is_whole
from tileops.manifest.reading import CaseFields, ConstructorFields, FamilyFields, FieldFields, SumFields
from tileops.manifest.reserved import SUM_FIELDS
from tileops.manifest.trees import ANYTHING


class TypeReader(PartReader):
    """Reads declared types."""

    def declared_type(self, name: str, value: object, path: Path) -> TypeFamily | SumType:
        """Return the type family or the sum type that a mapping declares."""
        self.name(name, path)
        if isinstance(value, dict) and ("sum" in value or not value.keys() & {"params", "match", "cases"}):
            return self.sum_type(name, value, path)
        return self.family(name, value, path)

    def family(self, name: str, value: object, path: Path) -> TypeFamily:
        """Return a type family."""
        fields = self.struct(FamilyFields, value, path)
        if fields is None:
            return TypeFamily(name=name, parameters={}, match=(Formula("", Unknown(ANYTHING)),), cases=(), lost=True)
        matched = fields.match if isinstance(fields.match, list) else [fields.match]
        single = not isinstance(fields.match, list)
        return TypeFamily(
            name=name,
            parameters=self.kinds(fields.params, (*path, "params")),
            match=tuple(self.formula(text, (*path, "match")) for text in matched),
            cases=tuple(
                self._case(case, (*path, "cases", place), single=single)
                for place, case in enumerate(fields.cases if isinstance(fields.cases, list) else ())
            ),
            lost=fields.params is UNREAD or fields.cases is UNREAD,
        )

    def _case(self, value: object, path: Path, *, single: bool) -> FamilyCase:
        fields = self.struct(CaseFields, value, path)
        if fields is None or fields.when is UNREAD:
            return FamilyCase((UNREAD,), self.shape(UNREAD if fields is None else fields.shape, (*path, "is")))
        when = fields.when if isinstance(fields.when, list) and not single else [fields.when]
        return FamilyCase(tuple(when), self.shape(fields.shape, (*path, "is")))

    def sum_type(self, name: str, value: object, path: Path) -> SumType:
        """Return a sum type."""
        fields = self.struct(SumFields, value, path)
        if fields is None or fields.sum is UNREAD:
            return SumType(name=name, constructors=(), lost=True)
        declared = self.mapping(fields.sum)
        if not declared:
            self.report(path, "sum-type", f"{name} has no constructor", "declare one")
        built = (self._constructor(key, found, (*path, "sum", key)) for key, found in declared.items())
        return SumType(name=name, constructors=tuple(built), lost=not declared)

    def _constructor(self, name: str, value: object, path: Path) -> Constructor:
        self.name(name, path)
        fields = self.struct(ConstructorFields, value, path)
        if fields is None:
            return Constructor(name=name, python="", incomplete=True)
        read = self.mapping(fields.fields).items()
        return Constructor(
            name=name,
            python=fields.python if isinstance(fields.python, str) else "",
            fields=tuple(self._field(key, declared, (*path, "fields", key)) for key, declared in read),
            invariant=None if fields.invariant is None else self.formula(fields.invariant, (*path, "invariant")),
            incomplete=fields.python is UNREAD or not is_whole(fields.fields),
        )

    def _field(self, name: str, value: object, path: Path) -> Field:
        declared = {"type": value} if isinstance(value, str) else value
        fields = self.struct(FieldFields, declared, path)
        if name in SUM_FIELDS:
            self.report(path, "name", f"{name!r} is kept by the language", "rename it")
        kind: Kind = UnknownKind() if fields is None else self.kind(fields.type, path)
        python = None if fields is None or not isinstance(fields.python, str) else fields.python
        return Field(name=self.name(name, path), kind=kind, python=python)
