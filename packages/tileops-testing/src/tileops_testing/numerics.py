"""Tolerances and comparison: how close is close enough, and which element is worst."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Comparison", "NumericsError", "Tolerance", "assert_close", "assert_identical", "compare", "tolerance"]

_CHUNK = 1 << 24
"""Elements compared at a time, so that float64 copies of a large output stay small."""

_FLOAT32_UNIT = 2.0**-24
_OWN_STEPS = 8
"""Roundings that an op's few elementwise steps (a square root, a division, two products) may add."""


_TINY, _HUGE = 1e-200, 1e308
"""Bounds that keep every finite error below that of a NaN, also where nothing is allowed."""


class NumericsError(AssertionError):
    """Two tensors that had to agree do not."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The error allowed on an element: ``absolute + relative * |expected| + accumulated * terms``.

    ``terms`` is what the absolute values of the terms behind the element add up to, where the comparison is given it:
    terms that cancel leave their rounding errors behind.
    """

    relative: float
    absolute: float
    accumulated: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing two tensors, with the element that disagrees most."""

    compared: int
    wrong: int
    index: tuple[int, ...] | None
    actual: float | complex | None
    expected: float | complex | None
    allowed: float | None
    cause: str

    @property
    def passed(self) -> bool:
        """Whether every element agrees."""
        return self.wrong == 0

    def describe(self) -> str:
        """One line: how many elements disagree, and the worst one with both values."""
        if self.passed:
            return f"{self.compared} elements agree"
        return (
            f"{self.wrong} of {self.compared} elements disagree; worst at {list(self.index or ())}: "
            f"expected {self.expected!r}, received {self.actual!r} ({self.cause})"
        )


def tolerance(dtype: torch.dtype, *, summed: int = 1, roundings: int = 1) -> Tolerance:
    """Return what ``dtype`` allows for a result whose longest sum has ``summed`` terms, accumulated in float32.

    The model: the exact value is rounded ``roundings`` times to ``dtype``, after float32 arithmetic whose error
    grows with the square root of the number of terms. Integers and booleans must be exact.

    Args:
        dtype: The dtype of the result.
        summed: Terms in the longest sum behind one element of the result.
        roundings: How often an intermediate or final value is rounded to ``dtype``.
    """
    if not dtype.is_floating_point and not dtype.is_complex:
        return Tolerance(relative=0.0, absolute=0.0)
    facts = torch.finfo(dtype)
    unit = facts.eps / 2
    accumulated = min(unit, _FLOAT32_UNIT) * (_OWN_STEPS + math.sqrt(summed))
    spacing_of_denormals = facts.smallest_normal * facts.eps
    return Tolerance(
        relative=roundings * unit + accumulated, absolute=roundings * spacing_of_denormals, accumulated=accumulated
    )


def compare(actual: Tensor, expected: Tensor, allowed: Tolerance, terms: Tensor | None = None) -> Comparison:
    """Compare two tensors of one shape; NaN agrees with NaN alone, an infinity with the same infinity alone.

    ``expected`` may have a wider dtype than ``actual``: an expected value that ``actual``'s dtype rounds to
    infinity is expected to be that infinity. ``terms``, of the same shape, is what the absolute values of each
    element's terms add up to; without it no element is taken to be what large terms left on cancelling.
    """
    if actual.shape != expected.shape:
        raise NumericsError(f"shape: expected {tuple(expected.shape)}, received {tuple(actual.shape)}")
    if actual.dtype.is_complex:
        return compare(torch.view_as_real(actual), torch.view_as_real(expected), allowed)
    worst = _Worst()
    flat_actual, flat_expected = actual.reshape(-1), expected.reshape(-1)
    flat_terms = None if terms is None else terms.expand(expected.shape).reshape(-1)
    for start in range(0, flat_actual.numel(), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        behind = None if flat_terms is None else flat_terms[chunk]
        worst.add(start, flat_actual[chunk], flat_expected[chunk], allowed, behind)
    return worst.comparison(actual.shape, flat_actual.numel())


class _Worst:
    """The disagreements seen so far, and the largest of them."""

    def __init__(self) -> None:
        self.wrong = 0
        self.excess = 0.0
        self.flat_index = 0
        self.actual: float | None = None
        self.expected: float | None = None
        self.allowed: float | None = None

    def add(self, start: int, actual: Tensor, expected: Tensor, allowed: Tolerance, terms: Tensor | None) -> None:
        rounded = expected.to(actual.dtype).double()
        wide, exact = actual.double(), expected.to(actual.device).double()
        rounded = rounded.to(actual.device)
        finite = torch.isfinite(wide) & torch.isfinite(rounded)
        same_non_finite = (wide == rounded) | (torch.isnan(wide) & torch.isnan(rounded))
        permitted = allowed.absolute + allowed.relative * exact.abs()
        if terms is not None:
            permitted = permitted + allowed.accumulated * terms.to(actual.device).double()
        error = (wide - exact).abs()
        agrees = torch.where(finite, error <= permitted, same_non_finite)
        wrong = int((~agrees).sum())
        if wrong == 0:
            return
        self.wrong += wrong
        beyond = (error / permitted.clamp_min(_TINY)).clamp_max(_HUGE)
        excess = torch.where(finite, beyond, math.inf)
        excess = torch.where(agrees, -1.0, excess)
        position = int(excess.argmax())
        value = float(excess[position])
        if value > self.excess:
            self.excess = value
            self.flat_index = start + position
            self.actual = float(wide[position])
            self.expected = float(exact[position])
            self.allowed = float(permitted[position])

    def comparison(self, shape: torch.Size, compared: int) -> Comparison:
        if self.wrong == 0:
            return Comparison(compared, 0, None, None, None, None, "")
        index = tuple(int(axis) for axis in torch.unravel_index(torch.tensor(self.flat_index), shape))
        return Comparison(compared, self.wrong, index, self.actual, self.expected, self.allowed, self._cause())

    def _cause(self) -> str:
        actual, expected, allowed = self.actual, self.expected, self.allowed
        if actual is None or expected is None or allowed is None:
            return "unknown"
        if math.isnan(actual) != math.isnan(expected):
            return "NaN against a number"
        if not math.isfinite(actual) or not math.isfinite(expected):
            return "an infinity against another value"
        return f"error {abs(actual - expected):.3g}, allowed {allowed:.3g}"


def assert_close(
    actual: Tensor,
    expected: Tensor,
    *,
    dtype: torch.dtype,
    summed: int = 1,
    roundings: int = 1,
    terms: Tensor | None = None,
    what: str = "output",
) -> Comparison:
    """Raise `NumericsError` unless ``actual`` has ``dtype`` and agrees with ``expected``; return the comparison.

    Args:
        actual: What was computed.
        expected: What is right, in a dtype at least as wide.
        dtype: The dtype ``actual`` must have, which also sets the tolerance.
        summed: Terms in the longest sum behind one element.
        roundings: How often a value is rounded to ``dtype`` on the way.
        terms: What the absolute values of each element's terms add up to, for sums whose terms may cancel.
        what: The name of the tensor in the message.
    """
    if actual.dtype != dtype:
        raise NumericsError(f"{what}: expected dtype {dtype}, received {actual.dtype}")
    try:
        comparison = compare(actual, expected, tolerance(dtype, summed=summed, roundings=roundings), terms)
    except NumericsError as error:
        raise NumericsError(f"{what}: {error}") from None
    if not comparison.passed:
        raise NumericsError(f"{what}: {comparison.describe()}")
    return comparison


def assert_identical(actual: Tensor, expected: Tensor, *, what: str = "output") -> None:
    """Raise `NumericsError` unless both tensors have one dtype and shape and equal elements, NaN equal to NaN."""
    if actual.dtype != expected.dtype:
        raise NumericsError(f"{what}: expected dtype {expected.dtype}, received {actual.dtype}")
    try:
        comparison = compare(actual, expected, Tolerance(relative=0.0, absolute=0.0))
    except NumericsError as error:
        raise NumericsError(f"{what}: {error}") from None
    if not comparison.passed:
        raise NumericsError(f"{what}: {comparison.describe()}")
