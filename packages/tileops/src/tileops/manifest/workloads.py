"""Workload rows to cases: each row times its dtype cases gives one call, with the type of every tensor."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import torch

from tileops.errors import ExpressionError, ManifestError
from tileops.manifest.branches import Branch, branches, discriminants
from tileops.manifest.expressions import Tuple
from tileops.manifest.inference import expand
from tileops.manifest.kinds import DTypeKind
from tileops.manifest.primitives import DTYPES, show_dtype
from tileops.manifest.source import evaluate
from tileops.manifest.typecheck import check_kinds
from tileops.manifest.values import from_manifest

if TYPE_CHECKING:
    from tileops.manifest.model import OpEntry, Signature, TensorType, WorkloadRow


class TensorCase(msgspec.Struct, frozen=True):
    """One tensor of a case: its shape, its dtype, and how its contents are made where that is declared."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    values: str | None = None


class WorkloadCase(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model: constructor arguments, the type of each input, and the value of every index."""

    id: str
    label: str
    parameters: Mapping[str, object]
    tensors: Mapping[str, TensorCase | None]
    dtypes: Mapping[str, torch.dtype]
    indices: Mapping[str, object]


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
        ExpressionError: the row leaves a value out, or does not fit the signature.
    """
    signature = entry.signature
    dtypes = {name: _dtype(name, text) for name, text in dtype_case.items()}
    parameters = {
        parameter.name: from_manifest(parameter.kind, row.values.get(parameter.name, parameter.default), signature.sums)
        for parameter in signature.parameters
        if parameter.tensor is None
    }
    given = {name: value for name, value in row.values.items() if name in signature.forall}
    values: dict[str, object] = {**parameters, **given, **dtypes}
    branch = branch_of(signature, row, values)
    computed = lets(signature, branch, values)
    tensors = {tensor.name: _tensor(signature, tensor, branch, {**values, **computed}) for tensor in signature.inputs}
    stated = {name: parameters[name] for name in parameters if name in row.values or _is_required(signature, name)}
    suffix = [
        show_dtype(dtypes[name])
        for name, kind in signature.forall.items()
        if isinstance(kind, DTypeKind) and name in dtypes
    ]
    return WorkloadCase(
        id="-".join([row.label, *suffix]),
        label=row.label,
        parameters=stated,
        tensors=tensors,
        dtypes=dtypes,
        indices={**given, **dtypes, **computed},
    )


def branch_of(signature: Signature, row: WorkloadRow, values: Mapping[str, object]) -> Branch:
    """Return the branch that a row's call takes.

    Raises:
        ExpressionError: the signature accepts no such call.
    """
    there = {tensor.name: not tensor.is_optional or tensor.name in row.some for tensor in signature.inputs}
    there["out"] = "out" in row.some
    key = tuple(
        evaluate(found.tree, {name: values[name] for name in values if name not in there}, there)
        for found in discriminants(signature)
    )
    for branch in branches(signature):
        if branch.key == key:
            return branch
    passed = ", ".join(row.some) or "no optional tensor"
    raise ExpressionError(f"the signature accepts no call that passes {passed} with these parameters")


def lets(signature: Signature, branch: Branch, values: Mapping[str, object]) -> dict[str, object]:
    """Return the value of every let that these values settle."""
    computed: dict[str, object] = {}
    for _ in signature.let:
        for name, formula in signature.let.items():
            if name in computed:
                continue
            try:
                computed[name] = evaluate(formula.tree, {**values, **computed}, branch.present)
            except ExpressionError:
                continue
    return computed


def _is_required(signature: Signature, name: str) -> bool:
    return any(parameter.name == name and parameter.required for parameter in signature.parameters)


def _dtype(name: str, text: str) -> torch.dtype:
    if text not in DTYPES:
        raise ExpressionError(f"{name}: {text!r} is not a dtype")
    return DTYPES[text]


def _tensor(
    signature: Signature, tensor: TensorType, branch: Branch, values: Mapping[str, object]
) -> TensorCase | None:
    if not branch.present[tensor.name]:
        return None
    shape = evaluate(Tuple(expand(tensor.shape, signature, branch)), values, branch.present)
    dtype = evaluate(tensor.dtype.tree, values, branch.present)
    if not isinstance(shape, tuple) or not isinstance(dtype, torch.dtype):
        raise ExpressionError(f"{tensor.name}: the row gives no shape or no dtype")
    return TensorCase(shape, dtype, None if tensor.values is None else tensor.values.text)


def constructed(entry: OpEntry, case: WorkloadCase) -> object:
    """Return an object that holds a case's parameters as an op instance does."""
    defaults = {parameter.name: parameter.default for parameter in entry.signature.parameters if not parameter.required}
    return SimpleNamespace(**{**defaults, **case.parameters})
