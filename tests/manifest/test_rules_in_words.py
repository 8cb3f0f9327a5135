"""Every rule of every entry in words: each is made to fail, and no error may quote it as the entry writes it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import islice

import pytest

from tileops.errors import ExpressionError
from tileops.manifest import registry
from tileops.manifest.expressions import Expression
from tileops.manifest.kinds import (
    BoolKind,
    DimKind,
    DTypeKind,
    FloatKind,
    IntKind,
    Kind,
    LiteralKind,
    NoneKind,
    SequenceKind,
    ShapeKind,
    SumKind,
    UnionKind,
)
from tileops.manifest.messages import Messages
from tileops.manifest.model import Formula, Signature
from tileops.manifest.primitives import DTYPES
from tileops.manifest.source import evaluate
from tileops.moe.epilogues import RoutingEpilogue
from tileops.moe.layouts import ContiguousLayout, ContiguousPacking, MaskedLayout

DRAWN, MOST = 1500, 60
RAW = ("present(", " == ", " != ", " >= ", " <= ", "category(", "so that it holds")
SUMS: Mapping[str, tuple[object, ...]] = {
    "MGroupedLayout": (
        ContiguousLayout(),
        ContiguousLayout(packing=ContiguousPacking.ALIGNED, alignment=4),
        MaskedLayout(max_m=3),
    ),
    "RoutingEpilogue": (RoutingEpilogue(),),
}
VALUES: tuple[tuple[type[Kind], tuple[object, ...]], ...] = (
    (NoneKind, (None,)),
    (BoolKind, (True, False)),
    (DimKind, (0, 1, 2, 3, 4, 8, 100, 130)),
    (IntKind, (-2, -1, 0, 1, 2, 3, 4, 33)),
    (FloatKind, (-1.0, 0.0, 0.5, 1.0, 2.0, 1e9, float("inf"), float("nan"))),
)


def drawn(kind: Kind, chance: random.Random) -> object:
    """Return some value of a kind, likely one at the edge of what rules ask."""
    for plain, values in VALUES:
        if isinstance(kind, plain):
            return chance.choice(values)
    match kind:
        case UnionKind():
            return drawn(chance.choice(kind.members), chance)
        case LiteralKind():
            return chance.choice(kind.values)
        case DTypeKind():
            return DTYPES[chance.choice(kind.values)]
        case ShapeKind():
            return tuple(chance.choice((0, 1, 2, 3)) for _ in range(chance.choice((0, 1, 2, 3))))
        case SequenceKind():
            return tuple(drawn(kind.element, chance) for _ in range(kind.length or chance.choice((0, 1, 2))))
        case SumKind():
            return chance.choice(SUMS[str(kind)])
    return "cpu"


def value_of(tree: Expression, values: Mapping[str, object], present: Mapping[str, bool]) -> object:
    """Return an expression's value, None where it has none."""
    try:
        return evaluate(tree, values, present)
    except ExpressionError:
        return None


def broken(signature: Signature, rule: Formula) -> Iterator[tuple[dict[str, object], dict[str, bool]]]:
    """Yield values and presence of calls that break a rule."""
    chance = random.Random(0)  # noqa: S311 - the same draws on every run
    for _ in range(DRAWN):
        optional = [tensor.name for tensor in signature.inputs if tensor.is_optional]
        optional += [found.name for found in signature.parameters if found.tensor is not None]
        present = {name: chance.choice((True, False)) for name in optional}
        plain = [found for found in signature.parameters if found.tensor is None]
        values = {found.name: drawn(found.kind, chance) for found in plain}
        values |= {name: drawn(kind, chance) for name, kind in signature.forall.items()}
        for name, formula in signature.let.items():
            if (found := value_of(formula.tree, values, present)) is not None:
                values[name] = found
        if value_of(rule.tree, values, present) is False:
            yield values, present


@pytest.mark.parametrize("op", registry.default().names())
def test_no_rule_is_quoted(op: str) -> None:
    """An error about a rule names an argument, what was expected of it and what to do, in words and in one line."""
    entry = registry.default().entry(op)
    messages = Messages(entry, ())
    for place, rule in enumerate(entry.signature.shape_rules):
        said = {
            str(messages.rule(place, values, present))
            for values, present in islice(broken(entry.signature, rule), MOST)
        }
        assert said, f"nothing that was drawn breaks {rule.text}"
        for text in said:
            expected, separator, mend = text.partition("; ")
            assert rule.text not in expected
            assert not any(word in text for word in RAW)
            assert text.startswith(f"{op}: ")
            assert separator
            assert mend
            assert "\n" not in text
