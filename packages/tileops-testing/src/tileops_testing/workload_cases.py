"""Cases from manifest rows: an op's workload rows and the kit's further shapes, at full size or capped for a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import torch

from tileops.errors import ExpressionError, SignatureError, UnknownOpError
from tileops.manifest import registry, workloads
from tileops.manifest.kinds import DeviceKind, UnionKind
from tileops.manifest.model import OpEntry, WorkloadRow
from tileops.manifest.plan import SignaturePlan, build_plan
from tileops.manifest.rowsolving import TensorCase
from tileops.op.base import Op
from tileops.op.naming import operator_name
from tileops_testing.cases import CPU_ELEMENTS, Case, Size, Sizes, grown_sizes
from tileops_testing.catalog import family_of
from tileops_testing.inputs import TensorInput
from tileops_testing.references import reference_for
from tileops_testing.shapes import rows_for

__all__ = ["case_of_row", "cases_of", "stem_of", "workload_cases"]


def workload_cases(op: type[Op]) -> tuple[Case, ...]:
    """Return the cases of an op's workload rows, at full size."""
    entry = _entry(op)
    return _cases(op, entry, entry.workloads)


def cases_of(op: type[Op], *, small: bool) -> tuple[Case, ...]:
    """Return the cases of an op's workload rows and of the kit's further shapes for it.

    With ``small``, free sizes are capped to what a CPU computes in an instant, and so are the numbers that an op
    without tensor inputs is constructed with.
    """
    entry = _entry(op)
    rows = (*entry.workloads, *rows_for(entry.name, entry.family))
    if not small:
        return _cases(op, entry, rows)
    if not entry.signature.inputs:
        return _cases(op, entry, tuple(_shrunk(row) for row in rows))
    return tuple(case.capped() for case in _cases(op, entry, rows))


def stem_of(op: str) -> str:
    """Return the op's name as it begins test ids: ``rms_norm`` for RMSNormFwdOp."""
    family = family_of(op)
    return operator_name(family, op).removesuffix("_fwd").removeprefix(f"{family}_")


def case_of_row(op: type[Op], entry: OpEntry, row: WorkloadRow, dtypes: Mapping[str, str]) -> Case:
    """Return the case of one row in one of its dtype cases; the indices that a call decides are its free sizes."""
    found = workloads.instantiate(entry, row, dtypes)
    reference = reference_for(entry.name, entry.family)
    contiguous = {tensor.name for tensor in entry.signature.inputs if tensor.contiguous}

    def inputs(sizes: Sizes) -> Mapping[str, TensorInput | None]:
        resized = msgspec.structs.replace(row, values={**row.values, **sizes})
        case = workloads.instantiate(entry, resized, dtypes)
        contents = workloads.metadata(entry, case)
        return {
            name: None
            if tensor is None
            else TensorInput(
                shape=tuple(tensor.shape),
                dtype=tensor.dtype,
                values=reference.values.get(name, "normal"),
                contents=contents.get(name),
                contiguous=name in contiguous,
            )
            for name, tensor in case.tensors.items()
        }

    sizes = {name: _size(row.values[name]) for name in row.values if name in entry.signature.forall}
    steps = _steps(entry, row, dtypes, sizes)
    return Case(
        op=op,
        label=found.id,
        row=row.label,
        parameters={name: _parameter(value) for name, value in found.parameters.items()},
        inputs=inputs,
        reference=reference,
        sizes={name: sizes[name] for name in steps},
        steps=steps,
        empty=_empty(entry, row, dtypes, sizes),
        device_parameter=None if entry.signature.inputs else _device_parameter(entry),
        writable=frozenset(tensor.name for tensor in entry.signature.inputs if tensor.mutated is not False),
    )


def _steps(entry: OpEntry, row: WorkloadRow, dtypes: Mapping[str, str], sizes: Sizes) -> dict[str, int]:
    """Return by how much each free size may grow, the others as they are.

    A size that no call may change is left out, as one that a rule ties to a construction-time tensor.
    """
    plan = build_plan(entry)
    return {
        name: step
        for name, size in sizes.items()
        if (step := next((step for step in (1, 2) if _accepted(plan, row, dtypes, {name: size}, step)), 0))
    }


def _empty(entry: OpEntry, row: WorkloadRow, dtypes: Mapping[str, str], sizes: Sizes) -> Sizes:
    """Return the first free size that may have no element, without it: both signature and contents must be possible.

    Of a shape, the last axis that may have none is taken. Nothing is returned where no size may.
    """
    plan = build_plan(entry)
    for name, size in sizes.items():
        for without in _without_elements(size):
            try:
                values = {**row.values, name: without}
                case = workloads.instantiate(entry, msgspec.structs.replace(row, values=values), dtypes)
                workloads.metadata(entry, case)
                workloads.meta_call(plan, case)
            except (ExpressionError, SignatureError):
                continue
            return {name: without}
    return {}


def _without_elements(size: Size) -> Iterator[Size]:
    if isinstance(size, int):
        yield 0
    else:
        for axis in reversed(range(len(size))):
            yield (*size[:axis], 0, *size[axis + 1 :])


def _accepted(plan: SignaturePlan, row: WorkloadRow, dtypes: Mapping[str, str], sizes: Sizes, step: int) -> bool:
    grown = grown_sizes(sizes, dict.fromkeys(sizes, step))
    if grown is None:
        return True
    try:
        resized = msgspec.structs.replace(row, values={**row.values, **grown})
        workloads.meta_call(plan, workloads.instantiate(plan.entry, resized, dtypes))
    except (ExpressionError, SignatureError):
        return False
    return True


def _parameter(value: object) -> object:
    """Return a construction parameter; a tensor that is one lies on the CPU, from where the op moves it."""
    if not isinstance(value, TensorCase):
        return value
    return TensorInput(shape=tuple(value.shape), dtype=value.dtype, values="near_one").make(0, torch.device("cpu"))


def _device_parameter(entry: OpEntry) -> str | None:
    for parameter in entry.signature.parameters:
        members = parameter.kind.members if isinstance(parameter.kind, UnionKind) else (parameter.kind,)
        if any(isinstance(member, DeviceKind) for member in members):
            return parameter.name
    return None


def _shrunk(row: WorkloadRow) -> WorkloadRow:
    """Return a row whose numbers are at most what a free size on a CPU is."""
    values = {
        name: min(value, CPU_ELEMENTS) if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in row.values.items()
    }
    return msgspec.structs.replace(row, values=values)


def _cases(op: type[Op], entry: OpEntry, rows: tuple[WorkloadRow, ...]) -> tuple[Case, ...]:
    return tuple(case_of_row(op, entry, row, dtypes) for row in rows for dtypes in row.dtype_cases)


def _entry(op: type[Op]) -> OpEntry:
    entry = registry.find(op.__name__)
    if entry is None:
        raise UnknownOpError(
            f"{op.__name__}: expected an op of the manifest, found no entry; build its cases with case_of_row"
        )
    return entry


def _size(value: object) -> Size:
    if isinstance(value, int):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(int(axis) for axis in value)
    raise TypeError(f"a free size is an integer or a sequence of integers, the row gives {value!r}")
