"""The compile suite, as `tests/compile_contract.py` registers it."""

from __future__ import annotations

from tests.compile_contract import (
    test_cold_compile,
    test_cold_composite,
    test_every_composite_is_registered,
    test_every_op_with_a_boundary_is_registered,
)

__all__ = [
    "test_cold_compile",
    "test_cold_composite",
    "test_every_composite_is_registered",
    "test_every_op_with_a_boundary_is_registered",
]
