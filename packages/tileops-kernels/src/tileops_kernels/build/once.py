"""Once: a map whose values are each built by one thread, however many ask for them at the same time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Once(Generic[K, V]):
    """Values by key, built on first demand; threads that ask meanwhile wait and get the same value or the same error.

    A build that fails is forgotten, so that the next call tries again. In a forked child, builds that other threads of
    the parent had under way are forgotten too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[K, Future[V]] = {}
        _forget_in_children(self)

    def get(self, key: K, build: Callable[[], V]) -> V:
        """The value of `key`; `build` runs in this thread when no other has built it or is building it."""
        with self._lock:
            value = self._values.get(key)
            if value is None:
                mine = self._values[key] = Future()
        if value is not None:
            return value.result()
        try:
            result = build()
        except BaseException as error:
            with self._lock:
                del self._values[key]
            mine.set_exception(error)
            raise
        mine.set_result(result)
        return result

    def __len__(self) -> int:
        return len(self._values)

    def forget_unfinished(self) -> None:
        """Forget the builds under way; only for a child process, where their threads do not exist."""
        self._lock = threading.Lock()
        self._values = {key: value for key, value in self._values.items() if value.done()}


def _forget_in_children(once: Once[K, V]) -> None:
    reference = weakref.ref(once)

    def after_fork() -> None:
        if (alive := reference()) is not None:
            alive.forget_unfinished()

    os.register_at_fork(after_in_child=after_fork)
