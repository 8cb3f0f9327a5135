"""What families may know of the base classes: their public members, and nothing that begins with an underscore."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import PACKAGES, Source, package_sources

LAYERS = {"tileops": {"op", "manifest", "backend", "commands"}, "tileops_kernels": {"build", "macros"}}
"""Folders of a package that are no families."""


def private_members(source: Source, name: str) -> set[str]:
    """Return the underscored names that a class defines, declares, or assigns on its instances."""
    found = next(node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef) and node.name == name)
    names = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    names |= {ast.unparse(node.target) for node in found.body if isinstance(node, ast.AnnAssign)}
    for node in ast.walk(found):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in OWNERS:
            names.add(node.attr)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


OWNERS = {"self", "cls"}


def family_modules(package: str) -> list[Source]:
    """Return the modules of a package's families."""
    root = PACKAGES[package]
    folders = [source for source in package_sources(package) if len(source.path.relative_to(root).parts) > 1]
    return [source for source in folders if source.path.relative_to(root).parts[0] not in LAYERS[package]]


def touched(source: Source, names: set[str]) -> list[str]:
    """Return where a module reads or writes one of `names` on anything, or defines it in a class."""
    attributes = [
        node.lineno for node in ast.walk(source.tree) if isinstance(node, ast.Attribute) and node.attr in names
    ]
    methods = [
        method.lineno
        for found in ast.walk(source.tree)
        if isinstance(found, ast.ClassDef)
        for method in found.body
        if isinstance(method, ast.FunctionDef) and method.name in names
    ]
    return [f"{source.place}:{line}" for line in [*attributes, *methods]]


def test_the_members_of_op_are_found() -> None:
    """The rule below looks for what the class has."""
    names = private_members(Source(PACKAGES["tileops"] / "op" / "base.py"), "Op")

    assert names >= {"_plan", "_backends", "_construction", "_binding", "_running", "_instance_key", "_call_boundary"}


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [
        ("tileops", "op/base.py", "Op"),
        ("tileops_kernels", "table.py", "KernelTable"),
        ("tileops_kernels", "calls.py", "CallSpec"),
        ("tileops_kernels", "kernel.py", "Kernel"),
    ],
)
def test_no_family_touches_what_a_base_keeps_to_itself(package: str, module: str, name: str) -> None:
    """No module of a family reads, writes or redefines an underscored member of its base class."""
    names = private_members(Source(PACKAGES[package] / module), name)
    assert [place for source in family_modules(package) for place in touched(source, names)] == []


def test_families_know_the_base_class_alone() -> None:
    """Of tileops.op, a family imports the class Op; of tileops.backend, BUILTIN; of tileops.manifest, nothing."""
    allowed = {"tileops.op", "tileops.op.Op", "tileops.op.base", "tileops.op.base.Op", "tileops.backend.BUILTIN"}
    allowed |= {"tileops.backend"}
    wrong = [
        f"{source.place}: {name}"
        for source in family_modules("tileops")
        for name in source.imports()
        if name.startswith(("tileops.op", "tileops.backend", "tileops.manifest")) and name not in allowed
    ]
    assert wrong == []


def kept_or_asked(source: Source) -> list[str]:
    """Return where a module asks whether an attribute exists, and where a method keeps something on its instance."""
    asked = [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"hasattr", "getattr", "setattr", "vars"}
    ]
    kept = [
        node.lineno
        for method in ast.walk(source.tree)
        if isinstance(method, ast.FunctionDef) and method.name != "__init__"
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in OWNERS
    ]
    return [f"{source.place}:{line}" for line in sorted([*asked, *kept])]


def test_no_op_keeps_what_a_call_made() -> None:
    """A family's op writes to itself in its constructor alone, and asks nobody whether an attribute exists."""
    assert [place for source in family_modules("tileops") for place in kept_or_asked(source)] == []


def test_a_cache_of_an_op_is_found() -> None:
    """The rule sees an attribute test, and an assignment outside the constructor."""
    text = (
        "class A(Op):\n    def __init__(self):\n        self.n = 1\n    def forward(self, x):\n"
        "        if not hasattr(self, 'table'):\n            self.table = x\n"
    )
    source = Source(PACKAGES["tileops"] / "norm" / "rms_norm.py")
    source.__dict__.update(text=text, tree=ast.parse(text))

    assert [place.rpartition(":")[2] for place in kept_or_asked(source)] == ["5", "6"]


def test_a_breach_is_found() -> None:
    """The rule sees a read, a write and a redefinition."""
    text = "class A(Op):\n    def _table(self): ...\n    def f(self):\n        self._binding = other._running\n"
    source = Source(PACKAGES["tileops"] / "norm" / "rms_norm.py")
    source.__dict__.update(text=text, tree=ast.parse(text))

    assert [place.rpartition(":")[2] for place in touched(source, {"_table", "_binding", "_running"})] == [
        "4",
        "4",
        "2",
    ]
