"""Origins: what a caller passed that a name of a refinement stands for, as a parameter or an axis of a tensor."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from tileops.errors import ExpressionError
from tileops.manifest.expressions import Attribute, Call, Conditional, Expression, Literal, Name, ShapeItem, Spread
from tileops.manifest.families import arguments_of, filled, filled_item
from tileops.manifest.primitives import show_dtype, show_shape
from tileops.manifest.source import evaluate
from tileops.manifest.spelling import spell
from tileops.manifest.trees import children, free_names, rewrite

if TYPE_CHECKING:
    from tileops.manifest.model import Shape, Signature


def show_value(value: object) -> str:
    """Return a value as errors write it."""
    if isinstance(value, torch.dtype):
        return show_dtype(value)
    return repr(value.value) if isinstance(value, enum.Enum) else repr(value)


@dataclass(frozen=True, slots=True)
class Place:
    """What of which tensor a name is: `axis 1`, `axes`, `the shape` or `the dtype`."""

    what: str
    tensor: str
    passed: bool = True
    """Whether a caller passes the tensor; an output follows from what was passed."""


@dataclass(frozen=True)
class Origins:
    """Traces the names of one signature to what a caller passed, with the values of one construction or call."""

    signature: Signature
    given: Mapping[str, object]
    present: Mapping[str, bool]
    subjects: frozenset[str]
    """The names that a caller gives values to: parameters, or the fields of one."""

    @cached_property
    def values(self) -> Mapping[str, object]:
        """The value of every name that is known, sizes that are symbols as the numbers that they stand for."""
        return {name: _plain(value) for name, value in self.given.items()}

    def value(self, tree: Expression) -> object:
        """Return the value of an expression, or None where it has none."""
        try:
            return _plain(evaluate(tree, self.values, self.present))
        except ExpressionError:
            return None

    def number(self, tree: Expression) -> float | None:
        """Return the number that an expression is, None where it is none."""
        found = self.value(tree)
        return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None

    def holds(self, tree: Expression) -> bool:
        """Whether a condition holds, as far as it can be asked."""
        return self.value(tree) in {True, None}

    def is_parameter(self, tree: Expression) -> bool:
        """Whether a tree is the name of a subject whose value is known."""
        return isinstance(tree, Name) and tree.name in self.subjects and tree.name in self.values

    def resolved(self, tree: Expression) -> Expression:
        """Return the tree with each let that is one parameter, one axis or a parameter's value for an axis as that."""

        def substitute(part: Expression) -> Expression | None:
            match part:
                case Attribute(Name(name) as inner, "value") if name in self.subjects:
                    return inner
                case Name(name) if name in self.signature.let:
                    return self._behind(self.signature.let[name].tree)
            return None

        return rewrite(tree, substitute)

    def _behind(self, tree: Expression) -> Expression | None:
        match tree:
            case Conditional(condition, then, otherwise):
                chosen = self.value(condition)
                return None if chosen is None else self._behind(then if chosen else otherwise)
            case Attribute(Name(name) as inner, "value") if name in self.subjects:
                return inner
            case Name():
                return self.resolved(tree)
            case Call("per_axis", (Name(name) as parameter, Literal(), Literal()), keywords):
                if self.values.get(name) is None:
                    return self._behind(dict(keywords)["fallback"]) if keywords else None
                return parameter if isinstance(self.values[name], int) else tree
        return None

    def leaves(self, *trees: Expression | Spread) -> list[str]:
        """Return, sorted, the names that expressions read, and for each let the names behind it."""
        found: set[str] = set()
        pending = [self.resolved(tree.value if isinstance(tree, Spread) else tree) for tree in trees]
        while pending:
            for name in free_names(pending.pop()):
                if name in self.signature.let:
                    pending.append(self.resolved(self.signature.let[name].tree))
                else:
                    found.add(name)
        return sorted(found)

    def reasons(self, trees: Iterable[Expression], hidden: AbstractSet[str]) -> list[str]:
        """Return, sorted, the values that expressions read from elsewhere than hidden names, and where each is from."""
        found: dict[str, str] = {}
        for tree in trees:
            fields = [part for part in parts_of(self.resolved(tree)) if isinstance(part, Attribute)]
            for part in fields:
                if isinstance(part.value, Name) and part.value.name not in hidden:
                    found[spell(part)] = f"{spell(part)}={show_value(self.value(part))}"
            owners = {part.value.name for part in fields if isinstance(part.value, Name)}
            for name in self.leaves(tree):
                shown = None if name in hidden or name in owners else self.shown(name)
                if shown is not None:
                    found[name] = shown
        return [found[name] for name in sorted(found)]

    def is_there(self, name: str) -> bool:
        """Whether a tensor, or a value for a parameter, was passed."""
        return self.present[name] if name in self.present else self.values.get(name) is not None

    def shown(self, name: str) -> str | None:
        """Return a name with its value and where that comes from, None for a name that has no value here."""
        if name in self.present and name not in self.values:
            return f"{'' if self.present[name] else 'no '}{name}"
        if name not in self.values:
            return None
        value = self.values[name]
        if name in self.subjects:
            return f"{name}={show_value(value)}"
        found = f"{name}={show_shape(value) if isinstance(value, tuple) else show_value(value)}"
        place = self.place_of(name)
        return f"{found} ({place.what} of {place.tensor})" if place is not None else f"{found}{self._within(name)}"

    def _within(self, index: str) -> str:
        """Return which axis of which input is computed from an index that no tensor shows as it is."""
        for tensor in self.signature.inputs:
            for place, item in enumerate(self._items(tensor.shape)):
                if index in free_names(item) and not isinstance(item, Spread):
                    return f" ({spell(item)} is axis {place} of {tensor.name})"
        return ""

    def place_of(self, index: str) -> Place | None:
        """Return what of which tensor an index is; None where no tensor shows it as it is."""
        constructed = [found.tensor for found in self.signature.parameters if found.tensor is not None]
        passed = [tensor for tensor in (*self.signature.inputs, *constructed) if self.present.get(tensor.name, True)]
        for tensor in (*passed, *self.signature.outputs):
            items = self._items(tensor.shape)
            given = tensor in passed
            for place, item in enumerate(items):
                if item == Name(index):
                    spread = any(isinstance(other, Spread) for other in items[:place])
                    return Place(f"axis {place - len(items) if spread else place}", tensor.name, given)
                if item == Spread(Name(index)):
                    return Place("the shape" if len(items) == 1 else "axes", tensor.name, given)
            if tensor.dtype.tree == Name(index):
                return Place("the dtype", tensor.name, given)
        return None

    def _items(self, shape: Shape) -> tuple[ShapeItem, ...]:
        """Return the axes of a shape, of a type family's those of the case that these values choose."""
        if shape.family is None:
            return shape.items
        family, arguments = arguments_of(shape.family, self.signature)
        key = tuple(self.value(filled(formula.tree, arguments)) for formula in family.match)
        items = next((self._items(case.shape) for case in family.cases if case.when == key), ())
        return tuple(filled_item(item, arguments) for item in items)


def parts_of(tree: Expression | Spread) -> Iterator[Expression | Spread]:
    """Yield a tree and all that it is made of."""
    yield tree
    for child in children(tree):
        yield from parts_of(child)


def _plain(value: object) -> object:
    """Return the number that a symbol of a traced call stands for, and any other value as it is."""
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    if isinstance(value, torch.SymInt | torch.SymBool) and value.node.has_hint():
        return value.node.hint
    return value
