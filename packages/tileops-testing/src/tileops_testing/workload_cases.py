"""Cases from manifest rows: an op's workload rows and the kit's further shapes, at full size or capped for a CPU."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tileops.errors import UnknownOpError
from tileops.manifest import registry, workloads
from tileops.manifest.model import OpEntry, WorkloadRow
from tileops.op.base import Op
from tileops_testing.cases import Case, Size, Sizes
from tileops_testing.catalog import family_of, op_class
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

    With ``small``, free sizes are capped to what a CPU computes in an instant.
    """
    entry = _entry(op)
    found = _cases(op, entry, (*entry.workloads, *rows_for(entry.name, entry.family)))
    return tuple(case.capped() for case in found) if small else found


def stem_of(op: str) -> str:
    """Return the op's name as it begins test ids: ``rms_norm`` for RMSNormFwdOp."""
    found = op_class(op)
    if not found.compile_op_names:
        return found.__module__.rpartition(".")[2]
    operator = found.compile_op_names[0].partition("::")[2]
    return operator.removeprefix(f"{family_of(op)}_").removesuffix("_fwd")


def case_of_row(op: type[Op], entry: OpEntry, row: WorkloadRow, dtypes: Mapping[str, str]) -> Case:
    """Return the case of one row in one of its dtype cases; the indices that a call decides are its free sizes."""
    found = workloads.instantiate(entry, row, dtypes)

    def inputs(sizes: Sizes) -> Mapping[str, TensorInput | None]:
        resized = msgspec.structs.replace(row, values={**row.values, **sizes})
        case = workloads.instantiate(entry, resized, dtypes)
        contents = workloads.metadata(entry, case)
        return {
            name: None
            if tensor is None
            else TensorInput(shape=tuple(tensor.shape), dtype=tensor.dtype, contents=contents.get(name))
            for name, tensor in case.tensors.items()
        }

    return Case(
        op=op,
        label=found.id,
        parameters=found.parameters,
        inputs=inputs,
        reference=reference_for(entry.name, entry.family),
        sizes={name: _size(row.values[name]) for name in row.values if name in entry.signature.forall},
    )


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
