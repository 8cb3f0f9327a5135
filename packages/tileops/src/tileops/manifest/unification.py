"""Unification of one concrete shape with a declared one, step by step and without generated code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileops.errors import ExpressionError
from tileops.manifest.expressions import Binary, Expression, Literal, Name, Negative, ShapeItem, Spread
from tileops.manifest.primitives import show_shape
from tileops.manifest.source import Presence, evaluate
from tileops.manifest.spelling import spell
from tileops.manifest.trees import free_names


def unify(
    items: Sequence[ShapeItem], shape: Sequence[int], known: Mapping[str, object], present: Presence
) -> dict[str, object]:
    """Return the values that a shape gives to the names that are not yet known.

    Raises:
        ExpressionError: the shape does not fit, or leaves a name without a value.
    """
    found: dict[str, object] = {}
    left, rest = 0, list(items)
    while rest:
        item = rest.pop(0)
        values = {**known, **found}
        if isinstance(item, Spread):
            run = _run(item, values, present)
            if run is None:
                right = sum(_size(other, values, present) for other in rest)
                size = len(shape) - left - right
                if size < 0 or not isinstance(item.value, Name):
                    raise _mismatch(items, shape)
                found[item.value.name] = tuple(shape[left : left + size])
                left += size
                continue
            if tuple(shape[left : left + len(run)]) != run:
                raise _mismatch(items, shape)
            left += len(run)
            continue
        if left >= len(shape):
            raise _mismatch(items, shape)
        _axis(item, shape[left], values, found, present)
        left += 1
    if left != len(shape):
        raise _mismatch(items, shape)
    return found


def _mismatch(items: Sequence[ShapeItem], shape: Sequence[int]) -> ExpressionError:
    return ExpressionError(f"the shape {show_shape(shape)} does not fit {show_shape([spell(item) for item in items])}")


def _run(item: Spread, values: Mapping[str, object], present: Presence) -> tuple[int, ...] | None:
    if not free_names(item.value) <= set(values):
        return None
    found = evaluate(item.value, values, present)
    if not isinstance(found, tuple | list):
        raise ExpressionError(f"*{spell(item.value)} is no sequence")
    return tuple(found)


def _size(item: ShapeItem, values: Mapping[str, object], present: Presence) -> int:
    if not isinstance(item, Spread):
        return 1
    run = _run(item, values, present)
    if run is None:
        raise ExpressionError(f"*{spell(item.value)} and another splice before it have no known length")
    return len(run)


def _axis(
    item: Expression, extent: int, values: Mapping[str, object], found: dict[str, object], present: Presence
) -> None:
    unknown = free_names(item) - set(values)
    if not unknown:
        if evaluate(item, values, present) != extent:
            raise ExpressionError(f"the axis {spell(item)} is {evaluate(item, values, present)}, received {extent}")
        return
    if len(unknown) > 1:
        raise ExpressionError(f"the axis {spell(item)} leaves {', '.join(sorted(unknown))} without a value")
    (name,) = unknown
    parts = linear(item, name)
    if parts is None or parts[0] <= 0:
        raise ExpressionError(f"the axis {spell(item)} cannot be solved for {name}")
    factor, offset = parts
    base = evaluate(offset, values, present)
    if not isinstance(base, int):
        raise ExpressionError(f"{spell(offset)} is no whole number")
    value, remainder = divmod(extent - base, factor)
    if remainder or value < 0:
        raise ExpressionError(f"the axis {spell(item)} has no {name} for extent {extent}")
    found[name] = value


def linear(tree: Expression, index: str) -> tuple[int, Expression] | None:
    """Return (a, e) when the tree is a * index + e with a constant a and an e without the index, else None."""
    if index not in free_names(tree):
        return 0, tree
    match tree:
        case Name():
            return 1, Literal(0)
        case Negative(operand):
            inner = linear(operand, index)
            return None if inner is None else (-inner[0], _negated(inner[1]))
        case Binary("+" | "-" as operator, left, right):
            first, second = linear(left, index), linear(right, index)
            if first is None or second is None:
                return None
            sign = 1 if operator == "+" else -1
            return first[0] + sign * second[0], _folded(operator, first[1], second[1])
        case Binary("*", Literal(int(factor)), other) | Binary("*", other, Literal(int(factor))):
            inner = linear(other, index)
            return None if inner is None else (factor * inner[0], _folded("*", Literal(factor), inner[1]))
    return None


def _negated(tree: Expression) -> Expression:
    return Literal(-tree.value) if isinstance(tree, Literal) and isinstance(tree.value, int) else Negative(tree)


def _folded(operator: str, left: Expression, right: Expression) -> Expression:
    if (
        isinstance(left, Literal)
        and isinstance(right, Literal)
        and isinstance(left.value, int)
        and isinstance(right.value, int)
    ):
        first, second = left.value, right.value
        return Literal({"+": first + second, "-": first - second, "*": first * second}[operator])
    if right == Literal(0) and operator in "+-":
        return left
    if left == Literal(0) and operator == "+":
        return right
    return Binary(operator, left, right)
