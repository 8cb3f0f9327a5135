"""The validator: every rule that an entry, its rows and its op class must keep, all problems in one run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from tileops.manifest import implementation, rows
from tileops.manifest.branches import TooManyBranchesError
from tileops.manifest.coverage import Coverage, is_callable
from tileops.manifest.effects import Effects
from tileops.manifest.expressions import Literal
from tileops.manifest.model import Formula, Roofline
from tileops.manifest.plan import build_plan
from tileops.manifest.typecheck import checked

if TYPE_CHECKING:
    from tileops.manifest.model import OpEntry, Problem
    from tileops.manifest.plan import SignaturePlan
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
            entry = file.drafts.get(name)
            if entry is None or (wanted and name not in wanted):
                continue
            if name in seen:
                problems.append(entry.source.problem((name,), "repeated-op", f"{name} also stands in {seen[name]}"))
            seen[name] = file.name
            if entry.family != file.family and "family" not in entry.lost:
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
    """Return every problem of one entry, or of the draft of one, beyond those of its text.

    What is wrong is unknown from there on, and what follows from it is not asked; all else is checked.
    """
    sound, kinds = checked(entry)
    problems = [*implementation.reference(sound), *kinds, *Effects(sound).problems()]
    coverage = Coverage(sound)
    try:
        problems.extend(coverage.problems())
        problems.extend(rows.problems(sound, _plan(entry, sound, problems), coverage.excuses))
    except TooManyBranchesError as error:
        problems.append(sound.source.problem((sound.name, "signature"), "discriminant", str(error)))
        problems.extend(rows.problems(sound, None, coverage.excuses))
    if entry.status == "implemented" and "family" not in entry.lost:
        problems.extend(implementation.problems(sound))
    return problems


def _plan(entry: OpEntry, sound: OpEntry, problems: list[Problem]) -> SignaturePlan | None:
    """Return the plan by which rows can be called: of the entry, or of what is left of it without wrong refinements."""
    if not is_callable(sound):
        return None
    rules = tuple(rule if rule.known else Formula("True", Literal(value=True)) for rule in sound.signature.shape_rules)
    cost = _known_cost(sound.roofline)
    if not problems and sound is entry and (rules, cost) == (entry.signature.shape_rules, entry.roofline):
        return build_plan(entry)
    signature = msgspec.structs.replace(sound.signature, shape_rules=rules)
    digest = f"{entry.digest}-in-part"
    left = msgspec.structs.replace(sound, signature=signature, roofline=cost, digest=digest)
    again, kinds = checked(left)
    wrong = bool(kinds) or again is not left or any(Effects(left).problems()) or any(Coverage(left).problems())
    return None if wrong else build_plan(left)


def _known_cost(roofline: Roofline | None) -> Roofline | None:
    """Return a cost with nothing for arithmetic that is unknown, and each tensor once for bytes that are."""
    if roofline is None or roofline.func is not None:
        return roofline
    flops, size = roofline.flops, roofline.bytes
    return Roofline(
        flops=Formula("0", Literal(0)) if flops is not None and not flops.known else flops,
        bytes=None if size is not None and not size.known else size,
    )
