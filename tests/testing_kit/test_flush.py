"""The flush before a timed call: what it asks of the driver, how much it reads, and what it says when that fails."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from tileops_testing.bench.flush import CacheFlush
from tileops_testing.errors import KitError

CPU = torch.device("cpu")
CACHED = 5000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a flush did, in order; the CPU stands for a device with a cache of 5000 bytes."""
    done: list[str] = []

    def read(x: Tensor, *, dim: int) -> None:
        done.append(f"read {x.nbytes} along {dim}")

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=CACHED))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: done.append("wait"))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch, "aminmax", read)
    return done


def driver(monkeypatch: pytest.MonkeyPatch, asked: list[str], status: int) -> None:
    """A driver that answers with this status."""

    def reset() -> int:
        asked.append("reset")
        return status

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(cuCtxResetPersistingL2Cache=reset))


@pytest.mark.parametrize("status", [0, 801], ids=["done", "not_supported"])
def test_kept_lines_are_given_up_before_the_cache_is_filled(
    status: int, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    """On an idle device lines are given up, where it keeps any; then at least four times the cache is read."""
    driver(monkeypatch, asked, status)
    flush = CacheFlush(CPU)
    assert asked == []
    flush()
    assert asked == ["wait", "reset", "read 20480 along 1"]
    assert 4 * CACHED <= 20480


def test_a_driver_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    """An error of the driver is an error of the kit that says what was asked, and nothing is read."""
    driver(monkeypatch, asked, 700)
    with pytest.raises(
        KitError,
        match=r"cpu: expected cuCtxResetPersistingL2Cache to give up cache lines that are kept, received CUresult 700; "
        r"see whether an earlier kernel failed",
    ):
        CacheFlush(CPU)()
    assert asked == ["wait", "reset"]
