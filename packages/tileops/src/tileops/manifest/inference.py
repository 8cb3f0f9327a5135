"""Unification of a call's tensors with the signature, in an order that is fixed ahead of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tileops.errors import ExpressionError
from tileops.manifest.branches import UNDECIDED, Branch, decide, is_restriction, prune, pruned
from tileops.manifest.document import UNREAD
from tileops.manifest.expressions import Call, Expression, Literal, Name, ShapeItem, Spread, Unknown
from tileops.manifest.families import arguments_of, filled, filled_item
from tileops.manifest.kinds import DTYPE_NAMES, DTypeKind, ShapeKind, UnknownKind
from tileops.manifest.model import Formula, Shape, Signature, TensorType, TypeFamily
from tileops.manifest.trees import ANYTHING, free_names, is_known, possible_names
from tileops.manifest.unification import linear

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class BindDType:
    """An index takes a tensor's dtype."""

    tensor: TensorType
    index: str


@dataclass(frozen=True, slots=True)
class CheckDType:
    """A tensor's dtype equals an expression of what is known."""

    tensor: TensorType
    expected: Formula


@dataclass(frozen=True, slots=True)
class Axes:
    """All axes of one tensor: each item is compared, bound or solved; at most one of unknown count."""

    tensor: TensorType
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """One axis, or one spliced run of axes, equals a known expression."""

    item: ShapeItem


@dataclass(frozen=True, slots=True)
class Bind:
    """One axis, or one spliced run of axes, gives an index its value."""

    index: str
    spliced: bool


@dataclass(frozen=True, slots=True)
class Solve:
    """One axis of extent factor * index + rest gives the index its value."""

    index: str
    factor: int
    rest: Expression
    written: Expression


@dataclass(frozen=True, slots=True)
class Compute:
    """A let takes its value."""

    name: str
    formula: Formula


@dataclass(frozen=True, slots=True)
class Require:
    """A refinement holds."""

    rule: Formula
    place: int


Item: TypeAlias = Compare | Bind | Solve
Step: TypeAlias = BindDType | CheckDType | Axes | Compute | Require


@dataclass(slots=True)
class Solution:
    """The steps that check one branch, what each index is found by, and what no input solves."""

    steps: list[Step] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    unsolved: list[str] = field(default_factory=list)
    stuck: list[TensorType] = field(default_factory=list)


def expand(shape: Shape, signature: Signature, branch: Branch) -> tuple[ShapeItem, ...]:
    """Return the axes that a shape has on a branch: its own, or those of its type family's case.

    Raises:
        ExpressionError: the family is unknown, has no case for the branch, or several.
    """
    return tuple(pruned(item, branch) for item in _expanded(shape, signature, branch, depth=0))


def _expanded(shape: Shape, signature: Signature, branch: Branch, depth: int) -> tuple[ShapeItem, ...]:
    if shape.family is None:
        return shape.items
    if depth > len(signature.families):
        raise ExpressionError(f"the type family {shape.family.function} is made of itself")
    family, arguments = arguments_of(shape.family, signature)
    values = tuple(decide(filled(formula.tree, arguments), branch.settled) for formula in family.match)
    places = _matching(family, values)
    if _is_open(family, values, places):
        items = [filled_item(item, arguments) for place in places for item in family.cases[place].shape.items]
        return (Spread(Unknown(frozenset().union(*map(possible_names, (*items, *shape.family.arguments))))),)
    if len(places) != 1:
        shown = ", ".join(repr(value) for value in values)
        raise ExpressionError(f"{family.name} has {'no case' if not places else 'several cases'} for {shown}")
    inner = family.cases[places[0]].shape
    if inner.family is not None:
        applied = tuple(filled_item(argument, arguments) for argument in inner.family.arguments)
        inner = Shape(inner.text, family=Call(inner.family.function, applied))
        return _expanded(inner, signature, branch, depth + 1)
    return tuple(filled_item(item, arguments) for item in inner.items)


def _matching(family: TypeFamily, values: tuple[object, ...]) -> list[int]:
    """Return the places of the cases for these values, or of those that may be for them where that is not known."""
    unread = [place for place, case in enumerate(family.cases) if UNREAD in case.when]
    if UNDECIDED in values:
        return list(range(len(family.cases)))
    return [place for place, case in enumerate(family.cases) if case.when == values] or unread


def _is_open(family: TypeFamily, values: tuple[object, ...], places: list[int]) -> bool:
    """Whether it is not known which case of a family is taken."""
    return UNDECIDED in values or any(UNREAD in family.cases[place].when for place in places)


def families_taken(shape: Shape, signature: Signature, branch: Branch) -> set[tuple[str, int]]:
    """Return the type families that a shape applies on a branch, each with the place of the case it takes."""
    taken: set[tuple[str, int]] = set()
    call = shape.family
    for _ in signature.families:
        if call is None:
            break
        try:
            family, arguments = arguments_of(call, signature)
            values = tuple(decide(filled(formula.tree, arguments), branch.settled) for formula in family.match)
        except ExpressionError:
            break
        places = _matching(family, values)
        taken |= {(family.name, place) for place in places}
        if not places or _is_open(family, values, places):
            break
        call = family.cases[places[0]].shape.family
        if call is not None:
            try:
                call = Call(call.function, tuple(filled_item(argument, arguments) for argument in call.arguments))
            except ExpressionError:
                break
    return taken


class Solver:
    """Finds the steps for one branch, from what construction already knows."""

    def __init__(self, signature: Signature, branch: Branch, known: Iterable[str]) -> None:
        self.signature = signature
        self.branch = branch
        unknown = {name for name, formula in signature.let.items() if not formula.known}
        self.solution = Solution(known={*known, *unknown})
        self.tensors = [tensor for tensor in signature.inputs if branch.present[tensor.name]]
        self.rules = dict(enumerate(signature.shape_rules))

    def solve(self) -> Solution:
        """Return the steps, with the indices that stay unsolved and the tensors that stay unchecked."""
        known = self.solution.known
        self.rules = {place: rule for place, rule in self.rules.items() if not self._settled_before(rule)}
        waiting_dtypes = list(self.tensors)
        waiting_shapes = list(self.tensors)
        progress = True
        while progress:
            progress = False
            for tensor in list(waiting_dtypes):
                if self._dtype(tensor):
                    waiting_dtypes.remove(tensor)
                    progress = True
            for tensor in list(waiting_shapes):
                if self._shape(tensor):
                    waiting_shapes.remove(tensor)
                    progress = True
                    self._settle()
        self._settle()
        self.solution.stuck = [*waiting_dtypes, *(tensor for tensor in waiting_shapes if tensor not in waiting_dtypes)]
        self.solution.unsolved = [name for name in self.signature.forall if name not in known]
        return self.solution

    def _settled_before(self, rule: Formula) -> bool:
        """Whether construction or the choice of the branch has checked a refinement."""
        read = free_names(rule.tree) - DTYPE_NAMES - {"inf"}
        held = {parameter.name for parameter in self.signature.parameters if parameter.tensor is not None}
        return read <= self.solution.known | held or is_restriction(rule, self.signature)

    def _readable(self, tree: Expression | Spread) -> bool:
        constants = DTYPE_NAMES | {"inf"}
        tensors = {tensor.name for tensor in self.signature.inputs} | {"out"}
        tensors |= {parameter.name for parameter in self.signature.parameters if parameter.tensor is not None}
        return free_names(tree) <= self.solution.known | constants | tensors

    def _dtype(self, tensor: TensorType) -> bool:
        match tensor.dtype.tree:
            case Name(index) if index in self.signature.forall and index not in self.solution.known:
                self.solution.steps.append(BindDType(tensor, index))
                self.solution.known.add(index)
                return True
        if not tensor.dtype.known:
            self.solution.known |= self._possible(tensor.dtype.tree)
            return True
        if not self._readable(tensor.dtype.tree):
            return False
        self.solution.steps.append(CheckDType(tensor, tensor.dtype))
        return True

    def _shape(self, tensor: TensorType) -> bool:
        bound: set[str] = set()
        items: list[Item] = []
        uncounted = 0
        whole = True
        for written in expand(tensor.shape, self.signature, self.branch):
            if not is_known(written):
                bound |= self._possible(written)
                whole = False
                continue
            item = self._item(written, bound)
            if item is None:
                return False
            uncounted += isinstance(item, Bind) and item.spliced
            items.append(item)
        if uncounted > 1:
            return False
        if whole:
            self.solution.steps.append(Axes(tensor, tuple(items)))
        self.solution.known |= bound
        return True

    def _possible(self, tree: ShapeItem) -> frozenset[str]:
        """Return the indices to which an unknown part of a tensor's type may give values."""
        names = possible_names(tree)
        indices = frozenset(self.signature.forall)
        return indices if names >= ANYTHING else names & indices

    def _item(self, written: ShapeItem, bound: set[str]) -> Item | None:
        known = self.solution.known | bound
        if self._readable(written) or free_names(written) <= known:
            return Compare(written)
        unknown = {name for name in free_names(written) if name not in known and name in self.signature.forall}
        if len(unknown) != 1:
            return None
        (index,) = unknown
        if isinstance(written, Spread):
            if written.value != Name(index) or not isinstance(self.signature.forall[index], ShapeKind | UnknownKind):
                return None
            bound.add(index)
            return Bind(index, spliced=True)
        if isinstance(self.signature.forall[index], DTypeKind | ShapeKind):
            return None
        parts = linear(written, index)
        if parts is None or parts[0] <= 0 or not free_names(parts[1]) <= known:
            return None
        bound.add(index)
        if parts == (1, Literal(0)):
            return Bind(index, spliced=False)
        return Solve(index, parts[0], parts[1], written)

    def _settle(self) -> None:
        """Place every let and refinement that is now computable."""
        progress = True
        while progress:
            progress = False
            for name, formula in self.signature.let.items():
                tree = prune(formula.tree, self.branch)
                if name not in self.solution.known and self._readable(tree):
                    self.solution.steps.append(Compute(name, Formula(formula.text, tree)))
                    self.solution.known.add(name)
                    progress = True
        for place, rule in list(self.rules.items()):
            tree = prune(rule.tree, self.branch)
            if self._readable(tree):
                if tree != Literal(value=True):
                    self.solution.steps.append(Require(Formula(rule.text, tree), place))
                del self.rules[place]
