"""What becomes of the rows that a token's experts give: how they are weighted and scaled."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal


class RoutingWeighting(StrEnum):
    """Whether each expert's row is multiplied by the token's weight for it."""

    WEIGHTED = "weighted"
    UNWEIGHTED = "unweighted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingEpilogue:
    """The sum of a token's rows, weighted or not, times a scale."""

    kind: ClassVar[Literal["routing"]] = "routing"
    scale: float = 1.0
    weighting: RoutingWeighting = RoutingWeighting.WEIGHTED
