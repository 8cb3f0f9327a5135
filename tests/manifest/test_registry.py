"""The registry: lazy per file, typed, and complete in what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tileops.errors import ManifestError, UnknownOpError
from tileops.manifest import names, registry
from tileops.manifest.registry import Registry

ENTRY = """{name}:
  family: {family}
  status: spec-only
  signature:
    forall: {{B: Shape, T: "DType[float32]"}}
    inputs:
      x: {{dtype: T, shape: "[*B]"}}
    outputs:
      y: {{dtype: T, shape: "[*B]"}}
"""


def manifests(root: Path, **files: str) -> Registry:
    """Return the registry of a folder with one family, `toy`, and these files."""
    folder = root / "toy"
    folder.mkdir()
    for stem, text in files.items():
        (folder / f"{stem}.yaml").write_text(text)
    return Registry(root)


def test_an_entry_is_found_by_its_name() -> None:
    """The registry gives the entry of an op class's name, and the same object each time."""
    entry = registry.entry("RMSNormFwdOp")
    assert (entry.name, entry.family, entry.status) == ("RMSNormFwdOp", "norm", "implemented")
    assert registry.entry("RMSNormFwdOp") is entry


def test_an_unknown_name_gets_a_suggestion() -> None:
    """A misspelled name raises UnknownOpError, also a KeyError, with the nearest name."""
    with pytest.raises(UnknownOpError) as caught:
        registry.default().entry("RMSNromFwdOp")
    assert str(caught.value) == "no op is named 'RMSNromFwdOp'; did you mean 'RMSNormFwdOp'?"
    assert isinstance(caught.value, KeyError)
    assert registry.find("RMSNromFwdOp") is None


def test_families_are_listed() -> None:
    """The families are the folders of the manifests."""
    assert "norm" in registry.families()


def test_only_the_file_asked_for_is_parsed(tmp_path: Path) -> None:
    """Asking for one op leaves the text of other files unparsed, broken or not."""
    found = manifests(tmp_path, one=ENTRY.format(name="OneFwdOp", family="toy"), two="TwoFwdOp: [")
    assert found.entry("OneFwdOp").name == "OneFwdOp"
    assert found.names() == ("OneFwdOp", "TwoFwdOp")


def test_a_broken_entry_is_not_a_missing_one(tmp_path: Path) -> None:
    """An entry whose file does not parse raises ManifestError with the position, not UnknownOpError."""
    found = manifests(tmp_path, one="OneFwdOp: [")
    with pytest.raises(ManifestError) as caught:
        found.entry("OneFwdOp")
    (problem,) = caught.value.problems
    assert (problem.file, problem.rule) == ("manifests/toy/one.yaml", "yaml")
    assert problem.line >= 1


def test_the_type_of_names_is_up_to_date() -> None:
    """The generated Literal of op names holds exactly the manifest's names."""
    assert get_args(names.OpName) == registry.names()


def test_reading_the_registry_imports_no_kernel() -> None:
    """Finding an entry and building its plan import no TileLang."""
    program = (
        "import sys; from tileops.manifest import plan, registry; "
        "plan.build_plan(registry.entry('RMSNormFwdOp')); print('tilelang' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
