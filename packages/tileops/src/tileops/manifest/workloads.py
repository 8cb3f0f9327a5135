"""Workload rows to cases: each row times its dtype cases gives one call, with the type of every tensor."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import torch

from tileops.errors import ExpressionError, ManifestError
from tileops.manifest.branches import Branch, prune
from tileops.manifest.expressions import Call, Expression, Name, Spread
from tileops.manifest.generators import GENERATORS
from tileops.manifest.kinds import DTypeKind, meant
from tileops.manifest.predicates import PREDICATES
from tileops.manifest.primitives import DTYPES
from tileops.manifest.rowsolving import Solving, TensorCase
from tileops.manifest.rowvalues import RowValueError, branches_of, passed_faults, stated, tensors_of, used_names
from tileops.manifest.source import evaluate, run
from tileops.manifest.typecheck import check_kinds

if TYPE_CHECKING:
    from tileops.manifest.model import OpEntry, Signature, TensorType, WorkloadRow
    from tileops.manifest.plan import SignaturePlan
    from tileops.manifest.record import SignatureCall


class WorkloadCase(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model: constructor arguments, the type of each input, and the value of every index.

    A construction-time tensor stands among `parameters` as a TensorCase. `known` holds every name of the signature that
    has a value, defaults and lets included.
    """

    id: str
    label: str
    parameters: Mapping[str, object]
    tensors: Mapping[str, TensorCase | None]
    dtypes: Mapping[str, torch.dtype]
    indices: Mapping[str, object]
    known: Mapping[str, object]
    branch: Branch


def cases(entry: OpEntry) -> tuple[WorkloadCase, ...]:
    """Return the cases of an entry, in the order of its rows and their dtype cases.

    Raises:
        ManifestError: a row does not give a call that the signature accepts.
    """
    check_kinds(entry)
    found = []
    problems = []
    for place, row in enumerate(entry.workloads):
        for number, dtypes in enumerate(row.dtype_cases):
            try:
                found.append(instantiate(entry, row, dtypes))
            except ExpressionError as error:
                path = (entry.name, "workloads", place, "dtype_cases", number)
                problems.append(entry.source.problem(path, "workload-row", f"row {row.label}: {error}"))
    if problems:
        raise ManifestError(problems)
    return tuple(found)


def instantiate(entry: OpEntry, row: WorkloadRow, dtype_case: Mapping[str, str]) -> WorkloadCase:
    """Return the case of one row in one dtype case.

    Raises:
        ExpressionError: the row leaves a value out, gives one that has no use, or does not fit the signature.
    """
    signature = entry.signature
    dtypes = {name: dtype_named(name, text) for name, text in dtype_case.items()}
    found = stated(signature, row)
    for fault in (*found.faults, *passed_faults(signature, row)):
        raise fault
    parameters = found.parameters
    (branch,) = branches_of(signature, row, parameters)
    unused = [name for name in (*found.indices, *dtypes) if name not in used_names(signature, branch)]
    if unused:
        raise unused_name(unused[0])
    solving = Solving(signature, branch, {**parameters, **found.indices, **dtypes})
    known = solving.solve()
    plain = [parameter for parameter in signature.parameters if parameter.tensor is None]
    tensors = {tensor.name: solving.tensor(tensor) for tensor in signature.inputs}
    shown = {found.name: parameters[found.name] for found in plain if found.name in row.values or found.required}
    for parameter in signature.parameters:
        if parameter.tensor is not None:
            shown[parameter.name] = solving.tensor(parameter.tensor)
    return WorkloadCase(
        id=case_id(signature, row, dtype_case),
        label=row.label,
        parameters=shown,
        tensors=tensors,
        dtypes=dtypes,
        indices={name: value for name, value in known.items() if name not in parameters},
        known=known,
        branch=branch,
    )


def case_id(signature: Signature, row: WorkloadRow, dtypes: Mapping[str, str]) -> str:
    """Return the name of a case: its row's label, and the dtypes in the order of their indices, or the one of all."""
    named = [dtypes[name] for name, kind in signature.forall.items() if isinstance(kind, DTypeKind) and name in dtypes]
    return "-".join([row.label, *(named[:1] if len(set(named)) == 1 else named)])


def dtype_named(name: str, text: str) -> torch.dtype:
    """Return the dtype of a name. Raises ExpressionError for any other word."""
    if text not in DTYPES:
        raise ExpressionError(f"{name}: {text!r} is not a dtype{meant(text, DTYPES)}")
    return DTYPES[text]


def unused_name(name: str) -> RowValueError:
    """Return the error for an index that the row's branch does not read."""
    return RowValueError(name, f"{name} has no use on the branch that the row takes")


def _call(tensor: TensorType, branch: Branch) -> Call:
    tree = None if tensor.values is None else prune(tensor.values.tree, branch)
    if not isinstance(tree, Call):
        raise ExpressionError(f"{tensor.name} declares no generator")
    return tree


def constructed(entry: OpEntry, case: WorkloadCase) -> object:
    """Return an object that holds a case's parameters as an op instance does; tensors are meta tensors."""
    values = {found.name: case.known[found.name] for found in entry.signature.parameters if found.tensor is None}
    for name, value in case.parameters.items():
        if isinstance(value, TensorCase):
            values[name] = _empty(value, "meta")
    missing = {found.name: None for found in entry.signature.parameters if found.name not in values}
    return SimpleNamespace(**values, **missing)


def metadata(entry: OpEntry, case: WorkloadCase) -> dict[str, torch.Tensor]:
    """Return the contents of a case's metadata tensors, made by their generators, on the CPU.

    Raises:
        ExpressionError: a generator cannot make them, or their shapes are not those that the signature says.
    """
    made: dict[str, torch.Tensor] = {}
    for tensor in tensors_of(entry.signature, case.branch):
        expected = case.tensors.get(tensor.name) or case.parameters.get(tensor.name)
        if tensor.values is None or not isinstance(expected, TensorCase):
            continue
        made[tensor.name] = contents_of(tensor, expected, case.branch, case.known)
    return made


def contents_of(tensor: TensorType, expected: TensorCase, branch: Branch, known: Mapping[str, object]) -> torch.Tensor:
    """Return the contents that a metadata tensor's generator makes.

    Raises:
        ExpressionError: it cannot make them, or they are not of the shape and the dtype that the signature says.
    """
    call = _call(tensor, branch)
    arguments = [evaluate(found, known, branch.present) for found in call.arguments if not isinstance(found, Spread)]
    contents = run(lambda: GENERATORS[call.function](*arguments))
    if not isinstance(contents, torch.Tensor) or tuple(contents.shape) != expected.shape:
        raise ExpressionError(f"{tensor.name}: {expected.values} gives another shape than {expected.shape}")
    kept = contents.to(expected.dtype)
    if not torch.equal(kept.to(contents.dtype), contents):
        raise ExpressionError(f"{tensor.name}: {expected.values} gives values that {expected.dtype} cannot hold")
    return kept


def broken_requirements(entry: OpEntry, case: WorkloadCase, contents: Mapping[str, torch.Tensor]) -> list[str]:
    """Return each declared requirement that these contents of metadata tensors do not meet."""
    return [
        f"{tensor.name}: {formula.text}"
        for tensor in tensors_of(entry.signature, case.branch)
        for formula in tensor.requires
        if tensor.name in contents
        and not requirement_holds(prune(formula.tree, case.branch), tensor.name, contents, case.known, case.branch)
    ]


def requirement_holds(
    tree: Expression,
    name: str,
    contents: Mapping[str, torch.Tensor],
    known: Mapping[str, object],
    branch: Branch,
) -> bool:
    """Whether a predicate holds of a tensor's contents.

    Raises:
        ExpressionError: it is no call of a predicate, or has no value for them.
    """
    if not isinstance(tree, Call):
        raise ExpressionError("a requirement is a call of a predicate")
    arguments = [
        contents[argument.name]
        if isinstance(argument, Name) and argument.name in contents
        else evaluate(argument, known, branch.present)
        for argument in tree.arguments
        if not isinstance(argument, Spread)
    ]
    return run(lambda: PREDICATES[tree.function](contents[name], *arguments)) is True


def _empty(case: TensorCase, device: str) -> torch.Tensor:
    try:
        return torch.empty(case.shape, dtype=case.dtype, device=device)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ExpressionError(f"there is no tensor of the shape {case.shape}") from error


def meta_call(plan: SignaturePlan, case: WorkloadCase) -> SignatureCall:
    """Return the record of a case called with meta tensors."""
    construction = plan.check_construction(constructed(plan.entry, case))
    tensors = [
        None if tensor is None else _empty(tensor, "cpu" if declared.device == "cpu" else "meta")
        for tensor, declared in zip(case.tensors.values(), plan.entry.signature.inputs, strict=True)
    ]
    buffers = {}
    if case.branch.present["out"]:
        outputs = [output for output in plan.entry.signature.outputs if output.buffer]
        solving = Solving(plan.entry.signature, case.branch, case.known)
        case_of_out = solving.tensor(msgspec.structs.replace(outputs[0], name="out"))
        if case_of_out is not None:
            buffers["out"] = _empty(case_of_out, "meta")
    return plan.check_call(construction, *tensors, **buffers)
