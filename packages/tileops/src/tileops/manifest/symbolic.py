"""Where expressions of a call need numbers: sizes are symbols while a call is traced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tileops.manifest.expressions import (
    Attribute,
    Call,
    Comparison,
    Comprehension,
    Conditional,
    Expression,
    Logical,
    Name,
    Not,
    Slice,
    Spread,
    Subscript,
)
from tileops.manifest.functions import PRIMITIVE_KINDS
from tileops.manifest.trees import children

_NUMBERS_ONLY: Final[Mapping[str, tuple[int, ...]]] = {
    "category": (0,),
    "mhc.expansion": (0,),
    "representable": (0,),
    "reduced": (1, 2),
    "valid_axes": (0, 1),
    "unique_axes": (0, 1),
    "nonempty_axes": (0,),
    "per_axis": (1, 2),
}
"""The places of the arguments that a function needs as numbers."""
_PLAIN_RESULT: Final = frozenset({"present", "len", "category"})
"""Functions whose result is no symbol, whatever their arguments are."""


class Symbols:
    """Knows which names of a signature are symbols, or made of symbols, while a call is traced."""

    def __init__(self, sizes: frozenset[str], lets: Mapping[str, Expression]) -> None:
        self.names = sizes
        self.lets = lets
        pending = dict(lets)
        progress = True
        while progress:
            found = {name for name, tree in pending.items() if self.symbolic(tree)}
            self.names |= found
            progress = bool(found)
            for name in found:
                del pending[name]

    def symbolic(self, tree: Expression | Spread, bound: frozenset[str] = frozenset()) -> bool:
        """Whether the value may be a symbol or hold one; `bound` are the comprehensions' names that may."""
        match tree:
            case Name(name):
                return name in self.names or name in bound
            case Call(function) if function in _PLAIN_RESULT:
                return False
            case Comprehension(body, target, sequence):
                inner = bound | {target} if self.symbolic(sequence, bound) else bound
                return self.symbolic(body, inner)
            case Attribute(value, field) if field != "value":
                return self.symbolic(value, bound)
        return any(self.symbolic(child, bound) for child in children(tree))

    def misused(self, tree: Expression | Spread, *, shape: bool, bound: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield what in an expression needs a number where a symbol stands; `shape` says that it gives an extent."""
        if isinstance(tree, Comprehension):
            yield from self.misused(tree.sequence, shape=shape, bound=bound)
            inner = bound | {tree.target} if self.symbolic(tree.sequence, bound) else bound
            yield from self.misused(tree.body, shape=shape, bound=inner)
            return
        wrong = self._wrong(tree, shape, bound)
        if wrong:
            yield wrong
        for child in children(tree):
            yield from self.misused(child, shape=shape, bound=bound)

    def _wrong(self, tree: Expression | Spread, shape: bool, bound: frozenset[str]) -> str:
        match tree:
            case Call(function, arguments) if function in PRIMITIVE_KINDS:
                needed = _NUMBERS_ONLY.get(function, () if PRIMITIVE_KINDS[function].symbolic else range(9))
                if any(self.symbolic(arguments[place], bound) for place in needed if place < len(arguments)):
                    return function
            case Comparison(first, operators, rest):
                parts = (first, *rest)
                for operator, pair in zip(operators, zip(parts, rest, strict=False), strict=True):
                    if operator in {"==", "!="} and any(self._truth(part, bound) for part in pair):
                        return f"{operator} of comparisons"
            case Subscript(_, index) if self.symbolic(index, bound):
                return "an index"
            case Slice(_, start, stop) if any(part and self.symbolic(part, bound) for part in (start, stop)):
                return "the bound of a slice"
            case Conditional(condition) if shape and self.symbolic(condition, bound):
                return "the condition of a shape"
        return ""

    def _truth(self, tree: Expression, bound: frozenset[str]) -> bool:
        """Whether the value is a truth value made of symbols."""
        match tree:
            case Not(operand):
                return self._truth(operand, bound)
            case Comparison() | Call("all"):
                return self.symbolic(tree, bound)
            case Name(name) if name in self.names and name in self.lets:
                return self._truth(self.lets[name], bound)
            case Logical(_, operands):
                return any(self._truth(operand, bound) for operand in operands)
        return False
