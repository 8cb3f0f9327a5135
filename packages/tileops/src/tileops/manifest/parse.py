"""Manifest text to typed entries; every problem of the text is reported, each with its position."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import msgspec

from tileops.errors import ManifestError
from tileops.manifest.document import Document
from tileops.manifest.expressions import parse_expression, parse_shape
from tileops.manifest.kinds import parse_kind
from tileops.manifest.model import (
    REQUIRED,
    Composition,
    Constructor,
    FamilyCase,
    Field,
    Formula,
    OpEntry,
    Parameter,
    Path,
    Problem,
    Roofline,
    Shape,
    Signature,
    Source,
    Stage,
    SumType,
    TensorType,
    TypeFamily,
    WorkloadRow,
)
from tileops.manifest.reading import (
    CaseFields,
    Collector,
    CompositionFields,
    ConstructorFields,
    EntryFields,
    FamilyFields,
    FieldFields,
    ParameterFields,
    RooflineFields,
    SignatureFields,
    StageFields,
    SumFields,
    TensorFields,
    TensorParameterFields,
)
from tileops.manifest.reserved import ROW_FIELDS, SUM_FIELDS, is_lower_name, is_op_name
from tileops.manifest.sums import sound, sum_problems

if TYPE_CHECKING:
    from tileops.manifest.kinds import Kind


def parse_text(
    text: str, file: str, sums: Mapping[str, SumType] | None = None
) -> tuple[dict[str, OpEntry], list[Problem]]:
    """Return the entries of one manifest file and every problem that its text has."""
    return parse_document(Document(text, file), text, sums)


def parse_document(
    document: Document, text: str, sums: Mapping[str, SumType] | None = None
) -> tuple[dict[str, OpEntry], list[Problem]]:
    """Return the entries of one manifest file that is read already, and every problem that its text has."""
    source = Source(file=document.file, positions=document.positions, text=text)
    problems = list(document.problems)
    entries: dict[str, OpEntry] = {}
    if not isinstance(document.value, dict):
        if not problems:
            problems.append(source.problem((), "structure", "a manifest file is a mapping from op names to entries"))
        return entries, problems
    for name, value in document.value.items():
        reader = _EntryReader(source, name, sums or {})
        entry = reader.entry(value)
        problems.extend(reader.problems)
        if entry is not None and not reader.problems:
            entries[name] = entry
    return entries, problems


def parse_sums(text: str, file: str) -> tuple[dict[str, SumType], list[Problem]]:
    """Return the shared sum types of `types.yaml` and every problem that its text has."""
    document = Document(text, file)
    source = Source(file=file, positions=document.positions, text=text)
    reader = _EntryReader(source, "", {})
    value = document.value if isinstance(document.value, dict) else {}
    if not isinstance(document.value, dict) and not document.problems:
        reader.report((), "structure", "a file of types is a mapping from names to sum types")
    read = {name: reader.sum_type(reader.name(name, (name,)), declared, (name,)) for name, declared in value.items()}
    sums = {name: found for name, found in read.items() if found}
    problems = [*document.problems, *reader.problems]
    for found in read.values():
        if found is not None:
            problems.extend(sum_problems(found, sums, source, ()))
    return {name: sound(found) for name, found in sums.items()}, problems


def parse_entry(
    source: str | Mapping[str, object],
    name: str,
    *,
    family: str | None = None,
    sums: Mapping[str, SumType] | None = None,
) -> OpEntry:
    """Return the entry that a YAML text or a plain mapping declares for an op that is not in the manifest.

    Raises:
        ManifestError: the text breaks the language; the error lists every problem.
    """
    if isinstance(source, str):
        document = Document(source, f"<entry {name}>")
        value: object = document.value
        positions, text, problems = document.positions, source, list(document.problems)
    else:
        value, positions, text, problems = dict(source), {}, json.dumps(source, default=str), []
    if family is not None and isinstance(value, dict):
        value = {"status": "spec-only", **value, "family": family}
    prefixed = {(name, *path): position for path, position in positions.items()}
    reader = _EntryReader(Source(file=f"<entry {name}>", positions=prefixed, text=text), name, sums or {})
    entry = reader.entry(value)
    problems.extend(reader.problems)
    if entry is None or problems:
        raise ManifestError(problems)
    return entry


class _EntryReader(Collector):
    """Reads one entry."""

    def __init__(self, source: Source, name: str, sums: Mapping[str, SumType]) -> None:
        super().__init__(source)
        self.op = name
        self.shared_sums = sums

    def entry(self, value: object) -> OpEntry | None:
        path: Path = (self.op,)
        if not is_op_name(self.op):
            self.report(path, "op-name", f"{self.op!r} is not an op's name", "end it in FwdOp or BwdOp")
        fields = self.struct(EntryFields, value, path)
        if fields is None:
            return None
        if not is_lower_name(fields.family):
            self.report((*path, "family"), "family", f"{fields.family!r} is no family", "write a lower-case name")
        signature = self.signature(fields.signature, (*path, "signature"))
        rows = [self.row(row, (*path, "workloads", place)) for place, row in enumerate(fields.workloads)]
        roofline = None if fields.roofline is None else self.roofline(fields.roofline, (*path, "roofline"))
        composition = None
        if fields.composition is not None:
            composition = self.composition(fields.composition, (*path, "composition"))
        if signature is None:
            return None
        return OpEntry(
            name=self.op,
            family=fields.family,
            status=fields.status,
            signature=signature,
            workloads=tuple(row for row in rows if row is not None),
            roofline=roofline,
            composition=composition,
            ref_api=fields.ref_api,
            digest=_digest([value, repr(signature.sums)]),
            source=self.source,
        )

    def signature(self, value: object, path: Path) -> Signature | None:
        fields = self.struct(SignatureFields, value, path)
        if fields is None:
            return None
        forall = {
            self.name(name, (*path, "forall", name)): self.kind(text, (*path, "forall", name))
            for name, text in fields.forall.items()
        }
        parameters = [
            self.parameter(name, declared, (*path, "params", name)) for name, declared in fields.params.items()
        ]
        inputs = [self.tensor(name, declared, (*path, "inputs", name)) for name, declared in fields.inputs.items()]
        outputs = [self.tensor(name, declared, (*path, "outputs", name)) for name, declared in fields.outputs.items()]
        families: dict[str, TypeFamily] = {}
        sums = dict(self.shared_sums)
        for name, declared in fields.types.items():
            self._type(name, declared, (*path, "types", name), families, sums)
        let = {
            self.name(name, (*path, "let", name)): self.formula(text, (*path, "let", name))
            for name, text in fields.let.items()
        }
        rules = [self.formula(rule, (*path, "shape_rules", place)) for place, rule in enumerate(fields.shape_rules)]
        return Signature(
            forall={name: kind for name, kind in forall.items() if kind is not None},
            parameters=tuple(parameter for parameter in parameters if parameter is not None),
            inputs=tuple(tensor for tensor in inputs if tensor is not None),
            outputs=tuple(tensor for tensor in outputs if tensor is not None),
            families=families,
            sums=sums,
            let={name: formula for name, formula in let.items() if formula is not None},
            shape_rules=tuple(rule for rule in rules if rule is not None),
            dtype_combos=tuple(fields.dtype_combos),
            own_sums=frozenset(sums.keys() & fields.types.keys()),
        )

    def kind(self, text: str, path: Path) -> Kind | None:
        return self.expression(parse_kind, text, path, "kind")

    def formula(self, value: object, path: Path) -> Formula | None:
        text = value if isinstance(value, str) else json.dumps(value)
        tree = self.expression(parse_expression, _respelled(value, text), path)
        return None if tree is None else Formula(text, tree)

    def flag(self, value: bool | str, path: Path) -> bool | Formula:
        if isinstance(value, bool):
            return value
        return self.formula(value, path) or False

    def shape(self, text: str, path: Path) -> Shape | None:
        parsed = self.expression(parse_shape, text, path, "shape")
        if parsed is None:
            return None
        return Shape(text, parsed) if isinstance(parsed, tuple) else Shape(text, family=parsed)

    def tensor(self, name: str, value: object, path: Path) -> TensorType | None:
        self.name(name, path)
        fields = self.struct(TensorFields, value, path)
        if fields is None:
            return None
        dtype = self.formula(fields.dtype, (*path, "dtype"))
        shape = self.shape(fields.shape, (*path, "shape"))
        requires = [self.formula(text, (*path, "requires", place)) for place, text in enumerate(fields.requires)]
        if dtype is None or shape is None:
            return None
        return TensorType(
            name=name,
            dtype=dtype,
            shape=shape,
            optional=self.flag(fields.optional, (*path, "optional")),
            mutated=self.flag(fields.mutated, (*path, "mutated")),
            write_only=fields.write_only,
            contiguous=fields.contiguous,
            device=fields.device,
            alias=fields.alias,
            buffer=fields.buffer,
            nullable=None if fields.nullable is None else self.formula(fields.nullable, (*path, "nullable")),
            values=None if fields.values is None else self.formula(fields.values, (*path, "values")),
            requires=tuple(formula for formula in requires if formula is not None),
        )

    def parameter(self, name: str, value: object, path: Path) -> Parameter | None:
        self.name(name, path)
        if isinstance(value, dict) and "shape" in value:
            return self._tensor_parameter(name, value, path)
        fields = self.struct(ParameterFields, value, path)
        kind = None if fields is None else self.kind(fields.type, (*path, "type"))
        if fields is None or kind is None:
            return None
        default = REQUIRED if fields.default is msgspec.UNSET else _frozen(fields.default)
        return Parameter(name=name, kind=kind, default=default, keyword_only=fields.keyword_only)

    def _tensor_parameter(self, name: str, value: object, path: Path) -> Parameter | None:
        fields = self.struct(TensorParameterFields, value, path)
        if fields is None:
            return None
        declared = {key: found for key, found in cast("dict[str, object]", value).items() if key != "keyword_only"}
        tensor = self.tensor(name, declared, path)
        kind = self.kind("None", path)
        if tensor is None or kind is None:
            return None
        default = None if tensor.is_optional else REQUIRED
        return Parameter(name=name, kind=kind, default=default, keyword_only=fields.keyword_only, tensor=tensor)

    def _type(
        self, name: str, value: object, path: Path, families: dict[str, TypeFamily], sums: dict[str, SumType]
    ) -> None:
        self.name(name, path)
        if isinstance(value, dict) and "sum" in value:
            found = self.sum_type(name, value, path)
            if found is not None:
                sums[name] = found
            return
        family = self.family(name, value, path)
        if family is not None:
            families[name] = family

    def family(self, name: str, value: object, path: Path) -> TypeFamily | None:
        fields = self.struct(FamilyFields, value, path)
        if fields is None:
            return None
        kinds = {key: self.kind(text, (*path, "params", key)) for key, text in fields.params.items()}
        matched = [fields.match] if isinstance(fields.match, str) else fields.match
        match = [self.formula(text, (*path, "match")) for text in matched]
        cases = [
            self._case(case, (*path, "cases", place), single=isinstance(fields.match, str))
            for place, case in enumerate(fields.cases)
        ]
        return TypeFamily(
            name=name,
            parameters={key: kind for key, kind in kinds.items() if kind is not None},
            match=tuple(formula for formula in match if formula is not None),
            cases=tuple(case for case in cases if case is not None),
        )

    def _case(self, value: object, path: Path, *, single: bool) -> FamilyCase | None:
        fields = self.struct(CaseFields, value, path)
        shape = None if fields is None else self.shape(fields.shape, (*path, "is"))
        if fields is None or shape is None:
            return None
        when = fields.when if isinstance(fields.when, list) and not single else [fields.when]
        return FamilyCase(tuple(when), shape)

    def sum_type(self, name: str, value: object, path: Path) -> SumType | None:
        fields = self.struct(SumFields, value, path)
        if fields is None:
            return None
        if not fields.sum:
            self.report(path, "sum-type", f"{name} has no constructor", "declare one")
        built = [self._constructor(key, declared, (*path, "sum", key)) for key, declared in fields.sum.items()]
        return SumType(name=name, constructors=tuple(constructor for constructor in built if constructor is not None))

    def _constructor(self, name: str, value: object, path: Path) -> Constructor | None:
        self.name(name, path)
        fields = self.struct(ConstructorFields, value, path)
        if fields is None:
            return None
        read = [self._field(key, declared, (*path, "fields", key)) for key, declared in fields.fields.items()]
        invariant = None if fields.invariant is None else self.formula(fields.invariant, (*path, "invariant"))
        return Constructor(
            name=name,
            python=fields.python,
            fields=tuple(field for field in read if field is not None),
            invariant=invariant,
        )

    def _field(self, name: str, value: object, path: Path) -> Field | None:
        declared = {"type": value} if isinstance(value, str) else value
        fields = self.struct(FieldFields, declared, path)
        if name in SUM_FIELDS:
            self.report(path, "name", f"{name!r} is kept by the language", "rename it")
        kind = None if fields is None else self.kind(fields.type, path)
        return (
            None
            if fields is None or kind is None
            else Field(name=self.name(name, path), kind=kind, python=fields.python)
        )

    def row(self, value: object, path: Path) -> WorkloadRow | None:
        if not isinstance(value, dict):
            self.report(path, "structure", "a workload row is a mapping")
            return None
        label = value.get("label")
        some, cases = value.get("some", []), value.get("dtype_cases", [{}])
        if not isinstance(label, str) or not label:
            self.report(path, "row-label", "a workload row has a label", "name the model scene, as in llama-8b-prefill")
            return None
        try:
            passed = msgspec.convert(some, tuple[str, ...])
            dtype_cases = msgspec.convert(cases, tuple[dict[str, str], ...])
        except msgspec.ValidationError as error:
            self.report(path, "structure", f"row {label}: {error}")
            return None
        values = {key: _frozen(found) for key, found in value.items() if key not in ROW_FIELDS}
        return WorkloadRow(label=label, some=passed, dtype_cases=dtype_cases, values=values)

    def roofline(self, value: object, path: Path) -> Roofline | None:
        fields = self.struct(RooflineFields, value, path)
        if fields is None:
            return None
        flops = None if fields.flops is None else self.formula(fields.flops, (*path, "flops"))
        size = None if fields.bytes is None else self.formula(fields.bytes, (*path, "bytes"))
        return Roofline(flops=flops, bytes=size, func=fields.func)

    def composition(self, value: object, path: Path) -> Composition | None:
        fields = self.struct(CompositionFields, value, path)
        if fields is None:
            return None
        read = [self.struct(StageFields, stage, (*path, "stages", place)) for place, stage in enumerate(fields.stages)]
        return Composition(
            stages=tuple(
                Stage(name=stage.name, op=stage.op, kernel=stage.kernel, optional=stage.optional)
                for stage in read
                if stage is not None
            )
        )


def _frozen(value: object) -> object:
    """Return the value with its lists as tuples."""
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value


def _respelled(value: object, text: str) -> str:
    """Return the text with YAML's words as the language's, where the value was not a text."""
    return text if isinstance(value, str) else {"true": "True", "false": "False", "null": "None"}.get(text, text)


def _digest(value: object) -> str:
    """Return a digest of all that an entry states, equal for equal entries."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
