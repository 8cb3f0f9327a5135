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
from tileops.manifest.validate import validate

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


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    """A file that begins with a byte order mark declares the same ops, with the same positions."""
    found = manifests(tmp_path, one="\ufeff" + ENTRY.format(name="OneFwdOp", family="toy"))
    assert found.names() == ("OneFwdOp",)
    assert validate(found)[0].line == 1


def test_a_file_that_is_not_text_is_a_problem_of_its_own(tmp_path: Path) -> None:
    """A file that is not UTF-8 is reported where it stops being so, and the entries of other files are found."""
    found = manifests(tmp_path, one=ENTRY.format(name="OneFwdOp", family="toy"))
    (tmp_path / "toy" / "two.yaml").write_bytes("TwoFwdOp: {}\n# n\xe9e\n".encode("latin-1"))
    (tmp_path / "types.yaml").write_bytes(b"\xff\xfe")
    assert found.entry("OneFwdOp").name == "OneFwdOp"
    assert [str(problem) for problem in validate(found) if problem.rule == "encoding"] == [
        "manifests/toy/two.yaml:2:4: encoding: the byte 0xe9 is not UTF-8; save the file as UTF-8",
        "manifests/types.yaml:1:1: encoding: the byte 0xff is not UTF-8; save the file as UTF-8",
    ]


def test_a_key_that_is_not_seen_is_no_entry(tmp_path: Path) -> None:
    """An entry whose key is not plain is neither a name of the registry nor an entry of its family."""
    found = manifests(tmp_path, one='"OneFwdOp"' + ENTRY.format(name="", family="toy"))
    assert (found.names(), found.family("toy")) == ((), ())
    assert [problem.rule for problem in validate(found)] == ["key"]


def test_a_file_that_is_not_read_is_reported(tmp_path: Path) -> None:
    """A YAML file of another ending, or outside the folder of a family, is reported."""
    found = manifests(tmp_path)
    (tmp_path / "toy" / "one.yml").write_text(ENTRY.format(name="OneFwdOp", family="toy"))
    (tmp_path / "two.yaml").write_text(ENTRY.format(name="TwoFwdOp", family="toy"))
    (tmp_path / "toy" / "deeper").mkdir()
    (tmp_path / "toy" / "deeper" / "three.yaml").write_text("")
    assert [str(problem) for problem in validate(found)] == [
        f"manifests/{file}:1:1: file: no entry is read from this file; name it family/name.yaml"
        for file in ("toy/deeper/three.yaml", "toy/one.yml", "two.yaml")
    ]


@pytest.mark.parametrize("text", ["- a\n", "a\n", ""])
def test_types_are_a_mapping(tmp_path: Path, text: str) -> None:
    """A types.yaml that is no mapping is reported."""
    found = manifests(tmp_path)
    (tmp_path / "types.yaml").write_text(text)
    assert [str(problem) for problem in validate(found)] == [
        "manifests/types.yaml:1:1: structure: a file of types is a mapping from names to sum types"
    ]


def test_one_entry_is_validated_alone(tmp_path: Path) -> None:
    """Validating one op says nothing of the files that do not declare it."""
    found = manifests(tmp_path, one=ENTRY.format(name="OneFwdOp", family="toy"), two="TwoFwdOp: 3\n")
    assert [problem.rule for problem in validate(found, ["OneFwdOp"])] == ["no-rows"]
