"""Type families applied: their parameters replaced by the arguments that a shape gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tileops.errors import ExpressionError
from tileops.manifest.expressions import Call, Expression, Name, ShapeItem, Spread, Unknown
from tileops.manifest.reading import counted
from tileops.manifest.trees import check_size, possible_names, rewrite

if TYPE_CHECKING:
    from tileops.manifest.model import Signature, TypeFamily

Arguments = Mapping[str, ShapeItem]
MOST_APPLICATIONS: Final = 100
"""How many applications of type families, each with its own arguments, the types of a signature may lead to."""


def arguments_of(call: Call, signature: Signature) -> tuple[TypeFamily, Arguments]:
    """Return the family that a shape applies, and its parameters with their arguments.

    Raises:
        ExpressionError: there is no such family, or it takes another number of arguments.
    """
    family = signature.families.get(call.function)
    if family is None:
        raise ExpressionError(f"{call.function!r} is not a type family of this signature; declare it under types")
    if len(family.parameters) != len(call.arguments):
        raise ExpressionError(
            f"{family.name} takes {counted(len(family.parameters), 'argument')}, and {len(call.arguments)} "
            f"{'is' if len(call.arguments) == 1 else 'are'} given"
        )
    return family, dict(zip(family.parameters, call.arguments, strict=True))


def filled(tree: Expression, arguments: Arguments) -> Expression:
    """Return the tree with a family's parameters replaced by their arguments.

    Raises:
        ExpressionError: it becomes larger than an expression may be.
    """

    def substitute(part: Expression) -> Expression | None:
        if isinstance(part, Name) and part.name in arguments:
            found = arguments[part.name]
            return found.value if isinstance(found, Spread) else found
        if isinstance(part, Unknown) and part.names & arguments.keys():
            given = (possible_names(arguments[name]) for name in part.names & arguments.keys())
            return Unknown(frozenset(part.names - arguments.keys()).union(*given))
        return None

    replaced = rewrite(tree, substitute)
    check_size(replaced)
    return replaced


def filled_item(item: ShapeItem, arguments: Arguments) -> ShapeItem:
    """Return an axis or a splice with a family's parameters replaced by their arguments."""
    return Spread(filled(item.value, arguments)) if isinstance(item, Spread) else filled(item, arguments)


def matched(signature: Signature) -> Iterator[Expression]:
    """Yield every discriminant formula that a family matches on, in the words of the signature."""
    visited: set[Call] = set()
    for tensor in (*signature.inputs, *signature.outputs):
        if tensor.shape.family is not None:
            yield from _matched(tensor.shape.family, signature, visited)


def _matched(call: Call, signature: Signature, visited: set[Call]) -> Iterator[Expression]:
    if call in visited or len(visited) > MOST_APPLICATIONS:
        return
    visited.add(call)
    try:
        family, arguments = arguments_of(call, signature)
        trees = [filled(formula.tree, arguments) for formula in family.match]
        inner = [
            Call(
                case.shape.family.function, tuple(filled_item(item, arguments) for item in case.shape.family.arguments)
            )
            for case in family.cases
            if case.shape.family is not None
        ]
    except ExpressionError:
        return
    yield from trees
    for applied in inner:
        yield from _matched(applied, signature, visited)
