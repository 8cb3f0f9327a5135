"""The architecture page names every module with the first line of its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
PACKAGES = {
    "tileops_kernels": ROOT / "packages/tileops-kernels/src/tileops_kernels",
    "tileops": ROOT / "packages/tileops/src/tileops",
    "tileops_testing": ROOT / "packages/tileops-testing/src/tileops_testing",
}
SHARED = {
    "tileops_kernels": ("", "build", "macros"),
    "tileops": ("", "commands", "op", "backend", "manifest"),
    "tileops_testing": ("", "suites", "bench", "conformance"),
}
"""Folders whose modules serve every family; a family's own modules follow one pattern, which the page states."""

MODULES = [
    (package, path)
    for package, folders in SHARED.items()
    for folder in folders
    for path in sorted((PACKAGES[package] / folder).glob("*.py"))
    if path.name != "__init__.py"
]


@pytest.mark.parametrize(
    ("package", "path"), MODULES, ids=lambda value: value.stem if isinstance(value, Path) else value
)
def test_the_page_has_the_module_and_its_first_line(package: str, path: Path) -> None:
    """A module that is added, renamed or given another purpose is mended on the page too."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    line = docstring.splitlines()[0].rstrip(".")
    row = f"| `{path.relative_to(PACKAGES[package])}` | {line} |"

    assert row in PAGE, f"docs/architecture.md: expected the row {row}"


def test_the_page_names_no_module_that_is_gone() -> None:
    """Every module in the page's tables is in the tree."""
    known = {str(path.relative_to(PACKAGES[package])) for package, path in MODULES}
    known |= {"references/reference.py"}
    named = {row.split("`")[1] for row in PAGE.splitlines() if row.startswith("| `")}
    gone = {name for name in named if name.endswith(".py") and name not in known}

    assert gone == set()
