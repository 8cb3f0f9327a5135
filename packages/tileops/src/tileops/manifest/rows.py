"""Rules of workload rows: each is a call that the signature accepts, and together they cover the optional tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from tileops.errors import ExpressionError
from tileops.manifest import roofline, workloads
from tileops.manifest.kinds import UnknownKind
from tileops.manifest.model import Formula
from tileops.manifest.rowcheck import RowCheck
from tileops.manifest.rowvalues import dtype_faults, is_partial, passed_faults

if TYPE_CHECKING:
    from tileops.manifest.excuses import Excuses
    from tileops.manifest.model import OpEntry, Path, Problem, WorkloadRow
    from tileops.manifest.plan import SignaturePlan

_LABEL: Final = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


def problems(entry: OpEntry, plan: SignaturePlan | None, excuses: Excuses) -> Iterator[Problem]:
    """Yield what is wrong with the rows of an entry, as far as its signature is right.

    Args:
        entry: the entry, in which what is wrong is unknown.
        plan: the plan of the entry, or None where too much of it is unknown to call it.
        excuses: what unknown names of the signature stand for.
    """
    if not entry.workloads and "workloads" not in entry.lost:
        yield entry.source.problem((entry.name,), "no-rows", "the entry has no workload row", "add a model's call")
    if entry.roofline is not None and entry.roofline.func is not None:
        message = _wrong_function(entry.roofline.func)
        if message:
            yield entry.source.problem((entry.name, "roofline", "func"), "roofline", message, "mend the dotted name")
            entry = msgspec.structs.replace(entry, roofline=None)
    seen: set[str] = set()
    ids: set[str] = set()
    for row in entry.workloads:
        path: Path = (entry.name, "workloads", row.place)
        if "label" not in row.lost:
            yield from _label(entry, row, path, seen, ids)
        for found in RowCheck(entry, row, plan, excuses).found():
            message = f"row {row.label or row.place + 1}: {found.message}"
            yield entry.source.problem((*path, *found.path), "workload-row", message, found.mend)
    if "workloads" not in entry.lost:
        yield from _coverage(entry)


def _label(entry: OpEntry, row: WorkloadRow, path: Path, seen: set[str], ids: set[str]) -> Iterator[Problem]:
    """Yield what is wrong with a row's label and with the ids of its cases, and add them to those that were seen."""
    if row.label in seen:
        yield entry.source.problem(path, "row-label", f"the label {row.label!r} stands twice", "give each its own")
    else:
        yield from _repeated(entry, row, path, ids)
    if not _LABEL.fullmatch(row.label):
        message = f"{row.label!r} is no label"
        yield entry.source.problem((*path, "label"), "row-label", message, "write words as in llama-8b-prefill")
    seen.add(row.label)


def _wrong_function(name: str) -> str:
    """Return why a dotted name is no cost function of this package, or nothing; others are not even imported."""
    if not name.startswith("tileops."):
        return f"{name} is no function of this package"
    try:
        roofline.cost_function(name)
    except ExpressionError as error:
        return str(error)
    return ""


def _repeated(entry: OpEntry, row: WorkloadRow, path: Path, ids: set[str]) -> Iterator[Problem]:
    """Yield the dtype cases whose ids another case has, and add the row's to the ids."""
    unclear = any(isinstance(kind, UnknownKind) for kind in entry.signature.forall.values())
    for number, dtypes in enumerate(row.dtype_cases):
        if unclear or is_partial(dtypes) or dtype_faults(entry.signature, dtypes):
            continue
        found = workloads.case_id(entry.signature, row, dtypes)
        if found in ids:
            message = f"the case id {found} stands twice"
            yield entry.source.problem((*path, "dtype_cases", number), "case-id", message, "remove one, or relabel")
        ids.add(found)


def _coverage(entry: OpEntry) -> Iterator[Problem]:
    declared = [(("signature", "inputs"), tensor) for tensor in entry.signature.inputs]
    declared += [(("signature", "params"), found.tensor) for found in entry.signature.parameters if found.tensor]
    unread = any("some" in row.lost or passed_faults(entry.signature, row) for row in entry.workloads)
    for path, tensor in declared:
        unknown = isinstance(tensor.optional, Formula) and not tensor.optional.known
        if not tensor.is_optional or unknown or unread or not entry.workloads:
            continue
        passed = {tensor.name in row.some for row in entry.workloads}
        for wanted, words in ((True, "passes"), (False, "omits")):
            if wanted not in passed:
                message = f"no row {words} the optional {tensor.name}"
                yield entry.source.problem((entry.name, *path, tensor.name), "optional-rows", message, "add a row")
