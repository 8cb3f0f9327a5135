"""Comparison and tolerances: what counts as equal, and what the report says."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tileops_testing.numerics import NumericsError, Tolerance, assert_close, assert_identical, compare, tolerance
from tileops_testing.references import Reference

INF, NAN = math.inf, math.nan
EXACT = Tolerance(relative=0.0, absolute=0.0)
VALUES = st.sampled_from([0.0, -0.0, 1.0, -3.5, INF, -INF, NAN])


@settings(deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=8))
def test_elements_agree_exactly_when_equal_or_both_nan(pairs: list[tuple[float, float]]) -> None:
    """Two tensors agree iff each pair is equal or NaN on both sides, whatever the tolerance of finite values."""
    actual, expected = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    wrong = sum(not (a == e or (math.isnan(a) and math.isnan(e))) for a, e in pairs)
    comparison = compare(actual, expected, EXACT)
    assert comparison.wrong == wrong
    assert comparison.passed == (wrong == 0)


@pytest.mark.parametrize(
    ("actual", "expected"), [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (1.0, INF), (INF, -INF), (NAN, INF)]
)
def test_non_finite_never_agrees_with_another_value(actual: float, expected: float) -> None:
    """NaN and the infinities agree with nothing else, even under an unbounded tolerance."""
    unbounded = Tolerance(relative=INF, absolute=1e300)
    assert not compare(torch.tensor([actual]), torch.tensor([expected]), unbounded).passed


def test_report_names_the_worst_element() -> None:
    """The report gives the count, the index of the worst element and both of its values."""
    expected = torch.ones(2, 3)
    actual = expected.clone()
    actual[0, 1], actual[1, 2] = 1.5, 3.0
    with pytest.raises(NumericsError) as failure:
        assert_close(actual, expected, dtype=torch.float32, what="y")
    assert str(failure.value).startswith(
        "y: 2 of 6 elements disagree; worst at [1, 2]: expected 1.0, received 3.0 (error 2, allowed "
    )


def test_nan_outranks_every_finite_error() -> None:
    """A NaN against a number is the worst element, however wrong the others are."""
    actual, expected = torch.tensor([1e30, NAN]), torch.tensor([1.0, 2.0])
    assert compare(actual, expected, EXACT).describe() == (
        "2 of 2 elements disagree; worst at [1]: expected 2.0, received nan (NaN against a number)"
    )


def test_worst_element_is_found_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing in chunks gives the same worst element as comparing at once."""
    monkeypatch.setattr("tileops_testing.numerics._CHUNK", 4)
    actual, expected = torch.zeros(3, 5), torch.zeros(3, 5)
    actual[0, 1], actual[2, 3] = 1.0, 2.0
    comparison = compare(actual, expected, EXACT)
    assert (comparison.wrong, comparison.index) == (2, (2, 3))


def test_expected_value_beyond_the_dtype_is_expected_as_infinity() -> None:
    """A float64 expectation that float16 rounds to infinity agrees with that infinity and with no number."""
    expected = torch.tensor([1e6], dtype=torch.float64)
    assert compare(torch.tensor([INF], dtype=torch.float16), expected, EXACT).passed
    assert not compare(torch.tensor([65504.0], dtype=torch.float16), expected, EXACT).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_one_rounding_is_allowed_and_two_are_not(dtype: torch.dtype) -> None:
    """The tolerance admits the exact value rounded once to the dtype; a half dtype's next number it refuses."""
    generator = torch.Generator().manual_seed(0)
    exact = torch.rand(1000, generator=generator, dtype=torch.float64) + 1
    assert compare(exact.to(dtype), exact, tolerance(dtype)).passed
    if dtype is not torch.float32:
        moved = exact.to(dtype) * (1 + torch.finfo(dtype).eps)
        assert not compare(moved, exact, tolerance(dtype)).passed


def test_tolerance_grows_with_the_sum_and_integers_are_exact() -> None:
    """Longer sums are allowed more; integers and booleans nothing."""
    assert tolerance(torch.float32, summed=65536).relative > 10 * tolerance(torch.float32).relative
    assert tolerance(torch.int64) == tolerance(torch.bool) == EXACT


def test_wrong_shape_and_dtype_are_reported_first() -> None:
    """A shape or dtype that differs is the whole report."""
    with pytest.raises(NumericsError, match=r"^y: shape: expected \(3,\), received \(2,\)$"):
        assert_close(torch.zeros(2), torch.zeros(3), dtype=torch.float32, what="y")
    with pytest.raises(NumericsError, match=r"^y: expected dtype torch.float16, received torch.float32$"):
        assert_close(torch.zeros(2), torch.zeros(2), dtype=torch.float16, what="y")


def test_empty_tensors_agree() -> None:
    """Tensors without elements of one shape agree."""
    assert compare(torch.empty(0, 4), torch.empty(0, 4), EXACT).passed


def test_identical_means_bit_for_bit_but_for_nan() -> None:
    """`assert_identical` refuses the smallest difference and takes NaN for NaN."""
    base = torch.tensor([1.0, NAN])
    assert_identical(base, base.clone())
    with pytest.raises(NumericsError, match=r"worst at \[0\]"):
        assert_identical(base, torch.tensor([1.0 + 2**-23, NAN]))


def test_terms_that_cancel_leave_their_rounding_errors() -> None:
    """A small result of large terms may be off by float32's error of the terms, and by no more."""
    terms, expected = torch.tensor([2e3], dtype=torch.float64), torch.tensor([1e-3], dtype=torch.float64)
    near, far = expected + 2e3 * 2**-23, expected + 2e3 * 2**-18
    with pytest.raises(NumericsError, match="1 of 1 elements disagree"):
        assert_close(near.float(), expected, dtype=torch.float32)
    assert assert_close(near.float(), expected, dtype=torch.float32, terms=terms).passed
    with pytest.raises(NumericsError, match="1 of 1 elements disagree"):
        assert_close(far.float(), expected, dtype=torch.float32, terms=terms)


def test_terms_of_one_output_of_a_reference() -> None:
    """A reference states the terms behind its outputs before it writes any input; without terms none is given."""

    def subtract(x: Tensor, y: Tensor) -> Tensor:
        return x.sub_(y)

    x, y = torch.tensor([3.0, -1.0]), torch.tensor([3.0, 1.0])
    found = Reference(subtract, terms=lambda x, y: x.abs() + y.abs()).expected((x.clone(), y), {})
    assert [value.tolist() for value in (*found.values, *found.terms) if value is not None] == [[0.0, -2.0], [6.0, 2.0]]
    assert Reference(subtract).expected((x.clone(), y), {}).terms == (None,)
