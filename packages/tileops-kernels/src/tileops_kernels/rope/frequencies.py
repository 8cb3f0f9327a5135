"""How fast each pair turns from one position to the next, and what the rotation multiplies lengths by.

Frequencies are float64. Their products with positions near 2 ** 31 would lose the digits that float32 results need, so
`fixed_turns` gives them as integers too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_PLACES = 1280
"""Binary places of a turn: enough for 64 of the product with the largest float64."""


def fixed_turns(angles: Sequence[float]) -> list[int]:
    """Each angle as a number of 2 ** -64 turns, to the nearest, without whole turns, from -2 ** 63 to below 2 ** 63.

    An infinite angle, which stands for one beyond float64, counts as the largest float64.
    """
    turns_per_radian = (1 << (2 * _PLACES)) // (2 * _pi(_PLACES))
    found = []
    for angle in angles:
        whole, parts = min(angle, sys.float_info.max).as_integer_ratio()
        units = ((whole * turns_per_radian >> (_PLACES - 65)) // parts + 1) >> 1
        found.append((units + (1 << 63)) % (1 << 64) - (1 << 63))
    return found


def _pi(places: int) -> int:
    """Pi times 2 ** places, by Machin's formula."""
    guard = 16
    one = 1 << (places + guard)
    return (16 * _arctangent_of_inverse(5, one) - 4 * _arctangent_of_inverse(239, one)) >> guard


def _arctangent_of_inverse(x: int, one: int) -> int:
    """The arctangent of 1 / x, times `one`."""
    total, power, term = 0, one // x, 1
    while power:
        total += power // term if term % 4 == 1 else -(power // term)
        power //= x * x
        term += 2
    return total


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


@dataclass(frozen=True, slots=True)
class SmoothedFrequencies(Frequencies):
    """Llama 3.1: pairs that turn seldom turn `scale` times slower, those that turn often stay, between them a mixture.

    A pair that turns `r` times in `context` positions is slowed down where `r < low` and stays where `r > high`.
    """

    scale: float
    low: float
    high: float
    context: int

    def of_pairs(self, pairs: int) -> Tensor:
        """The angle of each pair at position 1, in float64 on the CPU."""
        plain = Frequencies(self.base).of_pairs(pairs)
        length = 2 * math.pi / plain
        kept = (self.context / length - self.low) / (self.high - self.low)
        slowed = plain / self.scale
        mixed = torch.where(length > self.context / self.low, slowed, (1 - kept) * slowed + kept * plain)
        return torch.where(length < self.context / self.high, plain, mixed)


@dataclass(frozen=True, slots=True)
class InterpolatedFrequencies(Frequencies):
    """YaRN: from the pair that turns `often` times in `context` positions to the one that turns `seldom` times, a ramp.

    Pairs before the ramp stay, those behind it turn `scale` times slower, and lengths are multiplied by `stretch`.
    """

    scale: float
    context: int
    often: float
    seldom: float
    stretch: float

    @property
    def amplitude(self) -> float:
        """What lengths are multiplied by."""
        return self.stretch

    def of_pairs(self, pairs: int) -> Tensor:
        """The angle of each pair at position 1, in float64 on the CPU."""
        plain = Frequencies(self.base).of_pairs(pairs)
        first = self._turning(self.often, pairs).floor().clamp(min=0.0)
        last = self._turning(self.seldom, pairs).ceil().clamp(max=2.0 * pairs - 1)
        width = torch.where(first == last, 0.001, last - first)
        slowed = ((torch.arange(pairs, dtype=torch.float64, device="cpu") - first) / width).clamp(0.0, 1.0)
        return (1 - slowed) * plain + slowed * (plain / self.scale)

    def _turning(self, times: float, pairs: int) -> Tensor:
        """Where among the pairs the one lies that turns `times` times in the context, between two of them or beyond."""
        turns = math.log(self.context) - math.log(2 * math.pi * times)
        return torch.tensor(pairs * turns / math.log(self.base), dtype=torch.float64, device="cpu")
