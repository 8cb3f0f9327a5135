"""Workload rows to cases: each row times its dtype cases gives one call, with the type of every tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import msgspec
import torch

from tileops.errors import ExpressionError, ManifestError
from tileops.manifest.branches import Branch, branches, discriminants, prune
from tileops.manifest.construction import decided
from tileops.manifest.expressions import Call, Expression, Name, Spread, Tuple
from tileops.manifest.generators import GENERATORS, SHAPES
from tileops.manifest.inference import expand
from tileops.manifest.kinds import DTypeKind
from tileops.manifest.predicates import PREDICATES
from tileops.manifest.primitives import DTYPES
from tileops.manifest.scopes import let_order
from tileops.manifest.source import evaluate, run
from tileops.manifest.trees import free_names
from tileops.manifest.typecheck import check_kinds
from tileops.manifest.unification import unify
from tileops.manifest.values import accepts, from_manifest

if TYPE_CHECKING:
    from tileops.manifest.model import Formula, OpEntry, Signature, TensorType, WorkloadRow
    from tileops.manifest.plan import SignaturePlan
    from tileops.manifest.record import SignatureCall

MOST_CONTENTS: Final = 1 << 28
"""The elements that a tensor with generated contents may have."""


class RowValueError(ExpressionError):
    """A row gives a wrong value under one of its keys."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class TensorCase(msgspec.Struct, frozen=True):
    """One tensor of a case: its shape, its dtype, and how its contents are made where that is declared."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    values: str | None = None


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
    dtypes = {name: _dtype(name, text) for name, text in dtype_case.items()}
    plain = [parameter for parameter in signature.parameters if parameter.tensor is None]
    missing = [found.name for found in plain if found.required and found.name not in row.values]
    if missing:
        raise ExpressionError(f"the parameter {missing[0]} has no value")
    parameters = {
        parameter.name: from_manifest(parameter.kind, row.values.get(parameter.name, parameter.default), signature.sums)
        for parameter in plain
    }
    for parameter in plain:
        if not accepts(parameter.kind, parameters[parameter.name], signature.sums):
            received = parameters[parameter.name]
            raise RowValueError(parameter.name, f"{parameter.name} is {parameter.kind}, and the row gives {received!r}")
    given = {name: value for name, value in row.values.items() if name in signature.forall}
    strange = [name for name in row.values if name not in given and name not in parameters]
    if strange:
        raise RowValueError(strange[0], f"{strange[0]} is neither a parameter nor an index")
    for name, value in given.items():
        if not accepts(signature.forall[name], value, signature.sums):
            raise RowValueError(name, f"{name} is {signature.forall[name]}, and the row gives {value!r}")
    branch = branch_of(signature, row, parameters)
    unused = [name for name in (*given, *dtypes) if name not in used_names(signature, branch)]
    if unused:
        message = f"{', '.join(unused)} has no use on the branch that the row takes"
        raise RowValueError(unused[0], message) if unused[0] in given else ExpressionError(message)
    known = _solved(signature, branch, {**parameters, **given, **dtypes})
    tensors = {tensor.name: _tensor(signature, tensor, branch, known) for tensor in signature.inputs}
    stated = {found.name: parameters[found.name] for found in plain if found.name in row.values or found.required}
    for parameter in signature.parameters:
        if parameter.tensor is not None:
            stated[parameter.name] = _tensor(signature, parameter.tensor, branch, known)
    return WorkloadCase(
        id=case_id(signature, row, dtype_case),
        label=row.label,
        parameters=stated,
        tensors=tensors,
        dtypes=dtypes,
        indices={name: value for name, value in known.items() if name not in parameters},
        known=known,
        branch=branch,
    )


def case_id(signature: Signature, row: WorkloadRow, dtypes: Mapping[str, str]) -> str:
    """Return the name of a case: its row's label, and the dtypes in the order of their indices."""
    named = [name for name, kind in signature.forall.items() if isinstance(kind, DTypeKind) and name in dtypes]
    return "-".join([row.label, *(dtypes[name] for name in named)])


def branch_of(signature: Signature, row: WorkloadRow, parameters: Mapping[str, object]) -> Branch:
    """Return the branch that a row's call takes.

    Raises:
        ExpressionError: the signature accepts no such call.
    """
    declared = [*signature.inputs, *(found.tensor for found in signature.parameters if found.tensor is not None)]
    optional = {tensor.name for tensor in declared if tensor.is_optional}
    if any(output.buffer for output in signature.outputs):
        optional.add("out")
    strange = [name for name in row.some if name not in optional]
    if strange:
        raise RowValueError("some", f"some names {strange[0]}, which is no optional tensor of the signature")
    there = {name: name in row.some for name in optional}
    key = tuple(decided(found, parameters, there) for found in discriminants(signature))
    for branch in branches(signature):
        if branch.key == key:
            return branch
    passed = ", ".join(row.some) or "no optional tensor"
    raise ExpressionError(f"the signature accepts no call that passes {passed} with these parameters")


def used_names(signature: Signature, branch: Branch) -> frozenset[str]:
    """Return the names that a branch's tensors read, directly or through lets."""
    read: set[str] = set()
    for tensor in _tensors(signature, branch):
        trees = [tensor.dtype.tree, *expand(tensor.shape, signature, branch)]
        trees += [prune(formula.tree, branch) for formula in _content_formulas(tensor)]
        read.update(*(free_names(tree) for tree in trees))
    for rule in signature.shape_rules:
        read |= free_names(prune(rule.tree, branch)) & signature.let.keys()
    for name in reversed(let_order(signature)[0]):
        if name in read:
            read |= free_names(prune(signature.let[name].tree, branch))
    return frozenset(read)


def _content_formulas(tensor: TensorType) -> tuple[Formula, ...]:
    return ((tensor.values,) if tensor.values is not None else ()) + tensor.requires


def _tensors(signature: Signature, branch: Branch) -> Iterator[TensorType]:
    yield from (tensor for tensor in signature.inputs if branch.present[tensor.name])
    for parameter in signature.parameters:
        if parameter.tensor is not None and branch.present[parameter.name]:
            yield parameter.tensor
    for tensor in signature.outputs:
        if tensor.nullable is None or branch.decides(tensor.nullable):
            yield tensor


def _solved(signature: Signature, branch: Branch, values: Mapping[str, object]) -> dict[str, object]:
    """Return the values with what lets and generators' shapes add to them."""
    known = dict(values)
    generated = [tensor for tensor in _tensors(signature, branch) if tensor.values is not None]
    progress = True
    while progress:
        progress = False
        for name, formula in signature.let.items():
            tree = prune(formula.tree, branch)
            if name not in known and _readable(tree, known, branch):
                known[name] = evaluate(tree, known, branch.present)
                progress = True
        for tensor in list(generated):
            call = _generator(tensor, branch)
            if all(_readable(argument, known, branch) for argument in call.arguments):
                arguments = _evaluated(call, known, branch)
                shape = run(lambda call=call, arguments=arguments: SHAPES[call.function](*arguments))  # type: ignore[misc]
                if isinstance(shape, tuple):
                    known |= unify(expand(tensor.shape, signature, branch), shape, known, branch.present)
                generated.remove(tensor)
                progress = True
    for tensor in generated:
        read = frozenset().union(*(free_names(argument) for argument in _generator(tensor, branch).arguments))
        missing = ", ".join(sorted(read - known.keys() - branch.present.keys()))
        raise ExpressionError(f"the contents of {tensor.name} need {missing}, and the row does not give it")
    return known


def _readable(tree: Expression | Spread, known: Mapping[str, object], branch: Branch) -> bool:
    return free_names(tree) <= known.keys() | branch.present.keys() | DTYPES.keys() | {"inf"}


def _generator(tensor: TensorType, branch: Branch) -> Call:
    tree = None if tensor.values is None else prune(tensor.values.tree, branch)
    if not isinstance(tree, Call):
        raise ExpressionError(f"{tensor.name} declares no generator")
    return tree


def _evaluated(call: Call, known: Mapping[str, object], branch: Branch) -> list[object]:
    return [
        evaluate(argument, known, branch.present) for argument in call.arguments if not isinstance(argument, Spread)
    ]


def _dtype(name: str, text: str) -> torch.dtype:
    if text not in DTYPES:
        raise ExpressionError(f"{name}: {text!r} is not a dtype")
    return DTYPES[text]


def _tensor(signature: Signature, tensor: TensorType, branch: Branch, known: Mapping[str, object]) -> TensorCase | None:
    if not branch.present[tensor.name]:
        return None
    items = expand(tensor.shape, signature, branch)
    for item in (*items, tensor.dtype.tree):
        if not _readable(item, known, branch):
            missing = ", ".join(sorted(free_names(item) - known.keys() - DTYPES.keys()))
            raise ExpressionError(f"{tensor.name} needs {missing}, and the row does not give it")
    shape = evaluate(Tuple(items), known, branch.present)
    dtype = evaluate(tensor.dtype.tree, known, branch.present)
    if not isinstance(shape, tuple) or not isinstance(dtype, torch.dtype):
        raise ExpressionError(f"{tensor.name}: the row gives no shape or no dtype")
    if any(extent < 0 for extent in shape):
        raise ExpressionError(f"{tensor.name} would have the shape {shape}")
    if tensor.values is not None and math.prod(shape) > MOST_CONTENTS:
        raise ExpressionError(f"{tensor.name} would have the shape {shape}, too many elements for generated contents")
    return TensorCase(shape, dtype, None if tensor.values is None else tensor.values.text)


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
    for tensor in _tensors(entry.signature, case.branch):
        expected = case.tensors.get(tensor.name) or case.parameters.get(tensor.name)
        if tensor.values is None or not isinstance(expected, TensorCase):
            continue
        call = _generator(tensor, case.branch)
        arguments = _evaluated(call, case.known, case.branch)
        contents = run(lambda call=call, arguments=arguments: GENERATORS[call.function](*arguments))  # type: ignore[misc]
        if not isinstance(contents, torch.Tensor) or tuple(contents.shape) != expected.shape:
            raise ExpressionError(f"{tensor.name}: {tensor.values.text} gives another shape than {expected.shape}")
        kept = contents.to(expected.dtype)
        if not torch.equal(kept.to(contents.dtype), contents):
            raise ExpressionError(f"{tensor.name}: {tensor.values.text} gives values that {expected.dtype} cannot hold")
        made[tensor.name] = kept
    return made


def broken_requirements(entry: OpEntry, case: WorkloadCase, contents: Mapping[str, torch.Tensor]) -> list[str]:
    """Return each declared requirement that these contents of metadata tensors do not meet."""
    return [
        f"{tensor.name}: {formula.text}"
        for tensor in _tensors(entry.signature, case.branch)
        for formula in tensor.requires
        if tensor.name in contents
        and not _holds(prune(formula.tree, case.branch), contents[tensor.name], contents, case)
    ]


def _holds(tree: Expression, subject: torch.Tensor, contents: Mapping[str, torch.Tensor], case: WorkloadCase) -> bool:
    if not isinstance(tree, Call):
        raise ExpressionError("a requirement is a call of a predicate")
    arguments = [
        contents[argument.name]
        if isinstance(argument, Name) and argument.name in contents
        else evaluate(argument, case.known, case.branch.present)
        for argument in tree.arguments
        if not isinstance(argument, Spread)
    ]
    return run(lambda: PREDICATES[tree.function](subject, *arguments)) is True


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
        case_of_out = _tensor(
            plan.entry.signature, msgspec.structs.replace(outputs[0], name="out"), case.branch, case.known
        )
        if case_of_out is not None:
            buffers["out"] = _empty(case_of_out, "meta")
    return plan.check_call(construction, *tensors, **buffers)
