"""The validator: every rule that an entry, its rows and its op class must keep, all problems in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tileops.errors import ExpressionError, ManifestError
from tileops.manifest import implementation, workloads
from tileops.manifest.branches import branches
from tileops.manifest.construction import ConstructionCheck
from tileops.manifest.inference import Solver
from tileops.manifest.plan import SignaturePlan, build_plan
from tileops_kernels.errors import TileOPsError

if TYPE_CHECKING:
    from tileops.manifest.model import OpEntry, Problem
    from tileops.manifest.registry import Registry


def validate(registry: Registry, only: Iterable[str] = ()) -> list[Problem]:
    """Return every problem of the registry's entries, or of those named, in the order of their files."""
    wanted = set(only)
    problems = list(registry.sums[1])
    seen: dict[str, str] = {}
    for file in registry.files:
        problems.extend(file.problems)
        for name in file.op_names:
            entry = file.entries.get(name)
            if entry is None or (wanted and name not in wanted):
                continue
            if name in seen:
                problems.append(entry.source.problem((name,), "repeated-op", f"{name} also stands in {seen[name]}"))
            seen[name] = file.name
            if entry.family != file.family:
                problems.append(
                    entry.source.problem(
                        (name, "family"),
                        "family",
                        f"family is {entry.family!r} in the folder {file.family!r}",
                        "move the entry or mend its family",
                    )
                )
            problems.extend(validate_entry(entry))
    return sorted(set(problems), key=lambda problem: (problem.file, problem.line, problem.column))


def validate_entry(entry: OpEntry) -> list[Problem]:
    """Return every problem of one entry."""
    problems = list(_signature(entry))
    if problems:
        return problems
    plan = build_plan(entry)
    problems.extend(_rows(entry, plan))
    if entry.status == "implemented":
        problems.extend(implementation.problems(entry, plan))
    return problems


def _signature(entry: OpEntry) -> Iterator[Problem]:
    """Yield what keeps the signature's branches from being checked."""
    signature, path = entry.signature, (entry.name, "signature")
    try:
        known = ConstructionCheck(entry).known
        accepted = branches(signature)
    except ExpressionError as error:
        yield entry.source.problem(path, "discriminant", str(error))
        return
    for branch in accepted:
        try:
            solution = Solver(signature, branch, known).solve()
        except ExpressionError as error:
            yield entry.source.problem((*path, "types"), "family", str(error))
            continue
        for tensor in solution.stuck:
            yield entry.source.problem(
                (*path, "inputs", tensor.name, "shape"),
                "unsolvable",
                f"nothing gives the indices of {tensor.name} with shape {tensor.shape.text}",
                "let one tensor have each index alone on an axis",
            )


def _rows(entry: OpEntry, plan: SignaturePlan) -> Iterator[Problem]:
    """Yield what is wrong with the workload rows."""
    seen: set[str] = set()
    for place, row in enumerate(entry.workloads):
        path = (entry.name, "workloads", place)
        if row.label in seen:
            yield entry.source.problem(
                path, "row-label", f"the label {row.label!r} stands twice", "give each row its own"
            )
        seen.add(row.label)
        for dtypes in row.dtype_cases:
            try:
                _replay(plan, workloads.instantiate(entry, row, dtypes))
            except TileOPsError as error:
                yield entry.source.problem(path, "workload-row", f"row {row.label}: {error}", "mend the row's values")
    for name in plan.optional_inputs:
        passed = {name in row.some for row in entry.workloads}
        for wanted, words in ((True, "passes"), (False, "omits")):
            if wanted not in passed:
                message = f"no row {words} the optional input {name}"
                yield entry.source.problem((entry.name, "workloads"), "optional-rows", message, "add a row")


def _replay(plan: SignaturePlan, case: workloads.WorkloadCase) -> None:
    """Check a case as a call on meta tensors, and that inference gives back the row's indices."""
    call = workloads.meta_call(plan, case)
    for name, value in call.indices.items():
        if name in case.indices and case.indices[name] != value:
            raise ExpressionError(f"{name} is {case.indices[name]!r} in the row, and inference gives {value!r}")
    broken = workloads.broken_requirements(plan.entry, case, workloads.metadata(plan.entry, case))
    if broken:
        raise ExpressionError(f"the generated contents break {'; '.join(broken)}")


def raise_problems(problems: list[Problem]) -> None:
    """Raise one error that lists all problems, if there are any."""
    if problems:
        raise ManifestError(problems)
