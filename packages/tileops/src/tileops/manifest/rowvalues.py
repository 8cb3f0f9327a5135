"""What a workload row states: values of parameters and indices, dtypes, and the branch that its call takes."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tileops.errors import ExpressionError
from tileops.manifest.branches import Branch, TooManyBranchesError, branches, discriminants, prune, subject
from tileops.manifest.construction import decided
from tileops.manifest.document import Partial
from tileops.manifest.excuses import content_formulas, misspelled
from tileops.manifest.inference import expand
from tileops.manifest.kinds import DTypeKind, Kind, UnknownKind
from tileops.manifest.model import REQUIRED
from tileops.manifest.parts import is_whole
from tileops.manifest.scopes import let_order
from tileops.manifest.trees import ANYTHING, possible_names
from tileops.manifest.values import accepts, from_manifest

if TYPE_CHECKING:
    from tileops.manifest.model import Signature, TensorType, WorkloadRow


class RowValueError(ExpressionError):
    """A row gives a wrong value under one of its keys, or leaves out what has none."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(slots=True)
class Stated:
    """The values of a row: those that are right, what is wrong with the others, and which names have no value so."""

    parameters: dict[str, object] = field(default_factory=dict)
    indices: dict[str, object] = field(default_factory=dict)
    faults: list[RowValueError] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)
    strange: list[str] = field(default_factory=list)


def stated(signature: Signature, row: WorkloadRow) -> Stated:
    """Return what a row states of parameters and indices, with everything that is wrong with it."""
    found = Stated()
    left_out = []
    for parameter in signature.parameters:
        if parameter.tensor is not None:
            continue
        value = row.values.get(parameter.name, parameter.default)
        if value is REQUIRED:
            left_out.append(parameter.name)
        else:
            _settle(signature, parameter.name, parameter.kind, value, found, found.parameters)
    plain = {parameter.name for parameter in signature.parameters if parameter.tensor is None}
    found.strange = [name for name in row.values if name not in signature.forall.keys() | plain]
    for name in (name for name in row.values if name in signature.forall):
        _settle(signature, name, signature.forall[name], row.values[name], found, found.indices)
    if not signature.lost & {"forall", "params"}:
        for name in found.strange:
            found.faults.append(RowValueError(name, f"{name} is neither a parameter nor an index"))
    _unset(found, row)
    found.unclear.update(left_out)
    if "values" not in row.lost:
        meant = misspelled(found.strange, left_out)
        for name in left_out:
            if name not in meant:
                found.faults.append(RowValueError("", f"the parameter {name} has no value"))
    return found


def _unset(found: Stated, row: WorkloadRow) -> None:
    """Leave a parameter without its default where the row gives a value under a word that is near its name."""
    for word in found.strange:
        defaulted = [name for name in found.parameters if name not in row.values]
        for name in difflib.get_close_matches(word, defaulted, n=1):
            del found.parameters[name]
            found.unclear.add(name)


def _settle(
    signature: Signature, name: str, kind: Kind, value: object, found: Stated, settled: dict[str, object]
) -> None:
    """Keep a value where it is right, and else what is wrong with it."""
    if isinstance(kind, UnknownKind) or not is_whole(value):
        found.unclear.add(name)
        return
    message = ""
    try:
        built = from_manifest(kind, value, signature.sums)
        if not accepts(kind, built, signature.sums):
            message = f"{name} is {kind}, and the row gives {built!r}"
        elif isinstance(built, float) and math.isnan(built):
            message = f"{name} is .nan, which equals no value"
    except ExpressionError as error:
        message = str(error)
    if message:
        found.faults.append(RowValueError(name, message))
        found.unclear.add(name)
    else:
        settled[name] = built


def optional_names(signature: Signature) -> set[str]:
    """Return the names of the tensors that a call may leave out."""
    declared = [*signature.inputs, *(found.tensor for found in signature.parameters if found.tensor is not None)]
    optional = {tensor.name for tensor in declared if tensor.is_optional}
    if any(output.buffer for output in signature.outputs):
        optional.add("out")
    return optional


def passed_faults(signature: Signature, row: WorkloadRow) -> list[RowValueError]:
    """Return what is wrong with the tensors that a row passes."""
    if signature.lost & {"inputs", "params", "outputs"}:
        return []
    optional = optional_names(signature)
    strange = [name for name in row.some if name not in optional]
    twice = [name for name in dict.fromkeys(row.some) if row.some.count(name) > 1]
    messages = [f"some names {name}, which is no optional tensor of the signature" for name in strange]
    messages += [f"some names {name} twice" for name in twice]
    return [RowValueError("some", message) for message in messages]


def dtype_faults(signature: Signature, dtypes: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with a dtype case, by the name that it concerns."""
    faults = {}
    for name, dtype in dtypes.items():
        kind = signature.forall.get(name)
        if isinstance(kind, UnknownKind) or (kind is None and "forall" in signature.lost):
            continue
        if not isinstance(kind, DTypeKind):
            faults[name] = f"{name} is no DType index"
        elif dtype not in kind.values:
            faults[name] = f"{name} is never {dtype}; it is {kind}"
    return faults


def branches_of(signature: Signature, row: WorkloadRow, parameters: Mapping[str, object]) -> tuple[Branch, ...]:
    """Return the branch that a row's call takes, or each that it may take where parameters have no value.

    Raises:
        ExpressionError: the signature accepts no such call.
    """
    deciding = discriminants(signature)
    given = {name: True for name in row.some if name in optional_names(signature)}
    whole = "some" not in row.lost and not passed_faults(signature, row)
    there = {name: name in row.some for name in optional_names(signature)} if whole else given
    known = {
        place: decided(found, parameters, there)
        for place, found in enumerate(deciding)
        if subject(found.tree) in parameters | there.keys()
    }
    try:
        accepted = branches(signature)
    except TooManyBranchesError:
        return ()
    possible = tuple(branch for branch in accepted if all(branch.key[place] == known[place] for place in known))
    if possible or not accepted:
        return possible
    passed = ", ".join(row.some) or "no optional tensor"
    raise ExpressionError(f"the signature accepts no call that passes {passed} with these parameters")


def used_names(signature: Signature, branch: Branch) -> frozenset[str]:
    """Return the names that a branch's tensors read, directly or through lets."""
    read: set[str] = set()
    for tensor in tensors_of(signature, branch):
        trees = [tensor.dtype.tree, *expand(tensor.shape, signature, branch)]
        trees += [prune(formula.tree, branch) for formula in content_formulas(tensor)]
        read.update(*(possible_names(tree) for tree in trees))
    for rule in signature.shape_rules:
        read |= possible_names(prune(rule.tree, branch)) & (signature.let.keys() | ANYTHING)
    for name in reversed(let_order(signature)[0]):
        if name in read:
            read |= possible_names(prune(signature.let[name].tree, branch))
    return frozenset(read)


def tensors_of(signature: Signature, branch: Branch) -> Iterator[TensorType]:
    """Yield the tensors of a branch: inputs, construction-time tensors, outputs."""
    yield from (tensor for tensor in signature.inputs if branch.present[tensor.name])
    for parameter in signature.parameters:
        if parameter.tensor is not None and branch.present[parameter.name]:
            yield parameter.tensor
    for tensor in signature.outputs:
        if tensor.nullable is None or branch.decides(tensor.nullable):
            yield tensor


def is_partial(dtypes: Mapping[str, str]) -> bool:
    """Whether a part of a dtype case could not be read."""
    return isinstance(dtypes, Partial)
