"""What a row's values give on its branch: lets, what generators' shapes give, and the type of each tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import torch

from tileops.errors import ExpressionError
from tileops.manifest.branches import Branch, prune
from tileops.manifest.excuses import misspelled
from tileops.manifest.expressions import Call, Expression, ShapeItem, Spread, Tuple, Unknown
from tileops.manifest.generators import SHAPES
from tileops.manifest.inference import expand
from tileops.manifest.primitives import DTYPES
from tileops.manifest.rowvalues import tensors_of
from tileops.manifest.source import evaluate, run
from tileops.manifest.trees import ANYTHING, UNREADABLE, free_names, possible_names
from tileops.manifest.unification import unify

if TYPE_CHECKING:
    from tileops.manifest.model import Signature, TensorType

V = TypeVar("V")
MOST_CONTENTS: Final = 1 << 28
"""The elements that a tensor with generated contents may have."""
LONGEST_VALUE: Final = 1024
"""The bits that a number of a let's value may have: a few lets that each square would soon need millions."""


class TensorCase(msgspec.Struct, frozen=True):
    """One tensor of a case: its shape, its dtype, and how its contents are made where that is declared."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    values: str | None = None


class Solving:
    """Finds the values of one row's case; where faults are kept, what one of them concerns stays without a value."""

    def __init__(
        self,
        signature: Signature,
        branch: Branch,
        values: Mapping[str, object],
        unclear: Collection[str] = (),
        faults: list[ExpressionError] | None = None,
    ) -> None:
        self.signature = signature
        self.branch = branch
        self.known = dict(values)
        self.unclear = {UNREADABLE, *unclear}
        self.faults = faults
        self.strange: list[str] = []
        self.missed: set[str] = set()

    def solve(self) -> dict[str, object]:
        """Return the values with what lets and generators' shapes add to them.

        Raises:
            ExpressionError: a let or a generator has no value; only where no faults are kept.
        """
        lets = dict(self.signature.let)
        generated = [tensor for tensor in tensors_of(self.signature, self.branch) if tensor.values is not None]
        progress = True
        while progress:
            progress = False
            for name, formula in list(lets.items()):
                tree = prune(formula.tree, self.branch)
                if name not in self.known and self.readable(tree):
                    self._attempt(lambda name=name, tree=tree: self._let(name, tree), {name})  # type: ignore[misc]
                    del lets[name]
                    progress = True
            for tensor in list(generated):
                if all(self.readable(argument) for argument in self._arguments(tensor)):
                    self._attempt(lambda tensor=tensor: self._generated(tensor), self._given_by(tensor))  # type: ignore[misc]
                    generated.remove(tensor)
                    progress = True
        for tensor in generated:
            missing = self.missing(*self._arguments(tensor))
            if missing:
                self.missed.update(missing)
                message = f"the contents of {tensor.name} need {', '.join(missing)}, and the row does not give it"
                self._attempt(lambda message=message: _refuse(message), self._given_by(tensor))  # type: ignore[misc]
            else:
                self.unclear |= self._given_by(tensor)
        return self.known

    def tensor(self, tensor: TensorType) -> TensorCase | None:
        """Return the type that a tensor has in this case, or None where it is absent or that is not known.

        Raises:
            ExpressionError: the values give it none; only where no faults are kept.
        """
        if not self.branch.present.get(tensor.name, True):
            return None
        return self._attempt(lambda: self._tensor(tensor), set())

    def _attempt(self, computation: Callable[[], V], concerned: Collection[str]) -> V | None:
        """Return what a computation gives; what it concerns is without a value where it fails and faults are kept."""
        try:
            return computation()
        except ExpressionError as error:
            if self.faults is None:
                raise
            self.faults.append(error)
            self.unclear.update(concerned)
            return None

    def readable(self, tree: Expression | Spread) -> bool:
        """Whether everything that an expression reads has a value."""
        return free_names(tree) <= self.known.keys() | self.branch.present.keys() | DTYPES.keys() | {"inf"}

    def value(self, tree: Expression) -> object:
        """Return the value of an expression that is readable."""
        return evaluate(tree, self.known, self.branch.present)

    def generates(self, tensor: TensorType) -> bool:
        """Whether the arguments of a tensor's generator all have values."""
        return all(map(self.readable, self._arguments(tensor)))

    def missing(self, *trees: Expression | Spread) -> list[str]:
        """Return the names that expressions need and the row leaves out, or nothing where that follows from a fault."""
        names = frozenset().union(*map(free_names, trees))
        roots: set[str] = set()
        visited: set[str] = set()
        while names:
            lets = {name for name in names if name in self.signature.let and name not in self.known}
            roots |= names - lets
            visited |= lets
            if lets & self.unclear:
                return []
            names = frozenset().union(*(free_names(prune(self.signature.let[name].tree, self.branch)) for name in lets))
            names -= visited
        roots -= self.known.keys() | self.branch.present.keys() | DTYPES.keys() | {"inf"}
        if roots & self.unclear:
            return []
        return sorted(roots - self.missed - misspelled(self.strange, sorted(roots)))

    def _let(self, name: str, tree: Expression) -> None:
        value = self.value(tree)
        numbers = value if isinstance(value, tuple) else (value,)
        longest = max((number.bit_length() for number in numbers if isinstance(number, int)), default=0)
        if longest > LONGEST_VALUE:
            raise ExpressionError(f"let {name} has a value of {longest} bits; at most {LONGEST_VALUE}")
        self.known[name] = value

    def _call(self, tensor: TensorType) -> Call:
        tree = None if tensor.values is None else prune(tensor.values.tree, self.branch)
        return tree if isinstance(tree, Call) else Call("", () if tree is None else (tree,))

    def _arguments(self, tensor: TensorType) -> tuple[Expression | Spread, ...]:
        return self._call(tensor).arguments

    def _generated(self, tensor: TensorType) -> None:
        call = self._call(tensor)
        arguments = [self.value(found) for found in call.arguments if not isinstance(found, Spread)]
        shape = run(lambda: SHAPES[call.function](*arguments))
        items = self._axes(tensor)
        if not isinstance(shape, tuple):
            return
        try:
            self.known |= unify(items, shape, self.known, self.branch.present)
        except ExpressionError:
            if not frozenset().union(*map(free_names, items)) & self.unclear:
                raise

    def _given_by(self, tensor: TensorType) -> frozenset[str]:
        """Return the names to which a generated tensor's shape may give values."""
        return frozenset().union(*map(possible_names, self._axes(tensor)))

    def _axes(self, tensor: TensorType) -> tuple[ShapeItem, ...]:
        """Return a tensor's axes, unknown ones where faults are kept and its type family has no case for the branch."""
        try:
            return expand(tensor.shape, self.signature, self.branch)
        except ExpressionError:
            if self.faults is None:
                raise
            return (Spread(Unknown(ANYTHING)),)

    def _tensor(self, tensor: TensorType) -> TensorCase | None:
        items = self._axes(tensor)
        unread = [item for item in (*items, tensor.dtype.tree) if not self.readable(item)]
        for item in unread:
            missing = self.missing(item)
            if missing:
                self.missed.update(missing)
                raise ExpressionError(f"{tensor.name} needs {', '.join(missing)}, and the row does not give it")
        if unread:
            return None
        shape = evaluate(Tuple(items), self.known, self.branch.present)
        dtype = evaluate(tensor.dtype.tree, self.known, self.branch.present)
        if not isinstance(shape, tuple) or not isinstance(dtype, torch.dtype):
            raise ExpressionError(f"{tensor.name}: the row gives no shape or no dtype")
        if any(extent < 0 for extent in shape):
            raise ExpressionError(f"{tensor.name} would have the shape {shape}")
        if tensor.values is not None and math.prod(shape) > MOST_CONTENTS:
            message = f"{tensor.name} would have the shape {shape}, too many elements for generated contents"
            raise ExpressionError(message)
        return TensorCase(shape, dtype, None if tensor.values is None else tensor.values.text)


def _refuse(message: str) -> None:
    raise ExpressionError(message)
