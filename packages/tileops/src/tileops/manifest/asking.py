"""Asking: what one condition that does not hold asks of what a caller passed, and what would mend it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch

from tileops.manifest.expressions import (
    Attribute,
    Binary,
    Call,
    Comparison,
    Comprehension,
    Expression,
    Literal,
    Logical,
    Name,
    Negative,
    Not,
    Tuple,
)
from tileops.manifest.origins import show_value
from tileops.manifest.primitives import show_shape
from tileops.manifest.terms import AXIS, CONSTANT, PARAMETER, Term, term_of

if TYPE_CHECKING:
    from tileops.manifest.origins import Origins

FLAG, OTHER, PRESENT, CHOICE, VALUE = range(5)
"""How much a condition says of its subject; of several alternatives the error is about the one that says most."""

_NOTHING: Final = Literal(None)
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What an operator is with its sides exchanged."""
_NEGATED: Final = {
    "==": "!=",
    "!=": "==",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "in": "not in",
    "not in": "in",
}
_NUMBERS: Final = {"bool": "a bool", "int": "an int", "float": "a float", "complex": "a complex number"}
_DTYPES: Final = {"bool": "bool", "int": "of whole numbers", "float": "of floating point", "complex": "complex"}
"""What `category` gives, of a number and of a dtype, in words."""


def one_of(words: tuple[str, ...]) -> str:
    """Return `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


@dataclass(frozen=True, slots=True)
class Ask:
    """What one condition asks of one subject: phrases that say it, put into the words of its term."""

    rank: int
    term: Term
    phrases: tuple[str, ...]
    received: str
    mend: str
    reads: tuple[Expression, ...] = ()
    """The trees whose values are reasons for what is asked."""
    condition: Expression = _NOTHING
    """The condition that does not hold."""

    @property
    def subject(self) -> str:
        """The argument that the error is about."""
        return self.term.subject

    @property
    def near(self) -> int:
        """How near the subject is to what a caller passed."""
        return self.term.near

    @property
    def hidden(self) -> frozenset[str]:
        """The names that are no reason."""
        return self.term.hidden

    @property
    def alternative(self) -> str:
        """The mend where it stands behind that of another subject."""
        if self.near == PARAMETER and self.rank == CHOICE:
            return f"pass {self.subject}={one_of(self.phrases)}"
        return self.mend if self.subject in self.mend else f"pass {self.subject} of {one_of(self.phrases)}"

    def text(self) -> str:
        """Return what was expected."""
        return _put(self.term, self.term.expected, one_of(self.phrases))

    def alike(self, other: Ask) -> bool:
        """Whether both ask for a value of the same thing, so that one sentence can name both."""
        return (self.rank, self.subject, self.term.expected) == (other.rank, other.subject, other.term.expected)

    def joined(self, alike: Sequence[Ask]) -> Ask:
        """Return what is asked where any of several, this one among them, is enough."""
        phrases = tuple(dict.fromkeys(phrase for ask in alike for phrase in ask.phrases))
        if len(phrases) == 1:
            return self
        passed = self.near == PARAMETER and self.rank == CHOICE
        mend = "pass one of these" if passed else _put(self.term, self.term.mend, one_of(phrases))
        return replace(self, phrases=phrases, mend=mend, reads=tuple(tree for ask in alike for tree in ask.reads))


def asks_of(tree: Expression, origins: Origins) -> Ask | None:  # noqa: C901, PLR0911 - one case for each form
    """Return what a resolved condition that does not hold asks; None for one that there are no words for."""
    match tree:
        case Name(name) if origins.is_parameter(tree):
            return _flag(name, True, origins)
        case Not(Name(name) as inner) if origins.is_parameter(inner):
            return _flag(name, False, origins)
        case Call("present", (Name(name),)):
            return _presence(name, True, origins)
        case Not(Call("present", (Name(name),))):
            return _presence(name, False, origins)
        case Not(inner):
            turned = negated(inner)
            return None if isinstance(turned, Not | Logical) else asks_of(turned, origins)
        case Call("nonempty_axes", (Name() as axes, Name() as shape)):
            return _elements(axes, shape, origins)
        case Call("representable", (Name() as number, Name() as dtype)) if origins.is_parameter(number):
            term = term_of(number, origins)
            return _said(VALUE, term, f"a number that {show_value(origins.value(dtype))} holds")
        case Call("all", (Comprehension(Comparison() as body, target, sequence),)):
            return _each(body, target, sequence, origins)
        case Comparison(Negative(Name("inf")), ("<", "<"), (Name() as number, Name("inf"))):
            return _said(VALUE, term_of(number, origins), "a finite number") if origins.is_parameter(number) else None
        case Comparison(Binary("%", dividend, divisor), ("==",), (Literal(0),)):
            return _quotient(dividend, divisor, origins)
        case Comparison(first, (operator,), (second,)):
            return _two(first, operator, second, origins)
        case Comparison():
            return _range(tree, origins)
    return None


def negated(tree: Expression) -> Expression:
    """Return a condition that holds exactly where the given one does not."""
    match tree:
        case Not(inner):
            return inner
        case Logical(operator, operands):
            return Logical("or" if operator == "and" else "and", tuple(map(negated, operands)))
        case Comparison(first, (operator,), rest):
            return Comparison(first, (_NEGATED[operator],), rest)
    return Not(tree)


def _put(term: Term, text: str, phrase: str) -> str:
    """Return a text of a term with a phrase in it; one of what is counted is singular."""
    found = text.format(phrase)
    if term.whole and phrase.endswith(" 1"):
        return found.removesuffix("es") + "is" if found.endswith("axes") else found.removesuffix("s")
    return found


def _said(rank: int, term: Term, phrase: str, reads: tuple[Expression, ...] = ()) -> Ask:
    """Return an ask whose mend is to pass what was expected."""
    return Ask(rank, term, (phrase,), show_value(term.value), f"pass {phrase}", reads)


def _flag(name: str, wanted: bool, origins: Origins) -> Ask:
    term = term_of(Name(name), origins)
    return Ask(FLAG, term, (str(wanted),), show_value(term.value), f"pass {name}={wanted}")


def _presence(name: str, wanted: bool, origins: Origins) -> Ask:
    tensor = name not in origins.values
    term = Term(PARAMETER, name, None, "{}", "", frozenset({name}))
    if wanted:
        return Ask(PRESENT, term, ("a Tensor" if tensor else "a value",), "None", f"pass {name}")
    received = "a Tensor" if tensor else show_value(origins.values[name])
    return Ask(OTHER, term, ("None",), received, f"leave {name} out")


def _elements(axes: Name, shape: Name, origins: Origins) -> Ask | None:
    """Return what is asked of axes that have to have elements."""
    extents = origins.value(shape)
    place, given = origins.place_of(shape.name), origins.values.get(axes.name)
    if place is None or not isinstance(extents, tuple):
        return None
    term = Term(AXIS, place.tensor, extents, "{}", "", frozenset({shape.name, axes.name}))
    along = "every axis" if given is None or given == () else f"{axes.name}={given!r}"
    mend = f"pass {place.tensor} with elements there" + ("" if given is None else f", or another {axes.name}")
    return Ask(VALUE, term, (f"at least 1 element along {along}",), f"shape {show_shape(extents)}", mend)


def _each(body: Comparison, target: str, sequence: Expression, origins: Origins) -> Ask | None:
    """Return what is asked of every element of a parameter."""
    if not origins.is_parameter(sequence):
        return None
    phrase = _bounds(_links(body, Name(target)), origins)
    if phrase is None:
        return None
    term = replace(term_of(sequence, origins), expected="elements to be {}")
    return Ask(VALUE, term, (phrase,), show_value(term.value), f"pass {term.subject} whose elements are {phrase}")


def _quotient(dividend: Expression, divisor: Expression, origins: Origins) -> Ask | None:
    """Return what is asked of a number that another divides, or of a parameter that divides one."""
    whole, part = origins.number(dividend), origins.number(divisor)
    if whole is None or part is None:
        return None
    if isinstance(divisor, Name) and origins.is_parameter(divisor):
        return _said(VALUE, term_of(divisor, origins), f"a divisor of {whole}", (dividend,))
    term, phrase = term_of(dividend, origins), f"a multiple of {part}"
    if term.near == PARAMETER:
        return _said(VALUE, term, phrase, (divisor,))
    mend = _put(term, term.mend, phrase)
    return Ask(VALUE, term, (phrase,), str(whole), mend, (divisor, *_computed(term, dividend)))


def _two(first: Expression, operator: str, second: Expression, origins: Origins) -> Ask | None:
    """Return what is asked by the comparison of two terms."""
    if _is_condition(first) and operator in {"==", "!="}:
        return _truths(first, operator == "==", second, origins)
    match first:
        case Call("category", (Name() as inner,)):
            return _category(inner, operator, second, origins)
        case Attribute(Name(name) as inner, "kind") if origins.is_parameter(inner) and isinstance(second, Literal):
            return _constructor(name, operator, str(second.value), origins)
    if operator not in {"==", "!="}:
        return _range(Comparison(first, (operator,), (second,)), origins)
    terms = (term_of(first, origins), term_of(second, origins))
    term = max(terms, key=lambda found: found.near)
    mine, other = (first, second) if term is terms[0] else (second, first)
    if term.near == CONSTANT:
        return None
    value = origins.value(other)
    bound = show_shape(value) if isinstance(value, tuple) and isinstance(term.value, str) else show_value(value)
    received = term.value if isinstance(term.value, str) and term.near == AXIS else show_value(term.value)
    reads = (other, *_computed(term, mine))
    if operator == "==":
        return Ask(CHOICE, term, (bound,), str(received), _mend_of(term, bound, value), reads)
    phrase = f"{'other' if isinstance(value, torch.dtype) else 'another value'} than {bound}"
    mend = f"pass another {term.subject}" if term.near == PARAMETER else _put(term, term.mend, phrase)
    return Ask(OTHER, term, (phrase,), str(received), mend, reads)


def _mend_of(term: Term, bound: str, value: object) -> str:
    if term.near == PARAMETER:
        return f"pass torch.{bound}" if isinstance(value, torch.dtype) else f"pass {bound}"
    if isinstance(value, torch.dtype) and term.expected.startswith("dtype"):
        return f"convert {term.subject} with .to(torch.{bound})"
    return _put(term, term.mend, bound)


def _computed(term: Term, tree: Expression) -> tuple[Expression, ...]:
    """Return the subject itself where its value follows from others, which are then reasons."""
    return () if term.near == PARAMETER or (term.near == AXIS and term.hidden) else (tree,)


def _is_condition(tree: Expression) -> bool:
    return isinstance(tree, Comparison | Logical | Not) or (isinstance(tree, Call) and tree.function == "present")


def _truths(first: Expression, equal: bool, second: Expression, origins: Origins) -> Ask | None:
    """Return what is asked by a condition that has to hold exactly where another does."""
    wanted = bool(origins.value(second)) is equal
    found = asks_of(first if wanted else negated(first), origins)
    return None if found is None else replace(found, reads=(*found.reads, second))


def _category(inner: Name, operator: str, second: Expression, origins: Origins) -> Ask | None:
    """Return what is asked of the category of a number or of a dtype."""
    if operator not in {"==", "in"}:
        return None
    listed = second.items if isinstance(second, Tuple) else (second,)
    values = [origins.value(item) for item in listed if isinstance(item, Literal | Name | Call)]
    found = tuple(dict.fromkeys(value for value in values if isinstance(value, str) and value in _NUMBERS))
    term = term_of(inner, origins)
    if not found:
        return None
    if term.near == PARAMETER:
        words = tuple(_NUMBERS[value] for value in found)
        return _said(VALUE, term, one_of(words), (second,))
    words = tuple(_DTYPES[value] for value in found)
    named = term.subject
    mend = f"convert {named} with .to(torch.float32)" if "float" in found else f"pass {named} of such a dtype"
    return Ask(CHOICE, replace(term, expected="a dtype {}"), words, show_value(term.value), mend)


def _constructor(name: str, operator: str, wanted: str, origins: Origins) -> Ask | None:
    """Return what is asked of the constructor of a parameter's value."""
    value = origins.values[name]
    constructors = [made for found in origins.signature.sums.values() for made in found.constructors]
    classes = {made.name: made.python.rpartition(".")[2] for made in constructors}
    if wanted not in classes or operator not in {"==", "!="}:
        return None
    phrase = f"a {classes[wanted]}" if operator == "==" else f"another than a {classes[wanted]}"
    term = Term(PARAMETER, name, value, "{}", "", frozenset({name}))
    return Ask(FLAG, term, (phrase,), f"a {type(value).__name__}", f"pass {phrase} as {name}")


def _range(tree: Comparison, origins: Origins) -> Ask | None:
    """Return what is asked by a comparison with numbers, as `1 <= top_k <= E` or `len(normalized_shape) >= 1`."""
    sides = [(term_of(side, origins), side) for side in (tree.first, *tree.rest)]
    term, subject = max(sides, key=lambda side: side[0].near)
    links = [] if term.near == CONSTANT else _links(tree, subject)
    phrase = _bounds(links, origins)
    if phrase is None:
        return None
    reads = (*(other for _, other in links), *_computed(term, subject))
    mend = _put(term, term.mend, phrase)
    bounds = [other for other, _ in sides if other.near != CONSTANT and other is not term]
    if " and " in phrase and bounds and not _is_between(links, origins):
        found = bounds[0].subject
        mend = f"pass another {found}" if found in origins.subjects else f"pass {found} of another size"
    return Ask(VALUE, term, (phrase,), show_value(term.value), mend, reads)


def _links(tree: Comparison, subject: Expression) -> list[tuple[str, Expression]]:
    """Return the operator and the term on each side of a comparison's subject; none where it is not among them."""
    terms = (tree.first, *tree.rest)
    if subject not in terms:
        return []
    place = terms.index(subject)
    before = [(_TURNED.get(tree.operators[place - 1], ""), terms[place - 1])] if place else []
    after = [(tree.operators[place], terms[place + 1])] if place < len(tree.rest) else []
    return [(operator, other) for operator, other in before + after if other != subject]


def _is_between(links: Sequence[tuple[str, Expression]], origins: Origins) -> bool:
    """Whether any number lies within the bounds of a comparison's subject."""
    found = {operator[0]: origins.number(bound) or 0 for operator, bound in links}
    return found.get(">", 0) <= found.get("<", 0)


def _bounds(links: Sequence[tuple[str, Expression]], origins: Origins) -> str | None:
    """Return `1 to 8`, `at least 1` or the like for what a value is compared with; None for anything else."""
    least: str | None = None
    most: str | None = None
    numbers: dict[str, float] = {}
    for operator, tree in links:
        bound = origins.number(tree)
        if bound is None or operator not in _TURNED:
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
    between = all(isinstance(number, int) for number in numbers.values()) and numbers["least"] <= numbers["most"]
    return f"{numbers['least']} to {numbers['most']}" if between else f"{least} and {most}"
