"""Expressions as text again, as an entry would write them."""

from __future__ import annotations

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
    Slice,
    Spread,
    Subscript,
    Tuple,
    Unknown,
)
from tileops.manifest.trees import UNREADABLE

_RANK = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}
_ATOMIC = (Literal, Name, Call, Attribute, Subscript, Slice, Tuple)


def spell(tree: Expression | Spread) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each construct
    """Return text that parses to the tree."""
    match tree:
        case Literal(value):
            return repr(value)
        case Unknown():
            return UNREADABLE
        case Name(name):
            return name
        case Negative(operand):
            return f"-{_inner(operand)}"
        case Not(operand):
            return f"not {_inner(operand)}"
        case Binary(operator, left, right):
            rank = _RANK[operator]
            return f"{_term(left, rank)} {operator} {_term(right, rank + 1)}"
        case Comparison(first, operators, rest):
            links = (f"{operator} {_term(value, 0)}" for operator, value in zip(operators, rest, strict=True))
            return f"{_term(first, 0)} {' '.join(links)}"
        case Logical(operator, operands):
            return f" {operator} ".join(_inner(operand) for operand in operands)
        case Conditional(condition, then, otherwise):
            return f"{_inner(then)} if {_inner(condition)} else {_inner(otherwise)}"
        case Call(function, arguments, keywords):
            spelled = [spell(argument) for argument in arguments]
            if keywords:
                spelled = [f"({spell(part)})" if isinstance(part, Comprehension) else spell(part) for part in arguments]
            spelled += [f"{key}={spell(value)}" for key, value in keywords]
            return f"{function}({', '.join(spelled)})"
        case Spread(value):
            return f"*{_inner(value)}"
        case Attribute(value, field):
            return f"{_primary(value)}.{field}"
        case Subscript(value, index):
            return f"{_primary(value)}[{spell(index)}]"
        case Slice(value, start, stop):
            return f"{_primary(value)}[{'' if start is None else spell(start)}:{'' if stop is None else spell(stop)}]"
        case Tuple(items):
            return "(" + ", ".join(map(spell, items)) + (",)" if len(items) == 1 else ")")
        case Comprehension(body, target, sequence):
            return f"{spell(body)} for {target} in {_inner(sequence)}"


def _term(tree: Expression, rank: int) -> str:
    """Return an operand's text, in parentheses where it binds less than its place needs."""
    return spell(tree) if isinstance(tree, Binary) and _RANK[tree.operator] >= rank else _inner(tree)


def _primary(tree: Expression) -> str:
    return f"({spell(tree)})" if isinstance(tree, Literal) else _inner(tree)


def _inner(tree: Expression) -> str:
    text = spell(tree)
    atomic = isinstance(tree, _ATOMIC) and not (isinstance(tree, Literal) and text.startswith("-"))
    return text if atomic else f"({text})"
