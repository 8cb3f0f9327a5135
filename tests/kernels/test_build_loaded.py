"""Loaded: an entry's programs by key, each loaded by the first look-up that needs it."""

from __future__ import annotations

import pytest

from tileops_kernels.build.loaded import Loaded, owner_of
from tileops_kernels.errors import BuildError


def test_a_key_is_loaded_once() -> None:
    """Other look-ups find what the first one left, also by `in` and iteration."""
    asked: list[int] = []

    def load(key: int) -> str:
        asked.append(key)
        return f"program {key}"

    loaded: Loaded[int, str] = Loaded(load)
    assert [loaded[3], loaded[3], loaded[4]] == ["program 3", "program 3", "program 4"]
    assert asked == [3, 4]
    assert list(loaded) == [3, 4]


def test_a_failure_leaves_nothing() -> None:
    """The next look-up tries again."""
    failing = True

    def load(key: str) -> str:
        if failing:
            raise BuildError(f"{key}: no compiler")
        return key

    loaded: Loaded[str, str] = Loaded(load)
    with pytest.raises(BuildError, match="rows: no compiler"):
        loaded["rows"]
    assert "rows" not in loaded
    failing = False
    assert loaded["rows"] == "rows"


def test_errors_name_the_kernel_type_and_its_call() -> None:
    """The owner of a program reads as builders put it before what went wrong."""

    class RowKernel:
        call = "rows of 8"

    assert owner_of(RowKernel()) == "RowKernel for rows of 8"
