"""How fast each pair turns from one position to the next, and what the rotation multiplies lengths by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Frequencies:
    """Pair k of n turns by `base ** (-k / n)` from one position to the next; lengths stay."""

    base: float

    @property
    def amplitude(self) -> float:
        """What lengths are multiplied by."""
        return 1.0

    def of_pairs(self, pairs: int) -> Tensor:
        """The angle of each pair at position 1, in float64 on the CPU."""
        return self.base ** (torch.arange(pairs, dtype=torch.float64, device="cpu") * (-1.0 / pairs))


@dataclass(frozen=True, slots=True)
class RescaledFrequencies(Frequencies):
    """LongRoPE: each pair turns slower by a factor of its own, and lengths are multiplied by `stretch`."""

    factors: tuple[float, ...] | None
    stretch: float

    @property
    def amplitude(self) -> float:
        """What lengths are multiplied by."""
        return self.stretch

    def of_pairs(self, pairs: int) -> Tensor:
        """The angle of each pair at position 1, in float64 on the CPU."""
        plain = Frequencies(self.base).of_pairs(pairs)
        return plain if self.factors is None else plain / torch.tensor(self.factors, dtype=torch.float64, device="cpu")
