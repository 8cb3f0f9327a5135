"""Checking one workload row: every value, case, refinement, content and cost by itself, as far as each can be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from tileops.errors import ExpressionError
from tileops.manifest import roofline, workloads
from tileops.manifest.branches import Branch, prune
from tileops.manifest.kinds import DTypeKind, UnknownKind
from tileops.manifest.messages import Messages
from tileops.manifest.primitives import DTYPES
from tileops.manifest.rowsolving import Solving, TensorCase
from tileops.manifest.rowvalues import (
    RowValueError,
    branches_of,
    dtype_faults,
    is_partial,
    passed_faults,
    stated,
    tensors_of,
    used_names,
)
from tileops.manifest.source import run
from tileops.manifest.trees import ANYTHING, free_names
from tileops_kernels.errors import TileOPsError

if TYPE_CHECKING:
    from tileops.manifest.excuses import Excuses
    from tileops.manifest.model import Formula, OpEntry, Path, TensorType, WorkloadRow
    from tileops.manifest.plan import SignaturePlan

_OF_CASE: Final = "dtype_cases"
"""The key of what is wrong with the dtypes of one case."""
_MOST_BRANCHES: Final = 16
"""Of how many branches a row is checked on each, where it is not known which of them it takes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a row, and where below the row it stands."""

    path: Path
    message: str
    mend: str = "mend the row"


class RowCheck:
    """Checks one row."""

    def __init__(self, entry: OpEntry, row: WorkloadRow, plan: SignaturePlan | None, excuses: Excuses) -> None:
        self.entry = entry
        self.signature = entry.signature
        self.row = row
        self.plan = plan
        self.excuses = excuses
        self.stated = stated(entry.signature, row)
        self.faults: list[ExpressionError] = [*self.stated.faults, *passed_faults(entry.signature, row)]

    def found(self) -> list[Fault]:
        """Return everything that is wrong with the row; what all its cases share stands at the row."""
        found = [] if self.row.dtype_cases else [Fault((), "there is no dtype case", "list at least one")]
        branches = self._branches()
        of_cases: dict[tuple[str, str], list[int]] = {}
        for number, dtypes in enumerate(self.row.dtype_cases):
            wrong = dtype_faults(self.signature, dtypes)
            found += [Fault((_OF_CASE, number), message, "mend the dtype case") for message in wrong.values()]
            plan = self.plan if len(branches) == 1 and not (wrong or self.row.lost or self.faults) else None
            on_branches = [dict.fromkeys(_Case(self, of, dtypes, wrong.keys()).found(plan)) for of in branches]
            for fault in on_branches[0] if on_branches else ():
                if all(fault in others for others in on_branches):
                    of_cases.setdefault(fault, []).append(number)
        found += [Fault(_below(error), str(error)) for error in self.faults]
        for (key, message), numbers in of_cases.items():
            shared = len(set(numbers)) == len(self.row.dtype_cases) and key != _OF_CASE
            place: Path = (key,) if key and key != _OF_CASE else () if shared else (_OF_CASE, numbers[0])
            found.append(Fault(place, message))
        return list(dict.fromkeys(found))

    def _branches(self) -> tuple[Branch, ...]:
        """Return the branch that the row takes, or a few of which it is one."""
        try:
            found = branches_of(self.signature, self.row, self.stated.parameters)
        except ExpressionError as error:
            self.faults.append(error)
            return ()
        return found if len(found) <= _MOST_BRANCHES else ()


class _Case:
    """Checks one dtype case of a row on its branch."""

    def __init__(self, of: RowCheck, branch: Branch, dtypes: Mapping[str, str], refused: Collection[str]) -> None:
        self.row, self.entry, self.signature, self.branch = of, of.entry, of.signature, branch
        self.dtypes = {name: dtype for name, dtype in dtypes.items() if name not in refused}
        self.is_whole = not of.stated.unclear and not is_partial(dtypes)
        self.faults: list[ExpressionError] = []
        forall = self.signature.forall
        named = {name: DTYPES[dtype] for name, dtype in self.dtypes.items() if isinstance(forall.get(name), DTypeKind)}
        of_no_kind = [name for name, kind in forall.items() if isinstance(kind, UnknownKind)]
        self.values: dict[str, object] = {**of.stated.parameters, **of.stated.indices, **named}
        unclear = {*of.stated.unclear, *refused, *of_no_kind, *of.excuses.of(branch)}
        for name, kind in forall.items():
            unread = isinstance(kind, DTypeKind) and is_partial(dtypes)
            if name not in self.values and ("values" in of.row.lost or unread):
                unclear.add(name)
        self.solving = Solving(self.signature, branch, self.values, unclear, self.faults)
        self.solving.strange = [*of.stated.strange, *(name for name in refused if name not in forall)]

    def found(self, plan: SignaturePlan | None) -> list[tuple[str, str]]:
        """Return everything that is wrong with the case: the key below the row, if there is one, and the message."""
        self._unused()
        known = self.solving.solve()
        self._given_twice()
        passed = [tensor for tensor in tensors_of(self.signature, self.branch) if tensor not in self.signature.outputs]
        tensors = {tensor.name: found for tensor in passed if (found := self.solving.tensor(tensor)) is not None}
        self._combinations()
        for place, rule in enumerate(self.signature.shape_rules):
            self._keep(lambda place=place, rule=rule: self._rule(place, rule))  # type: ignore[misc]
        contents = self._contents(passed, tensors, known)
        if plan is not None and self.is_whole and not self.faults:
            self._keep(lambda: self._call(plan, contents))
        elif self.entry.roofline is not None and self.entry.roofline.flops is not None:
            flops = self.entry.roofline.flops
            self._keep(lambda: self._flops(flops))
        return [(error.key if isinstance(error, RowValueError) else "", str(error)) for error in self.faults]

    def _keep(self, computation: Callable[[], object]) -> None:
        try:
            run(computation)
        except TileOPsError as error:
            self.faults.append(error if isinstance(error, ExpressionError) else ExpressionError(str(error)))

    def _unused(self) -> None:
        """Keep the indices that the branch does not read, unless an unknown part may read them."""
        try:
            used = used_names(self.signature, self.branch)
        except ExpressionError:
            return
        if used >= ANYTHING or self.signature.lost & {"inputs", "outputs", "let", "types", "params"}:
            return
        excused = set(self.row.excuses.of(self.branch))
        unused = [name for name in (*self.row.stated.indices, *self.dtypes) if name not in used | excused]
        meant = self.row.excuses.sequences(tensors_of(self.signature, self.branch))
        for name in unused:
            if name not in meant:
                error = workloads.unused_name(name)
                self.faults.append(RowValueError(_OF_CASE, str(error)) if name in self.dtypes else error)

    def _given_twice(self) -> None:
        """Keep the indices that the row gives and a generator gives too."""
        if self.faults or not any(tensor.values for tensor in tensors_of(self.signature, self.branch)):
            return
        for name in self.row.stated.indices:
            less = {key: value for key, value in self.values.items() if key != name}
            if name in Solving(self.signature, self.branch, less, faults=[]).solve():
                message = f"{name} is given, and a generator gives it too: leave it out"
                self.faults.append(RowValueError(name, message))

    def _combinations(self) -> None:
        rows = self.signature.dtype_combos
        clear = self.dtypes.keys() - self.solving.unclear
        names = [name for name in self.dtypes if name in clear and any(name in row for row in rows)]
        if not names or tuple(self.dtypes[name] for name in names) in {tuple(map(row.get, names)) for row in rows}:
            return
        received = {name: DTYPES[self.dtypes[name]] for name in names}
        error = Messages(self.entry, ()).dtype_combination(received)
        self.faults.append(RowValueError(_OF_CASE, str(error)))

    def _rule(self, place: int, rule: Formula) -> None:
        """Raise an error where a refinement that can be evaluated does not hold."""
        tree = prune(rule.tree, self.branch)
        if not self.solving.readable(tree):
            return
        messages = Messages(self.entry, ())
        try:
            holds = self.solving.value(tree)
        except ExpressionError as error:
            raise messages.failed(rule.text, error) from None
        if holds is not True:
            raise messages.rule(place, self.solving.known, self.branch.present)

    def _contents(
        self, passed: list[TensorType], tensors: Mapping[str, TensorCase], known: Mapping[str, object]
    ) -> dict[str, torch.Tensor]:
        """Return the contents of metadata tensors, after keeping what is wrong with them."""
        contents: dict[str, torch.Tensor] = {}

        def make(tensor: TensorType) -> None:
            contents[tensor.name] = workloads.contents_of(tensor, tensors[tensor.name], self.branch, known)

        for tensor in passed:
            if tensor.values is not None and tensor.name in tensors and self.solving.generates(tensor):
                self._keep(lambda tensor=tensor: make(tensor))  # type: ignore[misc]
        for tensor in passed:
            for formula in tensor.requires if tensor.name in contents else ():
                self._keep(lambda tensor=tensor, formula=formula: self._requirement(tensor, formula, contents))  # type: ignore[misc]
        return contents

    def _requirement(self, tensor: TensorType, formula: Formula, contents: Mapping[str, torch.Tensor]) -> None:
        """Raise an error where a requirement that can be evaluated does not hold."""
        tree = prune(formula.tree, self.branch)
        others = free_names(tree) & self.branch.present.keys()
        if not self.solving.readable(tree) or not others <= contents.keys():
            return
        if not workloads.requirement_holds(tree, tensor.name, contents, self.solving.known, self.branch):
            raise ExpressionError(f"the generated contents break {tensor.name}: {formula.text}")

    def _flops(self, formula: Formula) -> None:
        """Raise an error where the arithmetic that is stated can be evaluated and is no count."""
        tree = prune(formula.tree, self.branch)
        if self.solving.readable(tree):
            roofline.as_count(self.solving.value(tree), self.entry.name, formula.text)

    def _call(self, plan: SignaturePlan, contents: Mapping[str, torch.Tensor]) -> None:
        """Check the case as a call on meta tensors: inference gives back its indices, and its costs are counts."""
        case = workloads.instantiate(plan.entry, self.row.row, self.dtypes)
        call = workloads.meta_call(plan, case)
        for name, value in call.indices.items():
            if name in case.indices and case.indices[name] != value:
                raise ExpressionError(f"{name} is {case.indices[name]!r} in the row, and inference gives {value!r}")
        observed = call.observing(contents)
        if self.entry.roofline is None:
            return
        for cost in (roofline.flops, roofline.bytes_moved):
            self._keep(lambda cost=cost: cost(observed))  # type: ignore[misc]


def _below(error: ExpressionError) -> Path:
    return (error.key,) if isinstance(error, RowValueError) and error.key else ()
