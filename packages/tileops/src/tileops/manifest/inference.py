"""Unification of a call's tensors with the signature, in an order that is fixed ahead of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tileops.errors import ExpressionError
from tileops.manifest.branches import Branch, decide
from tileops.manifest.expressions import Binary, Expression, Literal, Name, Negative, ShapeItem, Spread
from tileops.manifest.kinds import DTYPE_NAMES, DTypeKind, ShapeKind
from tileops.manifest.model import Formula, Shape, Signature, TensorType
from tileops.manifest.trees import free_names, rewrite

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
    """Return the axes that a shape has on a branch: its own, or those of its type family's case."""
    if shape.family is None:
        return shape.items
    family = signature.families.get(shape.family.function)
    if family is None:
        raise ExpressionError(f"{shape.family.function!r} is not a type family of this signature")
    arguments = dict(zip(family.parameters, shape.family.arguments, strict=True))
    values = tuple(decide(argument_of(formula, arguments), branch.settled) for formula in family.match)
    for case in family.cases:
        if case.when == values:
            return tuple(_substituted(item, arguments) for item in expand(case.shape, signature, branch))
    raise ExpressionError(f"{family.name} has no case for {', '.join(map(repr, values))}")


def argument_of(formula: Formula, arguments: Mapping[str, ShapeItem]) -> Expression:
    """Return a family's formula with the family's own names replaced by its arguments."""
    replaced = _substituted(formula.tree, arguments)
    if isinstance(replaced, Spread):
        raise ExpressionError(f"{formula.text!r} matches a splice")
    return replaced


def _substituted(item: ShapeItem, arguments: Mapping[str, ShapeItem]) -> ShapeItem:
    if isinstance(item, Spread):
        if isinstance(item.value, Name) and isinstance(replaced := arguments.get(item.value.name), Spread):
            return replaced
        return Spread(_filled(item.value, arguments))
    return _filled(item, arguments)


def _filled(tree: Expression, arguments: Mapping[str, ShapeItem]) -> Expression:
    def substitute(part: Expression) -> Expression | None:
        if isinstance(part, Name) and part.name in arguments:
            found = arguments[part.name]
            return found.value if isinstance(found, Spread) else found
        return None

    return rewrite(tree, substitute)


def linear(tree: Expression, index: str) -> tuple[int, Expression] | None:
    """Return (a, e) when the tree is a * index + e with a constant a and an e without the index, else None."""
    if index not in free_names(tree):
        return 0, tree
    match tree:
        case Name():
            return 1, Literal(0)
        case Negative(operand):
            inner = linear(operand, index)
            return None if inner is None else (-inner[0], _negated(inner[1]))
        case Binary("+" | "-" as operator, left, right):
            first, second = linear(left, index), linear(right, index)
            if first is None or second is None:
                return None
            sign = 1 if operator == "+" else -1
            return first[0] + sign * second[0], _folded(operator, first[1], second[1])
        case Binary("*", Literal(int(factor)), other) | Binary("*", other, Literal(int(factor))):
            inner = linear(other, index)
            return None if inner is None else (factor * inner[0], _folded("*", Literal(factor), inner[1]))
    return None


def _negated(tree: Expression) -> Expression:
    return Literal(-tree.value) if isinstance(tree, Literal) and isinstance(tree.value, int) else Negative(tree)


def _folded(operator: str, left: Expression, right: Expression) -> Expression:
    if (
        isinstance(left, Literal)
        and isinstance(right, Literal)
        and isinstance(left.value, int)
        and isinstance(right.value, int)
    ):
        first, second = left.value, right.value
        return Literal({"+": first + second, "-": first - second, "*": first * second}[operator])
    if right == Literal(0) and operator in "+-":
        return left
    if left == Literal(0) and operator == "+":
        return right
    return Binary(operator, left, right)


class Solver:
    """Finds the steps for one branch, from what construction already knows."""

    def __init__(self, signature: Signature, branch: Branch, known: Iterable[str]) -> None:
        self.signature = signature
        self.branch = branch
        self.solution = Solution(known=set(known))
        self.tensors = [tensor for tensor in signature.inputs if branch.present[tensor.name]]
        self.rules = dict(enumerate(signature.shape_rules))

    def solve(self) -> Solution:
        """Return the steps, with the indices that stay unsolved and the tensors that stay unchecked."""
        known = self.solution.known
        self.rules = {place: rule for place, rule in self.rules.items() if not self._readable(rule.tree)}
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

    def _readable(self, tree: Expression | Spread) -> bool:
        constants = DTYPE_NAMES | {"inf"}
        tensors = {tensor.name for tensor in self.signature.inputs} | {"out"}
        return free_names(tree) <= self.solution.known | constants | tensors

    def _dtype(self, tensor: TensorType) -> bool:
        match tensor.dtype.tree:
            case Name(index) if index in self.signature.forall and index not in self.solution.known:
                self.solution.steps.append(BindDType(tensor, index))
                self.solution.known.add(index)
                return True
        if not self._readable(tensor.dtype.tree):
            return False
        self.solution.steps.append(CheckDType(tensor, tensor.dtype))
        return True

    def _shape(self, tensor: TensorType) -> bool:
        bound: set[str] = set()
        items: list[Item] = []
        uncounted = 0
        for written in expand(tensor.shape, self.signature, self.branch):
            item = self._item(written, bound)
            if item is None:
                return False
            uncounted += isinstance(item, Bind) and item.spliced
            items.append(item)
        if uncounted > 1:
            return False
        self.solution.steps.append(Axes(tensor, tuple(items)))
        self.solution.known |= bound
        return True

    def _item(self, written: ShapeItem, bound: set[str]) -> Item | None:
        known = self.solution.known | bound
        if self._readable(written) or free_names(written) <= known:
            return Compare(written)
        unknown = {name for name in free_names(written) if name not in known and name in self.signature.forall}
        if len(unknown) != 1:
            return None
        (index,) = unknown
        if isinstance(written, Spread):
            if written.value != Name(index) or not isinstance(self.signature.forall[index], ShapeKind):
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
                if name not in self.solution.known and self._readable(formula.tree):
                    self.solution.steps.append(Compute(name, formula))
                    self.solution.known.add(name)
                    progress = True
        for place, rule in list(self.rules.items()):
            if self._readable(rule.tree):
                self.solution.steps.append(Require(rule, place))
                del self.rules[place]
