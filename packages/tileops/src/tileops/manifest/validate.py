"""The validator: every rule that an entry, its rows and its op class must keep, all problems in one run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from tileops.errors import ExpressionError
from tileops.manifest import implementation, rows
from tileops.manifest.coverage import Coverage
from tileops.manifest.effects import Effects
from tileops.manifest.plan import build_plan
from tileops.manifest.typecheck import TypeCheck

if TYPE_CHECKING:
    from tileops.manifest.model import OpEntry, Problem
    from tileops.manifest.registry import Registry


def validate(registry: Registry, only: Iterable[str] = ()) -> list[Problem]:
    """Return every problem of the registry's entries, or of those named, in the order of their files."""
    wanted = set(only)
    problems = [*registry.sums[1], *registry.strays]
    seen: dict[str, str] = {}
    for file in registry.files:
        if wanted and wanted.isdisjoint(file.op_names):
            continue
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
    return sorted(set(problems), key=msgspec.structs.astuple)


def validate_entry(entry: OpEntry) -> list[Problem]:
    """Return every problem of one entry."""
    problems = [*implementation.reference(entry), *Effects(entry).problems()]
    kinds = TypeCheck(entry).problems()
    if kinds:
        return [*problems, *kinds]
    try:
        found = list(Coverage(entry).problems())
    except ExpressionError as error:
        found = [entry.source.problem((entry.name, "signature"), "discriminant", str(error))]
    problems.extend(found)
    if found or problems:
        return problems
    plan = build_plan(entry)
    problems.extend(rows.problems(entry, plan))
    if entry.status == "implemented":
        problems.extend(implementation.problems(entry, plan))
    return problems
