"""The errors of the testing kit."""

from __future__ import annotations

__all__ = ["CheckFailedError", "KitError", "MissingReferenceError", "SelectionError", "WrongReferenceError"]


class KitError(Exception):
    """The base of every error about how the testing kit is used."""


class MissingReferenceError(KitError, LookupError):
    """An op has no reference to compare with."""


class WrongReferenceError(KitError, ValueError):
    """A reference does not return what its op's signature promises."""


class SelectionError(KitError, ValueError):
    """A selected op or family does not exist."""


class CheckFailedError(AssertionError):
    """A suite or a benchmark found an op wrong."""
