"""Once: one build per key among threads, and what becomes of a build that fails."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tileops_kernels.build.once import Once


def test_sixteen_threads_build_once() -> None:
    """Threads that ask for the same key at the same time get one value, built once."""
    once: Once[str, object] = Once()
    barrier, builds = threading.Barrier(16), []

    def build() -> object:
        builds.append(threading.get_ident())
        return object()

    def ask(_: int) -> object:
        barrier.wait()
        return once.get("key", build)

    with ThreadPoolExecutor(16) as pool:
        values = list(pool.map(ask, range(16)))

    assert len(builds) == 1
    assert set(map(id, values)) == {id(values[0])}
    assert len(once) == 1


def test_a_failed_build_wakes_the_waiters_and_is_forgotten() -> None:
    """Waiters get the error of the build they waited for; the next call builds again."""
    once: Once[str, int] = Once()
    started, release = threading.Event(), threading.Event()

    def fail() -> int:
        started.set()
        release.wait(10)
        raise ValueError("no luck")

    def never() -> int:
        raise AssertionError("a waiter must not build")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once.get, "key", fail)
        assert started.wait(10)
        second = pool.submit(once.get, "key", never)
        release.set()
        for waiting in (first, second):
            with pytest.raises(ValueError, match=r"^no luck$"):
                waiting.result(10)

    assert len(once) == 0
    assert once.get("key", lambda: 3) == 3


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_forgets_builds_under_way() -> None:
    """In a forked child a key that a thread of the parent was building can be built; finished values stay."""
    once: Once[str, int] = Once()
    once.get("finished", lambda: 1)
    started, release = threading.Event(), threading.Event()

    def slow() -> int:
        started.set()
        release.wait(10)
        return 2

    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(once.get, "slow", slow)
        assert started.wait(10)
        child = _fork(once)
        release.set()
        assert under_way.result(10) == 2

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5 + 1


def _fork(once: Once[str, int]) -> int:
    """The process id of a child that leaves with the sum of its two values as its exit code."""
    child = os.fork()
    if child == 0:
        os._exit(once.get("slow", lambda: 5) + once.get("finished", lambda: 0))
    return child
