"""Type families applied: their parameters replaced by the arguments that a shape gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tileops.errors import ExpressionError
from tileops.manifest.expressions import Call, Expression, Name, ShapeItem, Spread
from tileops.manifest.trees import rewrite

if TYPE_CHECKING:
    from tileops.manifest.model import Shape, Signature, TypeFamily

Arguments = Mapping[str, ShapeItem]


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
            f"{family.name} takes {len(family.parameters)} arguments, and {len(call.arguments)} are given"
        )
    return family, dict(zip(family.parameters, call.arguments, strict=True))


def filled(tree: Expression, arguments: Arguments) -> Expression:
    """Return the tree with a family's parameters replaced by their arguments."""

    def substitute(part: Expression) -> Expression | None:
        if isinstance(part, Name) and part.name in arguments:
            found = arguments[part.name]
            return found.value if isinstance(found, Spread) else found
        return None

    return rewrite(tree, substitute)


def filled_item(item: ShapeItem, arguments: Arguments) -> ShapeItem:
    """Return an axis or a splice with a family's parameters replaced by their arguments."""
    return Spread(filled(item.value, arguments)) if isinstance(item, Spread) else filled(item, arguments)


def matched(signature: Signature) -> Iterator[Expression]:
    """Yield every discriminant formula that a family matches on, in the words of the signature."""
    for tensor in (*signature.inputs, *signature.outputs):
        yield from _matched(tensor.shape, signature, {}, depth=0)


def _matched(shape: Shape, signature: Signature, outer: Arguments, depth: int) -> Iterator[Expression]:
    if shape.family is None or depth > len(signature.families):
        return
    try:
        family, arguments = arguments_of(shape.family, signature)
    except ExpressionError:
        return
    settled = {name: filled_item(argument, outer) for name, argument in arguments.items()}
    for formula in family.match:
        yield filled(formula.tree, settled)
    for case in family.cases:
        yield from _matched(case.shape, signature, settled, depth + 1)
