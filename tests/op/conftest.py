"""Leaves the toy kernel as it was found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .toys import ScaledKernel


@pytest.fixture(autouse=True)
def untouched_kernel() -> Iterator[None]:
    """Each test starts with a kernel that has built nothing and fails at nothing."""
    ScaledKernel.builds, ScaledKernel.failure, ScaledKernel.result = 0, None, None
    yield
    ScaledKernel.builds, ScaledKernel.failure, ScaledKernel.result = 0, None, None
