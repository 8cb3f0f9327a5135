"""Quotients by a product and a shift: equal to divisions, at every border of what is divided."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tileops_kernels.division import divisor32, divisor64

WORD, LONG = (1 << 31) - 1, (1 << 63) - 1


def numbers_about(divisor: int, times: int, largest: int) -> list[int]:
    """A multiple of the divisor, its neighbours, and the ends of what may be divided."""
    multiple = min(divisor * times, largest)
    return [0, max(multiple - 1, 0), multiple, min(multiple + 1, largest), largest - 1, largest]


@given(divisor=st.integers(1, WORD), times=st.integers(0, WORD))
@example(divisor=1, times=1)
@example(divisor=WORD, times=1)
@example(divisor=(1 << 30) + 1, times=1)
def test_words(divisor: int, times: int) -> None:
    """The product of a 32-bit number is below 2 ** 63, and shifted it is the quotient."""
    factor, shift = divisor32(divisor)
    for number in numbers_about(divisor, times, WORD):
        assert number * factor <= LONG
        assert (number * factor) >> shift == number // divisor


@given(divisor=st.integers(1, LONG), times=st.integers(0, LONG))
@example(divisor=1, times=1)
@example(divisor=LONG, times=1)
@example(divisor=(1 << 62) + 1, times=1)
def test_longs(divisor: int, times: int) -> None:
    """The upper half of the product of a doubled 64-bit number, shifted, is the quotient; factors are int64."""
    factor, shift = divisor64(divisor)
    assert -LONG - 1 <= factor < 0
    for number in numbers_about(divisor, times, LONG):
        assert (2 * number * (factor + (1 << 64)) >> 64) >> shift == number // divisor


@pytest.mark.parametrize("power", [0, 1, 5, 30])
def test_powers_of_two(power: int) -> None:
    """A power of two is a shift by itself."""
    assert divisor32(1 << power) == (1 << 31, 31 + power)
    assert divisor64(1 << power) == (-LONG - 1, power)
