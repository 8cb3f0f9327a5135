"""The errors of the testing kit."""

from __future__ import annotations

__all__ = ["CheckFailure", "KitError", "MissingReferenceError", "SelectionError"]


class KitError(Exception):
    """The base of every error about how the testing kit is used."""


class MissingReferenceError(KitError, LookupError):
    """An op has no reference to compare with."""


class SelectionError(KitError, ValueError):
    """A selected op or family does not exist."""


class CheckFailure(AssertionError):
    """A suite or a benchmark found an op wrong."""
