"""Walking an expression's tree, and rebuilding it with parts replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tileops.errors import ExpressionError
from tileops.manifest.expressions import (
    DEEPEST_NESTING,
    MOST_NODES,
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

UNREADABLE: Final = "?"
"""The name that what is unknown reads; nothing ever gives it a value."""
ANYTHING: Final = frozenset({"*"})
"""The names that what was not read at all may read: any."""
Substitute = Callable[[Expression], "Expression | None"]


def children(expression: Expression | Spread) -> tuple[Expression | Spread, ...]:  # noqa: C901, PLR0911
    """Return the direct parts of a tree."""
    match expression:
        case Literal() | Name() | Unknown():
            return ()
        case Negative(operand) | Not(operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Comparison(first, _, rest):
            return (first, *rest)
        case Logical(_, operands):
            return operands
        case Conditional(condition, then, otherwise):
            return (condition, then, otherwise)
        case Call(_, arguments, keywords):
            return (*arguments, *(value for _, value in keywords))
        case Spread(value) | Attribute(value, _):
            return (value,)
        case Subscript(value, index):
            return (value, index)
        case Slice(value, start, stop):
            return tuple(part for part in (value, start, stop) if part is not None)
        case Tuple(items):
            return items
        case Comprehension(body, _, sequence):
            return (sequence, body)


def free_names(expression: Expression | Spread) -> frozenset[str]:
    """Return the names that an expression reads, its comprehensions' own names excluded."""
    if isinstance(expression, Name):
        return frozenset({expression.name})
    if isinstance(expression, Unknown):
        return frozenset({UNREADABLE})
    if isinstance(expression, Comprehension):
        return free_names(expression.sequence) | (free_names(expression.body) - {expression.target})
    return frozenset().union(*(free_names(child) for child in children(expression)))


def possible_names(expression: Expression | Spread) -> frozenset[str]:
    """Return the names that an expression reads, those that its unknown parts may read among them."""
    if isinstance(expression, Unknown):
        return expression.names
    if isinstance(expression, Name):
        return frozenset({expression.name})
    if isinstance(expression, Comprehension):
        return possible_names(expression.sequence) | (possible_names(expression.body) - {expression.target})
    return frozenset().union(*(possible_names(child) for child in children(expression)))


def is_known(expression: Expression | Spread) -> bool:
    """Whether no part of an expression is unknown."""
    return UNREADABLE not in free_names(expression)


def check_size(expression: Expression) -> None:
    """Raise ExpressionError where a tree has more parts, or more levels, than a written expression may have."""
    level: tuple[Expression | Spread, ...] = (expression,)
    parts = depth = 0
    while level:
        parts += len(level)
        depth += 1
        if parts > MOST_NODES or depth > DEEPEST_NESTING:
            raise ExpressionError("with its arguments the type family has too many parts or is nested too deeply")
        level = tuple(child for part in level for child in children(part))


def rewrite(expression: Expression, substitute: Substitute) -> Expression:  # noqa: C901, PLR0911
    """Return the tree with each part replaced for which `substitute` gives another; replaced parts are not entered."""
    replaced = substitute(expression)
    if replaced is not None:
        return replaced

    def inner(part: Expression) -> Expression:
        return rewrite(part, substitute)

    def item(part: Expression | Spread) -> Expression | Spread:
        return Spread(inner(part.value)) if isinstance(part, Spread) else inner(part)

    match expression:
        case Literal() | Name() | Unknown():
            return expression
        case Negative(operand):
            return Negative(inner(operand))
        case Not(operand):
            return Not(inner(operand))
        case Binary(operator, left, right):
            return Binary(operator, inner(left), inner(right))
        case Comparison(first, operators, rest):
            return Comparison(inner(first), operators, tuple(inner(value) for value in rest))
        case Logical(operator, operands):
            return Logical(operator, tuple(inner(operand) for operand in operands))
        case Conditional(condition, then, otherwise):
            return Conditional(inner(condition), inner(then), inner(otherwise))
        case Call(function, arguments, keywords):
            named = tuple((key, inner(value)) for key, value in keywords)
            return Call(function, tuple(item(argument) for argument in arguments), named)
        case Attribute(value, field):
            return Attribute(inner(value), field)
        case Subscript(value, index):
            return Subscript(inner(value), inner(index))
        case Slice(value, start, stop):
            return Slice(inner(value), None if start is None else inner(start), None if stop is None else inner(stop))
        case Tuple(items):
            return Tuple(tuple(item(part) for part in items))
        case Comprehension(body, target, sequence):
            return Comprehension(inner(body), target, inner(sequence))
