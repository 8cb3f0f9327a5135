"""Program: what its digest depends on, and that naming one imports nothing."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tileops_kernels.build import program as program_module
from tileops_kernels.build.program import Program
from tileops_kernels.errors import BuildError

TOYS = "tests.kernels.programs.toys"


def test_arguments_have_no_order() -> None:
    """Programs with equal arguments are equal, in whatever order they are stated."""
    one = Program.of(TOYS, "scale_rows", n=4, factor=2.0)
    other = Program.of(TOYS, "scale_rows", factor=2.0, n=4)

    assert one == other
    assert one.arguments == (("factor", 2.0), ("n", 4))
    assert one.digest() == other.digest()
    assert str(one) == f"{TOYS}:scale_rows(factor=2.0, n=4)"


@pytest.mark.parametrize(
    "other",
    [
        Program.of(TOYS, "scale_rows", n=5, factor=2.0),
        Program.of(TOYS, "scale_rows", n=4, factor=2),
        Program.of(TOYS, "add_constant", n=4, factor=2.0),
        Program.of("tileops_kernels.norm.programs.rms_norm", "scale_rows", n=4, factor=2.0),
    ],
    ids=["value", "type", "builder", "module"],
)
def test_digest_tells_programs_apart(other: Program) -> None:
    """The digest differs with the value and type of an argument, the builder, and the module."""
    assert other.digest() != Program.of(TOYS, "scale_rows", n=4, factor=2.0).digest()


def test_digest_covers_the_text_of_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another text is another digest in a new process; here the text met first counts, as it is what is loaded."""
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "edited_program.py"
    source.write_text("def build(): return 1\n")
    program = Program.of("edited_program", "build")
    first = program.digest()

    source.write_text("def build(): return 2\n")

    assert program.digest() == first
    program_module._sources_digest.cache_clear()
    assert program.digest() != first


def test_digest_covers_the_macros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the shared macros changes every digest."""
    before = Program.of(TOYS, "add_constant", n=4).digest()
    (tmp_path / "macros").mkdir()
    (tmp_path / "macros" / "other.py").write_text("pass\n")
    monkeypatch.setattr(program_module, "_PACKAGE", tmp_path)
    program_module._sources_digest.cache_clear()

    changed = Program.of(TOYS, "add_constant", n=4).digest()
    program_module._sources_digest.cache_clear()

    assert changed != before


def test_digest_is_the_same_everywhere_and_imports_no_tilelang() -> None:
    """Another process finds the same digest, without importing TileLang or the program module."""
    code = (
        "import sys; from tileops_kernels.build.program import Program; "
        f"print(Program.of('{TOYS}', 'add_constant', n=4).digest(), 'tilelang' in sys.modules, '{TOYS}' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert ran.stdout.split() == [Program.of(TOYS, "add_constant", n=4).digest(), "False", "False"]


def test_missing_module_is_named() -> None:
    """A program module that is not there is an error that names it."""
    with pytest.raises(BuildError) as caught:
        Program.of("tests.kernels.programs.absent", "build").digest()

    assert str(caught.value) == (
        "program module tests.kernels.programs.absent has no source; expected an importable .py module, received "
        "no such module; name a module that the package ships"
    )


def test_a_missing_tilelang_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where TileLang is not installed, the error says which versions serve and how to get one."""

    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    program_module.tilelang_version.cache_clear()
    with pytest.raises(BuildError) as caught:
        program_module.tilelang_version()
    program_module.tilelang_version.cache_clear()

    assert str(caught.value) == (
        "tilelang is not installed; expected tilelang>=0.1.14,<0.2, received none; run pip install tilelang"
    )


def test_missing_builder_is_named() -> None:
    """A builder that its module does not have is an error that names both."""
    with pytest.raises(BuildError) as caught:
        Program.of(TOYS, "absent").build()

    assert str(caught.value) == (
        f"{TOYS}:absent(): cannot find the builder; expected a function absent in module {TOYS}, received module "
        f"'{TOYS}' has no attribute 'absent'; correct the Program that the kernel type names, or install what the "
        "module imports"
    )
