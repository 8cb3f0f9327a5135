"""Who may import what, beyond the layers that import-linter holds."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.architecture.sources import PACKAGES, Source, all_sources, package_sources, sources_of_examples

KERNELS = PACKAGES["tileops_kernels"]


def imports_of(source: Source, package: str, *, within_functions: bool = True) -> list[str]:
    """Return the names under `package` that `source` imports."""
    names = source.imports(within_functions=within_functions)
    return [name for name in names if name == package or name.startswith(f"{package}.")]


def test_tilelang_is_imported_by_builds_and_programs_only() -> None:
    """Nothing outside build/, programs/ and macros/ names TileLang in an import."""
    wrong = [
        source.place
        for source in [*all_sources(), *sources_of_examples()]
        if not source.holds_programs and not source.path.is_relative_to(KERNELS / "build")
        if imports_of(source, "tilelang")
    ]
    assert wrong == []


def test_programs_know_tilelang_alone() -> None:
    """A program or macro module imports no torch, and has no postponed annotations: they break captured sizes."""
    wrong = [
        source.place
        for source in [*package_sources("tileops_kernels"), *sources_of_examples()]
        if source.holds_programs
        if imports_of(source, "torch") or imports_of(source, "__future__")
    ]
    assert wrong == []


def test_programs_are_imported_late() -> None:
    """No module outside programs/ and macros/ imports TileLang, a program or a macro at its top level."""
    wrong = [
        source.place
        for source in [*package_sources("tileops_kernels"), *sources_of_examples()]
        if not source.holds_programs
        for name in source.imports(within_functions=False)
        if name.split(".")[0] == "tilelang" or {"programs", "macros"} & set(name.split("."))
    ]
    assert wrong == []


def test_one_module_probes_devices() -> None:
    """Of what serves a call, only tileops_kernels/devices.py asks torch.cuda what a device is."""
    probes = {"get_device_properties", "get_device_capability", "get_device_name"}
    wrong = [
        source.place
        for source in [*package_sources("tileops_kernels"), *package_sources("tileops")]
        if source.path != KERNELS / "devices.py"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr in probes
    ]
    assert wrong == []


def test_operators_are_registered_in_one_place() -> None:
    """Of tileops, the compile boundary alone calls torch.library, beside the gradient refusal that it uses."""
    registering = {PACKAGES["tileops"] / "op" / name for name in ("boundary.py", "gradients.py")}
    wrong = [
        source.place
        for source in package_sources("tileops")
        if source.path not in registering
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.library"
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "statement",
    [
        "import tileops",
        "import tileops_kernels.norm; tileops_kernels.norm.rms_norm_kernels()",
    ],
)
def test_tilelang_waits_for_the_first_build(statement: str) -> None:
    """Importing the packages and making a table of kernel types do not import TileLang."""
    program = f"{statement}\nimport sys\nprint(sorted({{'tilelang', 'tvm', 'tvm_ffi'}} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
