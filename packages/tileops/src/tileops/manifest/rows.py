"""Rules of workload rows: each is a call that the signature accepts, and together they cover the optional tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from tileops.errors import ExpressionError
from tileops.manifest import roofline, workloads
from tileops.manifest.kinds import DTypeKind
from tileops.manifest.source import run
from tileops_kernels.errors import TileOPsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tileops.manifest.model import OpEntry, Path, Problem, WorkloadRow
    from tileops.manifest.plan import SignaturePlan

_LABEL: Final = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


def problems(entry: OpEntry, plan: SignaturePlan) -> Iterator[Problem]:
    """Yield what is wrong with the rows of an entry whose signature is right."""
    if not entry.workloads:
        yield entry.source.problem((entry.name,), "no-rows", "the entry has no workload row", "add a model's call")
        return
    if entry.roofline is not None and entry.roofline.func is not None:
        try:
            roofline.cost_function(entry.roofline.func)
        except ExpressionError as error:
            yield entry.source.problem((entry.name, "roofline", "func"), "roofline", str(error), "mend the dotted name")
            return
    seen: set[str] = set()
    ids: set[str] = set()
    for place, row in enumerate(entry.workloads):
        path: Path = (entry.name, "workloads", place)
        if row.label in seen:
            yield entry.source.problem(path, "row-label", f"the label {row.label!r} stands twice", "give each its own")
        else:
            yield from _repeated(entry, row, path, ids)
        if not _LABEL.fullmatch(row.label):
            message = f"{row.label!r} is no label"
            yield entry.source.problem((*path, "label"), "row-label", message, "write words as in llama-8b-prefill")
        seen.add(row.label)
        yield from _row(entry, plan, row, path)
    yield from _coverage(entry)


def _row(entry: OpEntry, plan: SignaturePlan, row: WorkloadRow, path: Path) -> Iterator[Problem]:
    if not row.dtype_cases:
        yield entry.source.problem(path, "workload-row", f"row {row.label} has no dtype case", "list at least one")
    said: set[str] = set()
    for number, dtypes in enumerate(row.dtype_cases):
        here = (*path, "dtype_cases", number)
        wrong = _wrong_dtype(entry, dtypes)
        if wrong:
            yield entry.source.problem(here, "workload-row", f"row {row.label}: {wrong}", "mend the dtype case")
            continue
        try:
            run(lambda dtypes=dtypes: _replay(entry, plan, row, dtypes))  # type: ignore[misc]
        except TileOPsError as error:
            if isinstance(error, workloads.RowValueError):
                here = (*path, error.key)
            if str(error) not in said:
                yield entry.source.problem(here, "workload-row", f"row {row.label}: {error}", "mend the row")
            said.add(str(error))


def _repeated(entry: OpEntry, row: WorkloadRow, path: Path, ids: set[str]) -> Iterator[Problem]:
    """Yield the dtype cases whose ids another case has, and add the row's to the ids."""
    for number, dtypes in enumerate(row.dtype_cases):
        found = workloads.case_id(entry.signature, row, dtypes)
        if found in ids:
            message = f"the case id {found} stands twice"
            yield entry.source.problem((*path, "dtype_cases", number), "case-id", message, "remove one, or relabel")
        ids.add(found)


def _wrong_dtype(entry: OpEntry, dtypes: Mapping[str, str]) -> str:
    for name, dtype in dtypes.items():
        kind = entry.signature.forall.get(name)
        if not isinstance(kind, DTypeKind):
            return f"{name} is no DType index"
        if dtype not in kind.values:
            return f"{name} is never {dtype}; it is {kind}"
    return ""


def _replay(entry: OpEntry, plan: SignaturePlan, row: WorkloadRow, dtypes: Mapping[str, str]) -> None:
    """Check a case as a call on meta tensors; inference gives back its indices, its contents and its cost are right."""
    case = workloads.instantiate(entry, row, dtypes)
    call = workloads.meta_call(plan, case)
    for name, value in call.indices.items():
        if name in case.indices and case.indices[name] != value:
            raise ExpressionError(f"{name} is {case.indices[name]!r} in the row, and inference gives {value!r}")
    contents = workloads.metadata(entry, case)
    broken = workloads.broken_requirements(entry, case, contents)
    if broken:
        raise ExpressionError(f"the generated contents break {'; '.join(broken)}")
    for name in row.values:
        if contents and name in entry.signature.forall and _is_given_twice(entry, row, dtypes, name):
            raise ExpressionError(f"{name} is given, and a generator gives it too: leave it out")
    if entry.roofline is not None:
        observed = call.observing(contents)
        roofline.flops(observed)
        roofline.bytes_moved(observed)


def _is_given_twice(entry: OpEntry, row: WorkloadRow, dtypes: Mapping[str, str], name: str) -> bool:
    less = msgspec.structs.replace(row, values={key: value for key, value in row.values.items() if key != name})
    try:
        workloads.instantiate(entry, less, dtypes)
    except TileOPsError:
        return False
    return True


def _coverage(entry: OpEntry) -> Iterator[Problem]:
    declared = [(("signature", "inputs"), tensor) for tensor in entry.signature.inputs]
    declared += [(("signature", "params"), found.tensor) for found in entry.signature.parameters if found.tensor]
    for path, tensor in declared:
        if not tensor.is_optional:
            continue
        passed = {tensor.name in row.some for row in entry.workloads}
        for wanted, words in ((True, "passes"), (False, "omits")):
            if wanted not in passed:
                message = f"no row {words} the optional {tensor.name}"
                yield entry.source.problem((entry.name, *path, tensor.name), "optional-rows", message, "add a row")
