"""Rules over every branch of a signature: families cover it, inputs solve it, sizes may stay symbols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tileops.errors import ExpressionError
from tileops.manifest.branches import Branch, branches
from tileops.manifest.construction import ConstructionCheck
from tileops.manifest.inference import Require, Solution, Solver, expand, families_taken
from tileops.manifest.kinds import DTYPE_NAMES, DTypeKind, SequenceKind
from tileops.manifest.symbolic import Symbols
from tileops.manifest.trees import free_names

if TYPE_CHECKING:
    from tileops.manifest.expressions import Expression, Spread
    from tileops.manifest.model import OpEntry, Path, Problem, Signature, TensorType

_CONSTANTS = DTYPE_NAMES | {"inf"}


class Coverage:
    """Checks one entry whose kinds are right."""

    def __init__(self, entry: OpEntry) -> None:
        self.entry = entry
        self.signature: Signature = entry.signature
        self.path: Path = (entry.name, "signature")
        self.construction = ConstructionCheck(entry)
        self.solved: set[str] = set()
        self.checked: set[int] = set()
        self.cases: set[tuple[str, int]] = set()

    def problems(self) -> Iterator[Problem]:
        """Yield every problem of the signature's branches."""
        accepted = branches(self.signature)
        if not accepted:
            yield self._problem(("shape_rules",), "restriction", "the refinements exclude every call", "loosen them")
            return
        for branch in accepted:
            yield from self._branch(branch)
        yield from self._indices()
        yield from self._refinements()
        yield from self._unreached()
        yield from self._symbolic()

    def _problem(self, path: Path, rule: str, message: str, mend: str = "") -> Problem:
        return self.entry.source.problem((*self.path, *path), rule, message, mend)

    def _branch(self, branch: Branch) -> Iterator[Problem]:
        """Yield what keeps one branch from being checked."""
        broken = False
        for group, tensor in self._tensors(branch):
            try:
                self.cases |= families_taken(tensor.shape, self.signature, branch)
                expand(tensor.shape, self.signature, branch)
            except ExpressionError as error:
                broken = True
                yield self._problem((group, tensor.name, "shape"), "family-coverage", str(error), "add or mend a case")
        if broken:
            return
        known = self.construction.known_where(branch.present)
        solution = Solver(self.signature, branch, known).solve()
        self.solved |= solution.known
        self.checked |= {step.place for step in solution.steps if isinstance(step, Require)}
        for tensor in solution.stuck:
            yield self._problem(
                ("inputs", tensor.name, "shape"),
                "unsolvable",
                f"nothing gives the indices of {tensor.name}: {tensor.dtype.text}, {tensor.shape.text}",
                "let one tensor have each index alone on an axis",
            )
        if not solution.stuck:
            yield from self._outputs(branch, solution)

    def _tensors(self, branch: Branch) -> Iterator[tuple[str, TensorType]]:
        yield from (("inputs", tensor) for tensor in self.signature.inputs if branch.present[tensor.name])
        for tensor in self.signature.outputs:
            if tensor.nullable is None or branch.decides(tensor.nullable):
                yield "outputs", tensor

    def _outputs(self, branch: Branch, solution: Solution) -> Iterator[Problem]:
        tensors = set(branch.present)
        for group, tensor in self._tensors(branch):
            if group == "inputs":
                continue
            trees = [tensor.dtype.tree, *expand(tensor.shape, self.signature, branch)]
            missing = frozenset().union(*map(free_names, trees)) - solution.known - _CONSTANTS - tensors
            if missing:
                yield self._problem(
                    ("outputs", tensor.name, "shape"),
                    "unsolvable",
                    f"no input of this branch gives {', '.join(sorted(missing))} of {tensor.name}",
                    "match the branch in a type family, or take it from an input",
                )

    def _indices(self) -> Iterator[Problem]:
        """Yield indices that nothing solves."""
        content = self._read_by_contents()
        for name, kind in self.signature.forall.items():
            if name in self.solved:
                continue
            if isinstance(kind, SequenceKind):
                if name not in content:
                    yield self._problem(("forall", name), "unused-index", f"{name} stands in no generator", "remove it")
            elif not any(name in read for read in self._reads()):
                yield self._problem(("forall", name), "unused-index", f"{name} stands in no type", "remove it")
            else:
                message = f"no input solves {name}"
                yield self._problem(("forall", name), "unsolvable", message, "let one tensor have it alone on an axis")

    def _read_by_contents(self) -> frozenset[str]:
        formulas = [
            formula
            for tensor in self.signature.inputs
            for formula in (*([tensor.values] if tensor.values else []), *tensor.requires)
        ]
        return frozenset().union(*(free_names(formula.tree) for formula in formulas))

    def _reads(self) -> Iterator[frozenset[str]]:
        """Yield the names that each type of the signature reads."""
        shapes = [tensor.shape for tensor in (*self.signature.inputs, *self.signature.outputs)]
        shapes += [case.shape for family in self.signature.families.values() for case in family.cases]
        for shape in shapes:
            items = shape.items if shape.family is None else shape.family.arguments
            yield from (free_names(item) for item in items)
        for tensor in (*self.signature.inputs, *self.signature.outputs):
            yield free_names(tensor.dtype.tree)
        yield from (free_names(formula.tree) for formula in self.signature.let.values())

    def _refinements(self) -> Iterator[Problem]:
        """Yield refinements that no call checks, and those that need what only workloads know."""
        settled = set(self.construction.known) | {found.name for found in self.signature.parameters}
        passed = {tensor.name for tensor in self.signature.inputs} | {"out"}
        lists = {name for name, kind in self.signature.forall.items() if isinstance(kind, SequenceKind)}
        for place, rule in enumerate(self.signature.shape_rules):
            read = free_names(rule.tree) - _CONSTANTS
            if read & lists:
                message = f"{rule.text} reads {', '.join(sorted(read & lists))}, which only workloads know"
                yield self._problem(("shape_rules", place), "workload-index", message, "state it under requires")
            elif place not in self.checked and not read <= settled | passed | self.solved:
                yield self._problem(("shape_rules", place), "unread-refinement", f"no branch can check {rule.text}")

    def _unreached(self) -> Iterator[Problem]:
        applied = {name for name, _ in self.cases}
        for name, family in self.signature.families.items():
            if name not in applied:
                yield self._problem(("types", name), "unused-family", f"no shape applies {name}", "remove it")
                continue
            for place, case in enumerate(family.cases):
                if (name, place) not in self.cases:
                    shown = ", ".join(repr(value) for value in case.when)
                    message = f"no call that the signature accepts takes the case {shown}"
                    yield self._problem(("types", name, "cases", place), "unreached-case", message, "remove it")

    def _symbolic(self) -> Iterator[Problem]:
        """Yield expressions that a call evaluates and that need numbers in place of symbolic sizes."""
        known = self.construction.known
        sizes = {
            name
            for name, kind in self.signature.forall.items()
            if name not in known and not isinstance(kind, DTypeKind)
        }
        lets = {name: formula.tree for name, formula in self.signature.let.items() if name not in known}
        symbols = Symbols(frozenset(sizes), lets)
        for path, tree in self._evaluated():
            shape = path[0] != "shape_rules"
            for function in symbols.misused(tree, shape=shape):
                message = f"{function} needs numbers, and sizes are symbols while a call is traced"
                yield self._problem(path, "symbolic-sizes", message, "compute it from construction parameters")

    def _evaluated(self) -> Iterator[tuple[Path, Expression | Spread]]:
        """Yield every expression that a call evaluates, with its place."""
        for group, tensors in (("inputs", self.signature.inputs), ("outputs", self.signature.outputs)):
            for tensor in tensors:
                items = tensor.shape.items if tensor.shape.family is None else tensor.shape.family.arguments
                yield from (((group, tensor.name, "shape"), item) for item in items)
        yield from ((("let", name), formula.tree) for name, formula in self.signature.let.items())
        yield from ((("shape_rules", place), rule.tree) for place, rule in enumerate(self.signature.shape_rules))
        for family in self.signature.families.values():
            for place, case in enumerate(family.cases):
                yield from ((("types", family.name, "cases", place, "is"), item) for item in case.shape.items)


def dtype_values(signature: Signature, tensor: TensorType) -> tuple[str, ...]:
    """Return the dtypes that a tensor may have, where they follow from the signature alone."""
    names = free_names(tensor.dtype.tree)
    found: list[str] = []
    for name in names:
        kind = signature.forall.get(name)
        if isinstance(kind, DTypeKind):
            found.extend(kind.values)
        elif name in DTYPE_NAMES:
            found.append(name)
    return tuple(found)
