"""Rules of an entry in words: what must hold of its parameters and indices, without the values of any call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tables import code, in_words

from tileops.manifest.asking import negated
from tileops.manifest.expressions import (
    Attribute,
    Binary,
    Call,
    Comparison,
    Comprehension,
    Conditional,
    Expression,
    Literal,
    Logical,
    Name,
    Negative,
    Not,
    Spread,
    Tuple,
)
from tileops.manifest.spelling import spell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tileops.manifest.model import Signature

_BOUNDS: Final = {">": "more than", ">=": "at least", "<": "less than", "<=": "at most", "==": "", "!=": "not"}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CATEGORIES: Final = {"bool": "bool", "int": "of whole numbers", "float": "of floating point", "complex": "complex"}
_ORDINALS: Final = ("first", "second", "third")
_COUNTS: Final = ("no axes", "one axis", "two axes", "three axes")


@dataclass(frozen=True)
class Clause:
    """A part of a sentence: what it is about, the verb, and what it says of that."""

    subject: str
    verb: str
    rest: str
    several: bool = False
    """Whether the subject is in the plural."""

    @property
    def text(self) -> str:
        """The clause as words."""
        return f"{self.subject} {self.verb_in_number} {self.rest}"

    @property
    def verb_in_number(self) -> str:
        """The verb in the number of its subject."""
        return {"is": "are", "has": "have"}.get(self.verb, self.verb) if self.several else self.verb


class Rules:
    """Says the rules of one signature in words; None is the answer for a form that there are no words for."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.shapes = {name for name, kind in signature.forall.items() if str(kind) == "Shape"}
        self.sums = [
            {made.name: made.python.rpartition(".")[2] for made in found.constructors}
            for found in signature.sums.values()
        ]

    def sentence(self, tree: Expression) -> str | None:
        """Return a rule as a sentence."""
        said = self.condition(tree)
        return None if said is None else f"{said[0].upper()}{said[1:]}."

    def condition(self, tree: Expression) -> str | None:
        """Return a condition as words within a sentence."""
        match tree:
            case Logical("or", operands):
                return self._either(operands)
            case Logical("and", operands):
                return _all_of([self._clause(part) for part in operands])
        found = self._clause(tree)
        return None if found is None else found.text

    def case(self, deciding: Sequence[Expression], values: Sequence[object]) -> str:
        """Return where what decides a case has these values; None is the value of what the case does not have."""
        said = []
        for tree, value in zip(deciding, values, strict=True):
            if isinstance(value, bool):
                said.append(self.condition(tree if value else negated(tree)) or f"{code(spell(tree))} is `{value}`")
            elif isinstance(value, str):
                equal = Comparison(tree, ("==",), (Literal(value),))
                said.append(self.condition(equal) or code(spell(equal)))
        return in_words(said, "and")

    def definition(self, tree: Expression) -> str:
        """Return what a quantity is that others determine."""
        match tree:
            case Call("per_axis", (Name() as parameter, Literal(int(place)), Literal(int(count))), keywords):
                fallback = "".join(f", {self._noun(value)} where that is `None`" for _, value in keywords)
                return f"{self._noun(parameter)} for the {_ORDINALS[place]} of {_COUNTS[count]}{fallback}"
            case Call("pool.out", (length, *_)) if not isinstance(length, Spread):
                return f"what pooling leaves of {self._noun(length)}"
            case Call("moe.capacity", (layout, rows, _)):
                return f"the number of rows that {self._noun(layout)} takes for {self._noun(rows)} routed rows"
        return self._noun(tree)

    def contents(self, tree: Expression) -> str | None:
        """Return what the contents of a metadata tensor satisfy, as words behind their name."""
        match tree:
            case Call("in_range", (low, high)):
                return f"are at least {self._noun(low)} and less than {self._noun(high)}"
            case Call("moe.layout_valid", (layout, *_)):
                return f"place rows as {self._noun(layout)} says"
            case Call("prefix_offsets", (total,)):
                return f"begin at 0, never fall, and end at {self._noun(total)}"
            case Call("max_segment", (bound,)):
                return f"make no segment longer than {self._noun(bound)}"
        return None

    def _noun(self, tree: Expression | Spread) -> str:
        match tree:
            case Attribute(Name(name), "value"):
                return code(name)
            case Literal(int() | float() as number) if not isinstance(number, bool):
                return str(number)
            case Negative(Literal(number)):
                return f"-{number}"
            case Conditional(condition, then, otherwise):
                return f"{self._noun(then)} where {self.condition(condition)}, else {self._noun(otherwise)}"
        return code(spell(tree))

    def _clause(self, tree: Expression) -> Clause | None:  # noqa: C901, PLR0911 - one case for each form
        """Return the words of a condition about one thing."""
        match tree:
            case Name(name):
                return Clause(code(name), "is", "`True`")
            case Not(Name(name)):
                return Clause(code(name), "is", "`False`")
            case Call("present", (Name(name),)):
                return Clause(code(name), "is", "passed")
            case Not(Call("present", (Name(name),))):
                return Clause(code(name), "is", "left out")
            case Call("valid_axes", (axes, Call("len", (shape,)))):
                rest = f"in {self._noun(shape)}, counted from the front or the back (0 or -1 where it has none)"
                return Clause(f"each axis that {self._noun(axes)} names", "is", rest)
            case Call("unique_axes", (axes, *_)):
                return Clause(self._noun(axes), "names", "no axis twice")
            case Call("nonempty_axes", (axes, shape)):
                named = f"each axis of {self._noun(shape)} that {self._noun(axes)} names"
                return Clause(named, "has", "elements (every axis, where it names none)")
            case Call("representable", (number, dtype)):
                return Clause(self._noun(number), "is", f"a number that {_plain(dtype)} holds")
            case Call("all", (Comprehension(Comparison() as body, target, sequence),)):
                return self._compared(body, {target: f"each element of {self._noun(sequence)}"})
            case Comparison(Negative(Name("inf")), ("<", "<"), (number, Name("inf"))):
                return Clause(self._noun(number), "is", "finite")
            case Comparison(Comparison() as first, ("==",), (Comparison() as second,)):
                one, other = self.condition(first), self._clause(second)
                where = None if one is None or other is None else f"exactly where {other.text}"
                mine = self._clause(first)
                return (
                    None if mine is None or where is None else Clause(mine.subject, mine.verb, f"{mine.rest} {where}")
                )
            case Comparison():
                return self._compared(tree, {})
        return None

    def _compared(self, tree: Comparison, names: dict[str, str]) -> Clause | None:
        """Return the words of a comparison; `names` are words for names that the signature does not have."""
        match tree:
            case Comparison(Call("category", (dtype,)), ("==",), (Literal(str(word)),)):
                return Clause(self._noun(dtype), "is", _CATEGORIES[word])
            case Comparison(Attribute(subject, "kind"), (("==" | "!=") as operator,), (Literal(str(word)),)):
                return self._constructed(subject, operator == "==", word)
            case Comparison(Binary("%", dividend, divisor), ("==",), (Literal(0),)):
                return Clause(self._noun(dividend), "is", f"a multiple of {self._noun(divisor)}")
            case Comparison(first, (("in" | "not in") as operator,), (Tuple(items),)):
                listed = in_words([self._noun(item) for item in items], "or" if operator == "in" else "nor")
                return Clause(self._noun(first), "is", listed if operator == "in" else f"neither {listed}")
            case Comparison(first, (operator,), (second,)) if operator in _BOUNDS:
                return self._about(first, [(operator, second)], names)
            case Comparison(low, (("<" | "<=") as above, ("<" | "<=") as below), (middle, high)):
                return self._about(middle, [(_TURNED[above], low), (below, high)], names)
        return None

    def _about(self, subject: Expression, bounds: Sequence[tuple[str, Expression]], names: dict[str, str]) -> Clause:
        """Return the words of what is compared with one or two bounds."""
        words = [f"{_BOUNDS[operator]} {self._noun(bound)}".lstrip() for operator, bound in bounds]
        rest = " and ".join(words)
        match subject:
            case Call("len", (Name(name),)):
                unit = "axis" if name in self.shapes else "element"
                several = "axes" if name in self.shapes else "elements"
                return Clause(code(name), "has", f"{rest} {unit if rest.endswith(' 1') else several}")
            case Name(name) if name in names:
                return Clause(names[name], "is", rest)
        return Clause(self._noun(subject), "is", rest)

    def _constructed(self, subject: Expression, wanted: bool, kind: str) -> Clause | None:
        """Return the words of which constructor a parameter's value has."""
        classes = next((found for found in self.sums if kind in found), None)
        if classes is None:
            return None
        others = [name for name in classes if name != kind]
        if wanted or len(others) != 1:
            return Clause(self._noun(subject), "is", f"{'a' if wanted else 'no'} {code(classes[kind])}")
        return Clause(self._noun(subject), "is", f"a {code(classes[others[0]])}")

    def _either(self, operands: Sequence[Expression]) -> str | None:
        """Return alternatives: values of one thing, a consequence where some condition holds, or all of them."""
        premise = next((part for part in operands if _is_premise(part)), None)
        rest = [part for part in operands if part is not premise]
        if premise is not None:
            condition = self.condition(negated(premise))
            follows = self._either(rest) if len(rest) > 1 else self.condition(rest[0])
            return None if condition is None or follows is None else f"where {condition}, {follows}"
        found = [clause for part in operands if (clause := self._clause(part)) is not None]
        if len(found) == len(operands) and len({(clause.subject, clause.verb) for clause in found}) == 1:
            return Clause(found[0].subject, found[0].verb, in_words([clause.rest for clause in found], "or")).text
        said = [self.condition(part) for part in operands]
        return None if None in said else ", or ".join(words for words in said if words)


def is_plain(tree: Expression) -> bool:
    """Whether an expression adds nothing to its words: a comparison of names and numbers."""
    match tree:
        case Comparison(first, _, rest):
            return all(isinstance(part, Name | Literal | Negative | Binary | Attribute) for part in (first, *rest))
    return not isinstance(tree, Logical | Call)


def _is_premise(tree: Expression) -> bool:
    """Whether a condition is what others depend on: a flag, presence, a constructor, or that a value is another."""
    match tree:
        case Name() | Not(Name()) | Call("present") | Not(Call("present")):
            return True
        case Comparison(Attribute(_, "kind")) | Comparison(_, ("!=",), (Name("inf"),)):
            return True
    return False


def _all_of(clauses: Sequence[Clause | None]) -> str | None:
    """Return clauses as one sentence: those of one subject or of one predicate are told together."""
    found = [clause for clause in clauses if clause is not None]
    if len(found) < len(clauses):
        return None
    by_predicate = _gathered(found, lambda clause: (clause.verb, clause.rest))
    merged = [
        Clause(in_words([clause.subject for clause in alike], "and"), alike[0].verb, alike[0].rest, len(alike) > 1)
        for alike in by_predicate
    ]
    by_subject = _gathered(merged, lambda clause: (clause.subject, clause.verb))
    told = [f"{alike[0].text}{''.join(f', and {clause.rest}' for clause in alike[1:])}" for alike in by_subject]
    return "; ".join(told)


def _gathered(clauses: Sequence[Clause], key: Callable[[Clause], tuple[str, str]]) -> list[list[Clause]]:
    found: dict[tuple[str, str], list[Clause]] = {}
    for clause in clauses:
        found.setdefault(key(clause), []).append(clause)
    return list(found.values())


def _plain(tree: Expression | Spread) -> str:
    return tree.name if isinstance(tree, Name) else code(spell(tree))
