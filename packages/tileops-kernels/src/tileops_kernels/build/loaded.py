"""What an entry has loaded: programs by key, each built by the first call that needs it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)
F = TypeVar("F")


class Entry(Protocol):
    """A kernel, as far as loading knows it."""

    call: Any
    """The call spec that it was built for."""


class Loaded(dict[K, F], Generic[K, F]):
    """Loaded programs by key; looking up one that is not there loads it, and a failure leaves nothing behind.

    Threads that look up the same key at once get the same function, since builders build each program once.
    """

    def __init__(self, load: Callable[[K], F]) -> None:
        super().__init__()
        self._load = load

    def __missing__(self, key: K) -> F:
        """Load what no call has needed before."""
        function = self[key] = self._load(key)
        return function


def owner_of(kernel: Entry) -> str:
    """How errors name the kernel type that asked for a program, and for which call."""
    return f"{type(kernel).__name__} for {kernel.call}"
