"""An op is named in its own places and nowhere else, so that one more op of a family touches those alone."""

from __future__ import annotations

import re

import pytest

from tests.architecture.sources import PACKAGES, package_sources
from tileops.manifest import registry
from tileops_testing.catalog import family_of

SOURCES = [source for package in PACKAGES for source in package_sources(package)]
EXAMPLE = {
    "tileops/__main__.py",
    "tileops/op/naming.py",
    "tileops_testing/bench/__main__.py",
    "tileops_testing/bench/builds.py",
    "tileops_testing/example.py",
    "tileops_testing/quickstart.py",
    "tileops_testing/workload_cases.py",
}
"""Modules that explain themselves, or show the library, by the one op that stands for all: RMSNormFwdOp."""


def own_places(family: str) -> tuple[str, ...]:
    """Return how the paths of modules begin that may name an op of a family."""
    return (
        f"tileops/{family}/",
        f"tileops_kernels/{family}/",
        f"tileops_testing/references/{family}.py",
        f"tileops_testing/shapes/{family}.py",
        f"tileops_testing/bench/peers/{family}.py",
        "tileops/manifest/names.py",  # written by `python -m tileops.manifest names`
    )


@pytest.mark.parametrize("name", registry.names())
def test_an_op_is_named_in_its_own_places(name: str) -> None:
    """Nothing shared knows an op: what it needs beyond its family's modules follows from its entry and its class."""
    places = own_places(family_of(name))
    found = [source.place.partition("/src/")[2] for source in SOURCES if re.search(rf"\b{name}\b", source.text)]
    others = [module for module in found if not module.startswith(places)]

    assert set(others) <= (EXAMPLE if name == "RMSNormFwdOp" else set())
    assert "tileops/manifest/names.py" in found
