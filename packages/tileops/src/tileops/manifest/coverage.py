"""Rules over every branch of a signature: families cover it, inputs solve it, sizes may stay symbols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from tileops.errors import ExpressionError
from tileops.manifest.branches import Branch, branches
from tileops.manifest.construction import ConstructionCheck
from tileops.manifest.document import UNREAD
from tileops.manifest.excuses import Excuses, restricts_unclearly, type_names
from tileops.manifest.expressions import Spread, Unknown
from tileops.manifest.inference import Require, Solution, Solver, expand, families_taken
from tileops.manifest.kinds import DTYPE_NAMES, DTypeKind, SequenceKind, UnknownKind
from tileops.manifest.model import Formula, Shape
from tileops.manifest.symbolic import Symbols
from tileops.manifest.trees import ANYTHING, UNREADABLE, free_names, is_known, possible_names

if TYPE_CHECKING:
    from tileops.manifest.expressions import Expression, ShapeItem
    from tileops.manifest.model import OpEntry, Path, Problem, Signature, TensorType

_CONSTANTS = DTYPE_NAMES | {"inf"}


class Coverage:
    """Checks one entry whose kinds are right, or of which what is wrong is unknown."""

    def __init__(self, entry: OpEntry) -> None:
        self.entry = entry
        self.signature: Signature = entry.signature
        self.path: Path = (entry.name, "signature")
        self.construction = ConstructionCheck(entry)
        self.solved: set[str] = set()
        self.blamed: set[str] = set()
        """Names that a problem of some branch says to be without a value."""
        self.checked: set[int] = set()
        self.cases: set[tuple[str, int]] = set()
        self.excuses = Excuses(self.signature)

    def problems(self) -> Iterator[Problem]:
        """Yield every problem of the signature's branches."""
        accepted = branches(self.signature)
        if not accepted:
            yield self._problem(("shape_rules",), "restriction", "the refinements exclude every call", "loosen them")
            return
        for branch in accepted if self.excuses.needed else ():
            self.excuses.note(branch, self._solution(branch))
        self.excuses.settle()
        of_branches = [list(self._branch(branch)) for branch in accepted]
        everywhere = set.intersection(*map(set, of_branches))
        unclear = any(restricts_unclearly(rule, self.signature) for rule in self.signature.shape_rules)
        certain = not unclear and not any(accepted[0].undecided(tensor.optional) for tensor in self.signature.inputs)
        found = dict.fromkeys(problem for problems in of_branches for problem in problems)
        yield from (problem for problem in found if certain or problem in everywhere)
        yield from self._indices()
        yield from self._refinements()
        yield from self._unreached()
        yield from self._symbolic()

    def _problem(self, path: Path, rule: str, message: str, mend: str = "") -> Problem:
        return self.entry.source.problem((*self.path, *path), rule, message, mend)

    def _branch(self, branch: Branch) -> Iterator[Problem]:
        """Yield what keeps one branch from being checked."""
        for group, tensor in self._tensors(branch):
            message = self._uncovered(tensor, branch)
            if message:
                yield self._problem((group, tensor.name, "shape"), "family-coverage", message, "add or mend a case")
            self.cases |= families_taken(tensor.shape, self.signature, branch)
        solution = self._solution(branch)
        self.solved |= solution.known
        self.checked |= {step.place for step in solution.steps if isinstance(step, Require)}
        given = solution.known | self.signature.let.keys() if solution.stuck else solution.known
        for tensor in solution.stuck:
            given |= possible_names(tensor.dtype.tree).union(*map(possible_names, self._axes(tensor, branch)))
            yield self._problem(
                ("inputs", tensor.name, "shape"),
                "unsolvable",
                f"nothing gives the indices of {tensor.name}: {tensor.dtype.text}, {tensor.shape.text}",
                "let one tensor have each index alone on an axis",
            )
        self.blamed |= given - solution.known
        yield from self._outputs(branch, given)

    def _uncovered(self, tensor: TensorType, branch: Branch) -> str:
        """Return why a tensor's shape has no axes on a branch, or nothing."""
        try:
            expand(tensor.shape, self.signature, branch)
        except ExpressionError as error:
            return str(error)
        return ""

    def _solution(self, branch: Branch) -> Solution:
        """Return how a branch is solved, where a shape without a case for it may give what its arguments read."""
        known = [*self.construction.known_where(branch.present), *self.excuses.of(branch)]
        signature = self.signature
        uncovered = [tensor for tensor in signature.inputs if tensor.shape.family and self._uncovered(tensor, branch)]
        if uncovered:
            inputs = tuple(
                msgspec.structs.replace(tensor, shape=_unknown_shape(tensor.shape)) if tensor in uncovered else tensor
                for tensor in signature.inputs
            )
            signature = msgspec.structs.replace(signature, inputs=inputs)
        return Solver(signature, branch, known).solve()

    def _tensors(self, branch: Branch) -> Iterator[tuple[str, TensorType]]:
        yield from (("inputs", tensor) for tensor in self.signature.inputs if branch.present[tensor.name])
        for tensor in self.signature.outputs:
            if tensor.nullable is None or branch.decides(tensor.nullable):
                yield "outputs", tensor

    def _axes(self, tensor: TensorType, branch: Branch) -> tuple[ShapeItem, ...]:
        """Return a tensor's axes on a branch, and those of no shape that has none there."""
        try:
            return expand(tensor.shape, self.signature, branch)
        except ExpressionError:
            return ()

    def _outputs(self, branch: Branch, given: set[str]) -> Iterator[Problem]:
        tensors = set(branch.present)
        for group, tensor in self._tensors(branch):
            if group == "inputs" or branch.undecided(tensor.nullable):
                continue
            trees = [tensor.dtype.tree, *self._axes(tensor, branch)]
            missing = frozenset().union(*map(free_names, trees)) - given - _CONSTANTS - tensors - {UNREADABLE}
            if missing:
                self.blamed |= missing
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
            if name in self.solved or name in self.blamed:
                continue
            if isinstance(kind, SequenceKind):
                if name not in content and name not in self.excuses.sequences(self.signature.inputs):
                    yield self._problem(("forall", name), "unused-index", f"{name} stands in no generator", "remove it")
            elif isinstance(kind, UnknownKind) and name in content:
                continue
            elif not any(read & {name, *ANYTHING} for read in type_names(self.signature)):
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
        return frozenset().union(*(possible_names(formula.tree) for formula in formulas))

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
            elif rule.known and place not in self.checked and not read <= settled | passed | self.solved:
                yield self._problem(("shape_rules", place), "unread-refinement", f"no branch can check {rule.text}")

    def _unreached(self) -> Iterator[Problem]:
        applied = {name for name, _ in self.cases}
        for name, family in self.signature.families.items():
            if name not in applied:
                if self.excuses.family(name):
                    continue
                yield self._problem(("types", name), "unused-family", f"no shape applies {name}", "remove it")
                continue
            for place, case in enumerate(family.cases):
                if (name, place) not in self.cases and UNREAD not in case.when:
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


def is_callable(entry: OpEntry) -> bool:
    """Whether all that decides and types the tensors of a call is known."""
    signature = entry.signature
    tensors = [*signature.inputs, *signature.outputs, *(found.tensor for found in signature.parameters if found.tensor)]
    formulas = [*signature.let.values()]
    shapes = [tensor.shape for tensor in tensors]
    for tensor in tensors:
        said = (tensor.optional, tensor.mutated, tensor.nullable, tensor.values)
        formulas += [tensor.dtype, *(found for found in said if isinstance(found, Formula))]
    for family in signature.families.values():
        formulas += family.match
        shapes += [case.shape for case in family.cases]
        if any(UNREAD in case.when for case in family.cases):
            return False
    items = [item for shape in shapes for item in shape.items]
    kinds = [*signature.forall.values(), *(parameter.kind for parameter in signature.parameters)]
    unknown = signature.lost or any(isinstance(kind, UnknownKind) for kind in kinds)
    return not unknown and all(formula.known for formula in formulas) and all(map(is_known, items))


def _unknown_shape(shape: Shape) -> Shape:
    read = frozenset() if shape.family is None else possible_names(shape.family)
    return Shape(shape.text, (Spread(Unknown(read)),))


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
