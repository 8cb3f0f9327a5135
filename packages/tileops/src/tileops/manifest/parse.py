"""Manifest text to typed entries; every problem of the text is reported, each with its position."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from tileops.errors import ManifestError
from tileops.manifest.declared import TypeReader
from tileops.manifest.document import UNREAD, Document, Partial
from tileops.manifest.model import (
    Composition,
    OpEntry,
    Path,
    Problem,
    Roofline,
    Signature,
    Source,
    Stage,
    SumType,
    TypeFamily,
    WorkloadRow,
)
from tileops.manifest.parts import frozen, is_whole
from tileops.manifest.reading import CompositionFields, EntryFields, RooflineFields, SignatureFields, StageFields
from tileops.manifest.reserved import ROW_FIELDS, is_lower_name, is_op_name
from tileops.manifest.sums import sound, sum_problems

SECTIONS: Final = frozenset(SignatureFields.__struct_fields__)


class Reading(NamedTuple):
    """What a manifest file gives: the entries whose text has no problem, every problem, and all entries as drafts.

    In the draft of an entry that has problems, what could not be read is unknown, so that the rest can be checked.
    """

    entries: dict[str, OpEntry]
    problems: list[Problem]
    drafts: dict[str, OpEntry]


def parse_text(text: str, file: str, sums: Mapping[str, SumType] | None = None) -> Reading:
    """Return the entries of one manifest file and every problem that its text has."""
    return parse_document(Document(text, file), text, sums)


def parse_document(document: Document, text: str, sums: Mapping[str, SumType] | None = None) -> Reading:
    """Return the entries of one manifest file that is read already, and every problem that its text has."""
    source = Source(file=document.file, positions=document.positions, text=text)
    reading = Reading({}, list(document.problems), {})
    if not isinstance(document.value, dict):
        if not reading.problems:
            message = "a manifest file is a mapping from op names to entries"
            reading.problems.append(source.problem((), "structure", message))
        return reading
    for name, value in document.value.items():
        reader = _EntryReader(source, name, sums or {})
        entry = reader.entry(value)
        reading.problems.extend(reader.problems)
        if entry is None:
            continue
        reading.drafts[name] = entry
        if not reader.problems and is_whole(value):
            reading.entries[name] = entry
    return reading


def parse_sums(text: str, file: str) -> tuple[dict[str, SumType], list[Problem]]:
    """Return the shared sum types of `types.yaml` and every problem that its text has."""
    document = Document(text, file)
    source = Source(file=file, positions=document.positions, text=text)
    reader = _EntryReader(source, "", {})
    value = document.value if isinstance(document.value, dict) else {}
    if not isinstance(document.value, dict) and not document.problems:
        reader.report((), "structure", "a file of types is a mapping from names to sum types")
    read = [reader.sum_type(reader.name(name, (name,)), declared, (name,)) for name, declared in value.items()]
    sums = {found.name: found for found in read}
    problems = [*document.problems, *reader.problems]
    problems += [problem for found in sums.values() for problem in sum_problems(found, sums, reader.source, ())]
    return {name: sound(found, sums) for name, found in sums.items()}, problems


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
        value = type(value)({"status": "spec-only", **value, "family": family})
    prefixed = {(name, *path): position for path, position in positions.items()}
    reader = _EntryReader(Source(file=f"<entry {name}>", positions=prefixed, text=text), name, sums or {})
    entry = reader.entry(value)
    problems.extend(reader.problems)
    if entry is None or problems:
        raise ManifestError(problems)
    return entry


class _EntryReader(TypeReader):
    """Reads one entry."""

    def entry(self, value: object) -> OpEntry | None:
        path: Path = (self.op,)
        if not is_op_name(self.op):
            self.report(path, "op-name", f"{self.op!r} is not an op's name", "end it in FwdOp or BwdOp")
        fields = self.struct(EntryFields, value, path)
        if fields is None:
            return None
        family = fields.family if isinstance(fields.family, str) else ""
        lost = {name for name in ("workloads", "composition") if getattr(fields, name) is UNREAD}
        if fields.family is UNREAD:
            lost.add("family")
        elif not is_lower_name(family):
            self.report((*path, "family"), "family", f"{family!r} is no family", "write a lower-case name")
            lost.add("family")
        signature = self.signature(fields.signature, (*path, "signature"))
        listed = fields.workloads if isinstance(fields.workloads, list) else []
        declared = {*signature.forall, *(parameter.name for parameter in signature.parameters)}
        rows = [self.row(row, place, declared, (*path, "workloads", place)) for place, row in enumerate(listed)]
        if any(row is None for row in rows):
            lost.add("workloads")
        return OpEntry(
            name=self.op,
            family=family,
            status=fields.status if fields.status == "implemented" else "spec-only",
            signature=signature,
            workloads=tuple(row for row in rows if row is not None),
            roofline=None if fields.roofline is None else self.roofline(fields.roofline, (*path, "roofline")),
            composition=(
                None if fields.composition is None else self.composition(fields.composition, (*path, "composition"))
            ),
            ref_api=fields.ref_api if isinstance(fields.ref_api, str) else None,
            digest=_digest([value, repr(signature.sums)]),
            source=self.source,
            lost=frozenset(lost),
        )

    def signature(self, value: object, path: Path) -> Signature:
        fields = self.struct(SignatureFields, value, path)
        if fields is None:
            fields, lost = SignatureFields(), SECTIONS
        else:
            lost = frozenset(name for name in SECTIONS if not _is_read(getattr(fields, name)))
        parameters = self.mapping(fields.params).items()
        inputs, outputs = self.mapping(fields.inputs).items(), self.mapping(fields.outputs).items()
        families: dict[str, TypeFamily] = {}
        sums = dict(self.shared_sums)
        own = self.mapping(fields.types)
        for name, declared in own.items():
            found = self.declared_type(name, declared, (*path, "types", name))
            if isinstance(found, SumType):
                sums[name] = found
            else:
                families[name] = found
        let = {
            self.name(name, (*path, "let", name)): self.formula(text, (*path, "let", name))
            for name, text in self.mapping(fields.let).items()
        }
        return Signature(
            forall=self.kinds(fields.forall, (*path, "forall")),
            parameters=tuple(self.parameter(name, found, (*path, "params", name)) for name, found in parameters),
            inputs=tuple(self.tensor(name, found, (*path, "inputs", name)) for name, found in inputs),
            outputs=tuple(self.tensor(name, found, (*path, "outputs", name)) for name, found in outputs),
            families=families,
            sums=sums,
            let=let,
            shape_rules=self.formulas(fields.shape_rules, (*path, "shape_rules")),
            dtype_combos=tuple(self._combinations(fields.dtype_combos, (*path, "dtype_combos"))),
            own_sums=frozenset(sums.keys() & own.keys()),
            lost=lost,
        )

    def _combinations(self, value: object, path: Path) -> list[Mapping[str, str]]:
        """Return the rows of dtypes; one of which something is wrong is partial."""
        listed = value if isinstance(value, list) else []
        return [self._dtypes(row, (*path, place)) for place, row in enumerate(listed)]

    def _dtypes(self, value: object, path: Path) -> dict[str, str]:
        """Return a mapping of names to dtypes' names; it is partial when a part of it is no such thing."""
        if not isinstance(value, dict):
            self.unfit(path, value, "a mapping")
            return Partial[str]()
        read = {name: self.converted(dtype, str, (*path, name)) for name, dtype in value.items()}
        found = {name: dtype for name, dtype in read.items() if isinstance(dtype, str)}
        return found if len(found) == len(read) and not isinstance(value, Partial) else Partial[str](found)

    def row(self, value: object, place: int, declared: set[str], path: Path) -> WorkloadRow | None:
        if not isinstance(value, dict):
            if value is not UNREAD:
                self.report(path, "structure", "a workload row is a mapping")
            return None
        value = self._spelled(value, declared, path)
        label = value.get("label", UNREAD if isinstance(value, Partial) else None)
        if label is not UNREAD and (not isinstance(label, str) or not label):
            self.report(path, "row-label", "a workload row has a label", "name the model scene, as in llama-8b-prefill")
        lost = {"label"} if not isinstance(label, str) or not label else set()
        some = self.converted(value.get("some", []), list[object], (*path, "some"))
        passed = [
            self.converted(name, str, (*path, "some", number))
            for number, name in enumerate(some if isinstance(some, list | tuple) else ())
        ]
        if some is UNREAD or UNREAD in passed or isinstance(value, Partial):
            lost.add("some")
        cases = self.converted(value.get("dtype_cases", [{}]), list[object], (*path, "dtype_cases"))
        if cases is UNREAD:
            cases = [Partial[str]()]
        listed = cases if isinstance(cases, list | tuple) else ()
        return WorkloadRow(
            label=label if isinstance(label, str) else "",
            some=tuple(name for name in passed if isinstance(name, str)),
            dtype_cases=tuple(
                self._dtypes(dtypes, (*path, "dtype_cases", number)) for number, dtypes in enumerate(listed)
            ),
            values={key: frozen(found) for key, found in value.items() if key not in ROW_FIELDS},
            place=place,
            lost=frozenset(lost | ({"values"} if isinstance(value, Partial) else set())),
        )

    def _spelled(self, value: dict[str, object], declared: set[str], path: Path) -> dict[str, object]:
        """Return a row with each misspelled field under the name that it is near."""
        for key in [key for key in value if key not in declared and key not in ROW_FIELDS]:
            for near in difflib.get_close_matches(key, [name for name in ROW_FIELDS if name not in value], n=1):
                self.report((*path, key), "unknown-field", f"unknown field {key!r}", f"did you mean {near!r}?")
                self.moved((*path, key), (*path, near))
                held = type(value)((near if name == key else name, found) for name, found in value.items())
                return self._spelled(held, declared, path)
        return value

    def roofline(self, value: object, path: Path) -> Roofline:
        fields = self.struct(RooflineFields, value, path)
        if fields is None:
            return Roofline(flops=self.formula(UNREAD, path))
        func = fields.func if isinstance(fields.func, str) else None
        flops = UNREAD if fields.func is UNREAD and fields.flops is None else fields.flops
        return Roofline(
            flops=None if flops is None else self.formula(flops, (*path, "flops")),
            bytes=None if fields.bytes is None else self.formula(fields.bytes, (*path, "bytes")),
            func=func,
        )

    def composition(self, value: object, path: Path) -> Composition:
        fields = self.struct(CompositionFields, value, path)
        if fields is None or not isinstance(fields.stages, list):
            return Composition(stages=(), lost=True)
        read = [self.struct(StageFields, stage, (*path, "stages", place)) for place, stage in enumerate(fields.stages)]
        return Composition(stages=tuple(_stage(stage) for stage in read))


def _stage(fields: StageFields | None) -> Stage:
    if fields is None:
        return Stage(name="", lost=True)
    op, kernel = (word if isinstance(word, str) else None for word in (fields.op, fields.kernel))
    lost = any(word is UNREAD for word in (fields.name, fields.op, fields.kernel))
    return Stage(
        name=fields.name if isinstance(fields.name, str) else "",
        op=op,
        kernel=kernel,
        optional=fields.optional is True,
        lost=lost,
    )


def _is_read(section: object) -> bool:
    return section is not UNREAD and not isinstance(section, Partial)


def _digest(value: object) -> str:
    """Return a digest of all that an entry states, equal for equal entries."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
