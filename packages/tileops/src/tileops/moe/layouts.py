"""How the rows of grouped experts lie in memory: one after the other, or in a slab for each expert."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal


class ContiguousPacking(StrEnum):
    """Whether each expert's rows begin at a multiple of the alignment."""

    TIGHT = "tight"
    ALIGNED = "aligned"


class ContiguousMetadata(StrEnum):
    """What the metadata tensor states: each expert's end row, or each row's expert."""

    PHYSICAL_PSUM = "physical_psum"
    PER_ROW = "per_row"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContiguousLayout:
    """Experts' rows one after the other: [rows, columns]."""

    kind: ClassVar[Literal["contiguous"]] = "contiguous"
    packing: ContiguousPacking = ContiguousPacking.TIGHT
    metadata_kind: ContiguousMetadata = ContiguousMetadata.PER_ROW
    alignment: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedLayout:
    """A slab for each expert, of which the first rows count: [experts, max_m, columns]."""

    kind: ClassVar[Literal["masked"]] = "masked"
    max_m: int
