"""What a launch hands to programs that divide by one number: see `macros/division.py`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

__all__ = ["Divisor", "divisor32", "divisor64"]


class Divisor(NamedTuple):
    """A number to divide by, as a product with `factor`, int64, and a shift by `shift` bits, int32."""

    factor: int
    shift: int


@lru_cache(maxsize=1024)
def divisor32(value: int) -> Divisor:
    """How numbers from 0 to 2 ** 31 - 1 are divided by `value`, which is at least 1: product // 2 ** shift.

    With 2 ** (31 + s) <= factor * value < 2 ** (31 + s) + value and value <= 2 ** s, what a number's product exceeds
    its quotient by is too little to reach the next one. The product is below 2 ** 63.
    """
    shift = 31 + (value - 1).bit_length()
    return Divisor(-(-(1 << shift) // value), shift)


@lru_cache(maxsize=1024)
def divisor64(value: int) -> Divisor:
    """How numbers from 0 to 2 ** 63 - 1 are divided by `value`, which is at least 1.

    The doubled number times the factor, divided by 2 ** (64 + shift). The factor, which is no less than 2 ** 63, is
    handed over as the int64 of the same bits.
    """
    shift = (value - 1).bit_length()
    factor = -(-(1 << (63 + shift)) // value)
    return Divisor(factor - (1 << 64), shift)
