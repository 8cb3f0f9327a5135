"""The texts of errors and warnings: each part of one stands in a test, and each says what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.sources import Source, package_sources, sources_of_tests

PLACES = ("tileops/commands/", "tileops/op/", "tileops/backend/", "tileops_kernels/")
"""Where errors of commands, calls, backends and kernels are raised; the manifest's rules have tests of their own."""
SHORTEST = 9
"""Shorter parts between two values, such as `; received`, say nothing that a test could miss."""
INTERNAL = {"OSError", "_NoCompilerError"}
"""Caught where they are raised for; no user sees them."""


def runtime_sources() -> list[Source]:
    """Return the modules whose errors users of ops meet."""
    sources = [*package_sources("tileops"), *package_sources("tileops_kernels")]
    found = [source for source in sources if any(f"/src/{place}" in f"/{source.place}" for place in PLACES)]
    return [source for source in found if any(error_texts(source))]


def error_texts(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Each error or warning that a module makes: its line, and the constant parts of its text."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and node.args and _makes_text(node.func):
            parts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            yield node.lineno, [part for part in parts if isinstance(part, str)]


def _makes_text(function: ast.expr) -> bool:
    name = ast.unparse(function).rpartition(".")[2]
    return (name.endswith("Error") and name not in INTERNAL) or name == "warn"


@cache
def spelled_by_tests() -> str:
    """Every string of the tests, patterns without their escapes."""
    strings = [
        node.value
        for source in sources_of_tests()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return "\n".join(re.sub(r"\\(.)", r"\1", text) for text in strings)


@pytest.mark.parametrize("source", runtime_sources(), ids=lambda source: source.place)
def test_every_part_of_a_text_stands_in_a_test(source: Source) -> None:
    """A text that no test spells out may change, or never be reached, without anyone noticing."""
    missing = [
        f"{source.place}:{line}: {part!r}"
        for line, parts in error_texts(source)
        for part in parts
        if len(part) >= SHORTEST and part not in spelled_by_tests()
    ]
    assert missing == []


@pytest.mark.parametrize("source", runtime_sources(), ids=lambda source: source.place)
def test_every_text_says_what_to_do(source: Source) -> None:
    """After what was expected and received a semicolon, and the mend behind it."""
    wrong = [
        f"{source.place}:{line}"
        for line, parts in error_texts(source)
        if any(len(part) >= SHORTEST for part in parts) and not ("; " in "".join(parts) and "\n" not in "".join(parts))
    ]
    assert wrong == []


def test_a_text_without_a_test_is_found() -> None:
    """The rule reads the parts around the values of a text, and not those of other calls."""
    source = Source(package_sources("tileops")[0].path)
    text = 'raise ShapeError(f"{name}: expected nothing of {value}; leave it")\nprint("other text here")\n'
    source.__dict__.update(text=text, tree=ast.parse(text))

    assert list(error_texts(source)) == [(1, [": expected nothing of ", "; leave it"])]
