"""Sizes, docstrings and names of the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import pytest

from tests.architecture.sources import (
    PACKAGES,
    ROOT,
    all_sources,
    exceptions,
    lines,
    package_sources,
    parameters,
    sources_of_examples,
    sources_of_tests,
)
from tileops.manifest import registry

MODULE_LINES = 400
HOST_FUNCTION_LINES = 60
PROGRAM_LINES = 150
PARAMETERS = 8
KERNEL_NAME = 30


def check_limit(rule: str, sizes: Iterable[tuple[str, int, int]]) -> None:
    """Fail with every (place, size, limit) beyond its limit, and every exception that is no longer one."""
    granted = exceptions(rule)
    measured = {place: (size, limit) for place, size, limit in sizes}
    beyond = [
        f"{place}: {size}, at most {granted.get(place, limit)}"
        for place, (size, limit) in measured.items()
        if size > granted.get(place, limit)
    ]
    idle = [place for place in granted if place not in measured or measured[place][0] <= measured[place][1]]
    assert not beyond, f"{rule}:\n" + "\n".join(beyond)
    assert not idle, f"{rule}: exceptions that nothing needs: {', '.join(idle)}"


def test_modules_read_in_one_sitting() -> None:
    """A module has at most 400 lines."""
    sources = [*all_sources(), *sources_of_examples(), *sources_of_tests()]
    check_limit("module_lines", [(s.place, len(s.text.splitlines()), MODULE_LINES) for s in sources])


def test_functions_fit_a_screen() -> None:
    """A host function has at most 60 lines and a TileLang builder 150, docstrings not counted."""
    check_limit(
        "function_lines",
        [
            (place, lines(function), PROGRAM_LINES if source.holds_programs else HOST_FUNCTION_LINES)
            for source in [*all_sources(), *sources_of_examples()]
            for place, function in source.functions()
        ],
    )


def test_calls_stay_readable() -> None:
    """A host function has at most eight parameters."""
    check_limit(
        "parameters",
        [
            (place, parameters(function), PARAMETERS)
            for source in all_sources()
            if not source.holds_programs
            for place, function in source.functions()
        ],
    )


def test_modules_say_what_they_are() -> None:
    """Each module begins with a docstring whose first line is a whole sentence."""
    wrong = []
    for source in [*all_sources(), *sources_of_examples(), *sources_of_tests()]:
        first = (ast.get_docstring(source.tree) or "").split("\n")[0]
        if not re.fullmatch(r"\S.*[.:;,]|\S.*\w", first):
            wrong.append(source.place)
    assert wrong == []


def test_tests_state_their_rule() -> None:
    """Each test has a docstring: the rule that it checks."""
    wrong = [
        place
        for source in [*sources_of_examples(), *sources_of_tests()]
        for place, function in source.functions()
        if function.name.startswith("test_") and source.path.name.startswith("test_")
        if ast.get_docstring(function) is None
    ]
    assert wrong == []


def test_kernel_names_are_short() -> None:
    """A kernel type's name says role and strategy in at most 30 characters."""
    names = [
        node.name
        for source in package_sources("tileops_kernels")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Kernel")
    ]
    assert [name for name in names if len(name) > KERNEL_NAME] == []


def test_each_package_says_that_it_is_typed() -> None:
    """There is one py.typed in each package, at its top, and no other."""
    expected = sorted(path / "py.typed" for path in PACKAGES.values())
    assert sorted((ROOT / "packages").rglob("py.typed")) == expected


def implemented_stems() -> list[str]:
    """Return `<family>/<stem>` of each manifest file with an implemented op."""
    files = [
        file
        for file in registry.default().files
        if any(entry.status == "implemented" for entry in file.entries.values())
    ]
    return [file.name.removesuffix(".yaml") for file in files]


@pytest.mark.parametrize("stem", implemented_stems())
def test_one_stem_everywhere(stem: str) -> None:
    """A manifest with an implemented op, its op module, its kernel module and its tests share family and stem.

    Composites have no kernel module.
    """
    family, name = stem.split("/")
    expected = [PACKAGES["tileops"] / family / f"{name}.py", ROOT / "tests" / family / f"test_{name}.py"]
    (entries,) = (file.entries.values() for file in registry.default().files if file.name == f"{stem}.yaml")
    if any(entry.composition is None for entry in entries):
        expected.append(PACKAGES["tileops_kernels"] / family / f"{name}.py")
    assert [path.relative_to(ROOT).as_posix() for path in expected if not path.is_file()] == []


def test_each_package_carries_the_license() -> None:
    """Each package holds a copy of LICENSE: a link to it would point outside its source distribution."""
    license_text = (ROOT / "LICENSE").read_text()
    copies = sorted((ROOT / "packages").glob("*/LICENSE"))
    assert len(copies) == 3
    assert [copy.read_text() == license_text and not copy.is_symlink() for copy in copies] == [True] * 3
