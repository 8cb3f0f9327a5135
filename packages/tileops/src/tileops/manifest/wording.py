"""Refinements in words: what one asks of an argument, for errors; as the entry writes it where it has no such words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from tileops.errors import ExpressionError
from tileops.manifest.expressions import (
    Binary,
    Call,
    Comparison,
    Expression,
    Literal,
    Logical,
    Name,
    Negative,
    Not,
    Spread,
)
from tileops.manifest.primitives import show_dtype
from tileops.manifest.source import evaluate
from tileops.manifest.spelling import spell
from tileops.manifest.trees import free_names

if TYPE_CHECKING:
    from tileops.manifest.model import Signature


def one_of(words: tuple[str, ...]) -> str:
    """Return `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def show_value(value: object) -> str:
    """Return a value as errors write it."""
    return show_dtype(value) if isinstance(value, torch.dtype) else repr(value)


@dataclass(frozen=True, slots=True)
class Wording:
    """The parts of an error about a refinement that does not hold; no mend where there are no words for one."""

    subject: str
    expected: str
    received: str
    mend: str


@dataclass(frozen=True, slots=True)
class Words:
    """Says in words what the refinements of one signature ask, with the values of one construction or call."""

    signature: Signature
    values: Mapping[str, object]
    present: Mapping[str, bool]
    subjects: frozenset[str]
    """The names that a caller gives values to: parameters, or the fields of one."""

    def of(self, tree: Expression, text: str) -> Wording:
        """Return what a refinement that does not hold asks; of several that are joined, the first that does not."""
        match tree:
            case Logical("and", operands):
                broken = next((part for part in operands if not self._holds(part)), tree)
                if broken is not tree:
                    return self.of(broken, spell(broken))
            case Logical("or", (Not(Call("present", (Name(name),))), wanted)) if name not in self.subjects:
                asked = self.of(wanted, spell(wanted))
                if asked.mend:
                    return replace(
                        asked, expected=f"{asked.expected} with {name}", mend=f"{asked.mend}, or leave {name} out"
                    )
        for words in (self._number_of, self._range, self._choice, self._quotient):
            if (found := words(tree)) is not None:
                return found
        return self._as_written(tree, text)

    def _holds(self, tree: Expression) -> bool:
        try:
            return bool(evaluate(tree, self.values, self.present))
        except ExpressionError:
            return True

    def _parameter(self, tree: Expression) -> bool:
        """Whether a tree is the name of a subject whose value is known."""
        return isinstance(tree, Name) and tree.name in self.subjects and tree.name in self.values

    def _number_of(self, tree: Expression) -> Wording | None:
        """Return the words of a parameter that is finite, or that a dtype holds."""
        match tree:
            case Comparison(Negative(Name("inf")), ("<", "<"), (Name(name), Name("inf"))) if name in self.subjects:
                expected = "a finite number"
            case Call("representable", (Name(name), Name(dtype))) if name in self.subjects:
                expected = f"a number that {show_dtype(self.values.get(dtype, dtype))} holds"
            case _:
                return None
        return Wording(name, expected, show_value(self.values[name]), f"pass {expected}")

    def _range(self, tree: Expression) -> Wording | None:
        """Return the words of a comparison with numbers, as `1 <= top_k <= E` or `len(normalized_shape) >= 1`."""
        if not isinstance(tree, Comparison):
            return None
        terms = (tree.first, *tree.rest)
        for place, term in enumerate(terms):
            inner, counted = _counted(term)
            if not self._parameter(inner) or not isinstance(inner, Name):
                continue
            links = [(_TURNED.get(operator), other) for operator, other in _before(tree, place)]
            links += [(operator, other) for operator, other in _after(tree, place)]
            words = self._bounds(links)
            if words is None:
                return None
            what = f"{words} element{'' if words.endswith(' 1') else 's'}" if counted else words
            value = show_value(self.values[inner.name])
            mend = f"pass {inner.name} of {what}"
            return Wording(inner.name, f"{what}{self._reason(terms, inner.name)}", value, mend)
        return None

    def _bounds(self, links: Sequence[tuple[str | None, Expression]]) -> str | None:
        """Return `1 to 8`, `at least 1` or the like for what a value is compared with; None for anything else."""
        least: str | None = None
        most: str | None = None
        numbers: dict[str, float] = {}
        for operator, tree in links:
            bound = self._number(tree)
            if bound is None or operator not in {"<", "<=", ">", ">="}:
                return None
            whole = isinstance(bound, int)
            if operator in {">", ">="}:
                least = f"more than {bound}" if operator == ">" else f"at least {bound}"
                numbers["least"] = bound + 1 if operator == ">" and whole else bound
            else:
                most = f"less than {bound}" if operator == "<" else f"at most {bound}"
                numbers["most"] = bound - 1 if operator == "<" and whole else bound
        if least is None or most is None:
            return least or most
        if not all(isinstance(number, int) for number in numbers.values()):
            return f"{least} and {most}"
        return f"{numbers['least']} to {numbers['most']}" if numbers["least"] <= numbers["most"] else None

    def _number(self, tree: Expression) -> float | None:
        try:
            found = evaluate(tree, self.values, self.present)
        except ExpressionError:
            return None
        return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None

    def _choice(self, tree: Expression) -> Wording | None:
        """Return the words of a parameter that equals one of some values."""
        comparisons = tree.operands if isinstance(tree, Logical) and tree.operator == "or" else (tree,)
        words: list[str] = []
        names: set[str] = set()
        for part in comparisons:
            match part:
                case Comparison(Name(name) as first, ("==",), (other,)) if self._parameter(first):
                    if not isinstance(other, Literal) and other != Name("inf"):
                        return None
                    names.add(name)
                    words.append(spell(other))
                case _:
                    return None
        if len(names) != 1:
            return None
        (name,) = names
        return Wording(
            name,
            one_of(tuple(words)),
            show_value(self.values[name]),
            f"pass {'one of these' if words[1:] else words[0]}",
        )

    def _quotient(self, tree: Expression) -> Wording | None:
        """Return the words of a parameter that divides a number, or of a parameter or an axis that a number divides."""
        match tree:
            case Comparison(Binary("%", dividend, divisor), ("==",), (Literal(0),)):
                pass
            case _:
                return None
        whole, part = self._number(dividend), self._number(divisor)
        if whole is None or part is None:
            return None
        if isinstance(divisor, Name) and self._parameter(divisor):
            expected = f"a divisor of {whole}"
            return Wording(divisor.name, f"{expected}{self._reason((dividend,), '')}", str(part), f"pass {expected}")
        if not isinstance(dividend, Name):
            return None
        expected = f"a multiple of {part}"
        if self._parameter(dividend):
            return Wording(dividend.name, f"{expected}{self._reason((divisor,), '')}", str(whole), f"pass {expected}")
        place = self.place_of(dividend.name)
        if place is None:
            return None
        axis, tensor = place
        mend = f"pass {tensor} whose {axis} is {expected}"
        return Wording(tensor, f"{expected} as {axis}{self._reason((divisor,), '')}", str(whole), mend)

    def _reason(self, terms: Sequence[Expression], subject: str) -> str:
        """Return where the values come from that a comparison reads beside its subject."""
        read = sorted({name for term in terms for name in free_names(term)} - {subject})
        shown = [self._shown(name) for name in read if name in self.values]
        return f" for {', '.join(shown)}" if shown else ""

    def _shown(self, name: str) -> str:
        place = None if name in self.subjects else self.place_of(name)
        found = f"{name}={show_value(self.values[name])}"
        return found if place is None else f"{found} ({place[0]} of {place[1]})"

    def place_of(self, index: str) -> tuple[str, str] | None:
        """Return what of which tensor an index is, as `axis 1` of `x`; None where no tensor shows it as it is."""
        for tensor in self.signature.inputs:
            if not self.present.get(tensor.name, True):
                continue
            items = tensor.shape.items
            for place, item in enumerate(items):
                if item == Name(index):
                    spread = any(isinstance(other, Spread) for other in items[:place])
                    return f"axis {place - len(items) if spread else place}", tensor.name
                if item == Spread(Name(index)):
                    return ("the shape" if len(items) == 1 else "axes"), tensor.name
            if tensor.dtype.tree == Name(index):
                return "the dtype", tensor.name
        return None

    def _as_written(self, tree: Expression, text: str) -> Wording:
        """Return the refinement itself, and every value that it reads or that stands behind one."""
        read = sorted(free_names(tree))
        lets = [free_names(self.signature.let[name].tree) for name in read if name in self.signature.let]
        behind = frozenset().union(*(names for names in lets if not names & self.signature.let.keys()))
        read += sorted((behind & self.subjects) - set(read))
        shown = [self._shown(name) for name in read if name in self.values]
        shown += [
            f"{name} {'passed' if self.present[name] else 'not passed'}"
            for name in read
            if name in self.present and name not in self.values
        ]
        subject = next((name for name in read if self._parameter(Name(name))), read[0] if read else "call")
        return Wording(subject, text, ", ".join(shown) or "a call", "")


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What an operator is with its sides exchanged."""


def _counted(tree: Expression) -> tuple[Expression, bool]:
    """Return what a length is of, and whether the tree is one."""
    match tree:
        case Call("len", (inner,)) if not isinstance(inner, Spread):
            return inner, True
    return tree, False


def _before(tree: Comparison, place: int) -> list[tuple[str, Expression]]:
    """Return the operator and the term before one, where there is one."""
    return [(tree.operators[place - 1], (tree.first, *tree.rest)[place - 1])] if place else []


def _after(tree: Comparison, place: int) -> list[tuple[str, Expression]]:
    """Return the operator and the term behind one, where there is one."""
    return [(tree.operators[place], tree.rest[place])] if place < len(tree.rest) else []
