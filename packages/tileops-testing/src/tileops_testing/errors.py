"""The errors of the testing kit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileops_testing.suites.suite import Check

__all__ = [
    "CheckFailedError",
    "KitError",
    "MissingReferenceError",
    "ResultsError",
    "SelectionError",
    "WrongReferenceError",
]


class KitError(Exception):
    """The base of every error about how the testing kit is used."""


class MissingReferenceError(KitError, LookupError):
    """An op has no reference to compare with."""


class WrongReferenceError(KitError, ValueError):
    """A reference does not return what its op's signature promises."""


class SelectionError(KitError, ValueError):
    """A selected op or family does not exist."""


class ResultsError(KitError, ValueError):
    """Files of results cannot be read, or say nothing of each other."""


class CheckFailedError(AssertionError):
    """A suite or a benchmark found an op wrong; `checks` are all that a suite made, those that passed among them."""

    def __init__(self, message: str, checks: Sequence[Check] = ()) -> None:
        self.checks = tuple(checks)
        super().__init__(message)
