"""What an expression may read: names with their kinds, and what is known of them where it stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from tileops.errors import ExpressionError
from tileops.manifest.functions import PRIMITIVE_KINDS, FunctionKind
from tileops.manifest.kinds import Kind, UnknownKind
from tileops.manifest.model import SumType


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known where an expression stands: which nullable names have a value, which constructor a value has."""

    present: frozenset[str] = frozenset()
    constructors: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def and_present(self, name: str) -> Facts:
        """Return these facts and that the name has a value."""
        return dataclasses.replace(self, present=self.present | {name})

    def and_constructor(self, name: str, possible: frozenset[str]) -> Facts:
        """Return these facts and that the value has one of these constructors."""
        known = self.constructors.get(name)
        narrowed = possible if known is None else known & possible
        return dataclasses.replace(self, constructors={**self.constructors, name: narrowed})


@dataclass(frozen=True, slots=True)
class Scope:
    """The names of a signature with their kinds, and what may be asked about."""

    names: Mapping[str, Kind]
    tensors: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    sums: Mapping[str, SumType] = field(default_factory=dict)
    functions: Mapping[str, FunctionKind] = field(default_factory=lambda: PRIMITIVE_KINDS)
    facts: Facts = field(default_factory=Facts)
    faults: list[str] | None = None
    """Where given, what is wrong with an expression is kept here, and checking goes on."""
    open: bool = False
    """Whether some declarations could not be read, so that any name may be one of theirs."""

    def fault(self, message: str) -> Kind:
        """Keep what is wrong and return the unknown kind; raise ExpressionError where nothing is kept."""
        if self.faults is None:
            raise ExpressionError(message)
        if message not in self.faults:
            self.faults.append(message)
        return UnknownKind()

    def given(self, facts: Facts) -> Scope:
        """Return the scope with these facts."""
        return dataclasses.replace(self, facts=facts)

    def binding(self, name: str, kind: Kind) -> Scope:
        """Return the scope with one more name."""
        return dataclasses.replace(self, names={**self.names, name: kind})
