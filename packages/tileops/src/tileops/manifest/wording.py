"""Refinements in words: what one asks of an argument, for errors; as the entry writes it where it has no such words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tileops.manifest.asking import PRESENT, Ask, asks_of, negated, one_of
from tileops.manifest.expressions import Call, Expression, Logical, Name, Not
from tileops.manifest.origins import Origins, parts_of, show_value
from tileops.manifest.spelling import spell

__all__ = ["Wording", "Words", "one_of", "show_value"]


@dataclass(frozen=True, slots=True)
class Wording:
    """The parts of an error about a refinement that does not hold; no mend where there are no words for one."""

    subject: str
    expected: str
    received: str
    mend: str


class Words:
    """Says in words what the refinements of one signature ask, with the values of one construction or call."""

    def __init__(self, origins: Origins) -> None:
        self.origins = origins

    def of(self, tree: Expression, text: str) -> Wording:
        """Return what a refinement that does not hold asks; of several that are joined, the first that does not."""
        match tree:
            case Logical("and", operands):
                broken = next((part for part in operands if not self.origins.holds(part)), tree)
                if broken is not tree:
                    return self.of(broken, spell(broken))
            case Not(Logical() as inner):
                return self.of(negated(inner), text)
        parts = tree.operands if isinstance(tree, Logical) and tree.operator == "or" else (tree,)
        asks = [ask for part in parts if (ask := self._ask(part)) is not None]
        if len(asks) < len(parts):
            return self._as_written(tree, text)
        return self._of_presence(asks) or self._either(asks)

    def _ask(self, part: Expression) -> Ask | None:
        """Return what one of several alternatives asks; of a conjunction its first part that does not hold."""
        while isinstance(part, Logical) and part.operator == "and":
            broken = next((inner for inner in part.operands if not self.origins.holds(inner)), None)
            if broken is None:
                return None
            part = broken
        resolved = self.origins.resolved(part)
        found = asks_of(resolved, self.origins)
        return None if found is None else replace(found, condition=resolved)

    def condition(self, tree: Expression) -> str:
        """Return the values that a condition reads, as ` for mode='rope'` or ` without offsets`."""
        return self._reasons([tree], frozenset())

    def _of_presence(self, asks: Sequence[Ask]) -> Wording | None:
        """Return the words of several tensors of which one is enough."""
        if len(asks) == 1 or any(ask.rank != PRESENT for ask in asks):
            return None
        subjects = tuple(ask.subject for ask in asks)
        return Wording(
            ", ".join(subjects), f"{asks[0].text()} for one of them at least", "None", f"pass {one_of(subjects)}"
        )

    def _either(self, asks: Sequence[Ask]) -> Wording:
        """Return the words of the alternative nearest to what a caller passed, with what else would do as its mend."""
        main = max(asks, key=lambda ask: (ask.rank, ask.near))
        alike = [ask for ask in asks if ask.alike(main)]
        main = main.joined(alike)
        others = [ask for ask in asks if not ask.alike(main)]
        reasons = self._reasons([*main.reads, *(ask.condition for ask in others)], main.hidden)
        mends = dict.fromkeys([main.mend, *(ask.alternative for ask in others)])
        return Wording(main.subject, f"{main.text()}{reasons}", main.received, ", or ".join(mends))

    def _reasons(self, trees: Iterable[Expression], hidden: frozenset[str]) -> str:
        """Return where values come from that are read beside a subject's own: ` for E=8 (axis 1 of x) with bias`."""
        asked = list(trees)
        named = (name for tree in asked for name in self._asked_about(tree) if name not in hidden)
        presence = dict.fromkeys(name for name in named if self.origins.values.get(name) is None)
        values = self.origins.reasons(asked, hidden | presence.keys())
        there = [name for name in presence if self.origins.is_there(name)]
        gone = [name for name in presence if not self.origins.is_there(name)]
        return (
            (f" for {', '.join(values)}" if values else "")
            + (f" with {' and '.join(there)}" if there else "")
            + (f" without {' and '.join(gone)}" if gone else "")
        )

    def _asked_about(self, tree: Expression) -> list[str]:
        """Return the names whose presence a tree asks about."""
        calls = [part for part in parts_of(tree) if isinstance(part, Call) and part.function == "present"]
        return [name.name for call in calls for name in call.arguments if isinstance(name, Name)]

    def _as_written(self, tree: Expression, text: str) -> Wording:
        """Return the refinement itself, and every value that it reads or that stands behind one."""
        origins = self.origins
        leaves = origins.leaves(tree)
        shown = [found for name in leaves if (found := origins.shown(name)) is not None]
        subject = next((name for name in leaves if origins.is_parameter(Name(name))), leaves[0] if leaves else "call")
        return Wording(subject, text, ", ".join(shown) or "a call", "")
