"""A fresh registry for the toys of each test, and toy kernels as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tileops.backend import BackendRegistry, Discovery

from . import composites, toys


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[BackendRegistry]:
    """The registry that toys constructed in the test use; nothing is registered in it."""
    toys.Hooks.reset()
    torch._dynamo.reset()
    fresh = BackendRegistry(composites.names)
    monkeypatch.setattr(toys.ToyOp, "_backends", Discovery(fresh, find=lambda: ()))
    yield fresh
    toys.Hooks.reset()
