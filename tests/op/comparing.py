"""Comparing what two calls gave, whatever the number of their outputs."""

from __future__ import annotations

from typing import Any

from tileops_testing.numerics import assert_identical


def assert_same(received: Any, expected: Any) -> None:
    """Equal bits, in equal structure; an output or input that is not there is None in both."""
    if isinstance(expected, tuple):
        assert len(received) == len(expected)
        for left, right in zip(received, expected, strict=True):
            assert_same(left, right)
    elif expected is None:
        assert received is None
    else:
        assert_identical(received, expected)
