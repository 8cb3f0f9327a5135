"""Refuses a selection of ops none of which has a program to compile, before anything is collected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cross_compile.programs import no_cuda_types
from tileops_testing.catalog import implemented_ops
from tileops_testing.errors import SelectionError

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """End a run of this folder alone whose --op and --family leave nothing to compile."""
    ops, families = config.getoption("--op"), config.getoption("--family")
    places = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    if not (ops or families) or not all(place.is_relative_to(HERE) for place in places):
        return
    try:
        message = no_cuda_types(implemented_ops(ops, families))
    except SelectionError as error:
        raise pytest.UsageError(str(error)) from None
    if message is not None:
        raise pytest.UsageError(message)
