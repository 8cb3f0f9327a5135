"""The repository's Python sources, parsed once, and the measures that rules are stated in."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "tileops_kernels": ROOT / "packages/tileops-kernels/src/tileops_kernels",
    "tileops": ROOT / "packages/tileops/src/tileops",
    "tileops_testing": ROOT / "packages/tileops-testing/src/tileops_testing",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One module: where it lies and what it says."""

    path: Path

    @property
    def place(self) -> str:
        """The path from the repository's root."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def holds_programs(self) -> bool:
        """Whether TileLang's own front end reads this module."""
        return {"programs", "macros"} & set(self.path.parts) != set()

    @cached_property
    def text(self) -> str:
        """The source text."""
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text, filename=self.place)

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Each outermost function or method with its place, functions within functions being part of theirs."""
        yield from _functions(self.place, self.tree)

    def imports(self, *, within_functions: bool = True) -> Iterator[str]:
        """Each imported module's full name, type-checking imports left out."""
        for node in _statements(self.tree, within_functions=within_functions):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package_sources(name: str) -> list[Source]:
    """Return the modules of one package, in order of path."""
    return [Source(path) for path in sorted(PACKAGES[name].rglob("*.py"))]


@cache
def all_sources() -> tuple[Source, ...]:
    """Return the modules of the three packages."""
    return tuple(source for name in PACKAGES for source in package_sources(name))


def sources_of_tests() -> list[Source]:
    """Return the repository's test modules and their helpers."""
    return [Source(path) for path in sorted((ROOT / "tests").rglob("*.py")) if "must_fail" not in path.parts]


def sources_of_examples() -> list[Source]:
    """Return the modules of the example projects that guides walk through."""
    return [Source(path) for path in sorted((ROOT / "docs" / "examples").rglob("*.py"))]


def exceptions(rule: str) -> dict[str, int]:
    """Return the limits that hold in place of `rule`'s ordinary one, by place."""
    entries = tomllib.loads((Path(__file__).parent / "exceptions.toml").read_text())[rule]
    for place, entry in entries.items():
        assert entry.keys() == {"limit", "reason"}, f"{rule}: {place} must state a limit and a reason, and no more"
    return {place: entry["limit"] for place, entry in entries.items()}


def lines(function: Function) -> int:
    """Return the number of lines from `def` to the last statement, the docstring not counted."""
    end = function.end_lineno or function.lineno
    body = function.body[0]
    documented = ast.get_docstring(function, clean=False) is not None
    docstring = (body.end_lineno or body.lineno) - body.lineno + 1 if documented else 0
    return end - function.lineno + 1 - docstring


def parameters(function: Function) -> int:
    """Return the number of parameters, `self` and `cls` not counted."""
    arguments = function.args
    names = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    return len([name for name in names if name not in {"self", "cls"}])


def _functions(place: str, node: ast.Module | ast.ClassDef) -> Iterator[tuple[str, Function]]:
    for statement in node.body:
        if isinstance(statement, Function):
            yield f"{place}::{statement.name}", statement
        elif isinstance(statement, ast.ClassDef):
            for within, function in _functions(statement.name, statement):
                yield f"{place}::{within.replace('::', '.')}", function


def _statements(node: ast.AST, *, within_functions: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, Function) and not within_functions:
            continue
        yield child
        yield from _statements(child, within_functions=within_functions)
