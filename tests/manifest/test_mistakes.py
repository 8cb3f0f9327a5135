"""Seeded mistakes: the validator finds each, says where it stands and how to mend it, and lists all of them at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileops.manifest.registry import Registry
from tileops.manifest.validate import validate

MISTAKES = sorted(Path(__file__).with_name("mistakes").glob("*.yaml"))
"""Files whose first lines are comments with the problems to be found: line, column, rule, message."""


def problems(root: Path, **files: str) -> list[str]:
    """Return what the validator says of a folder with one family, `toy`, and these files."""
    folder = root / "toy"
    folder.mkdir()
    for stem, text in files.items():
        (folder / f"{stem}.yaml").write_text(text)
    return [str(problem) for problem in validate(Registry(root))]


@pytest.mark.parametrize("path", MISTAKES, ids=lambda path: path.stem)
def test_a_mistake_is_found(path: Path, tmp_path: Path) -> None:
    """The validator reports exactly the problems that the file's first lines state, at their positions."""
    text = path.read_text()
    expected = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    found = problems(tmp_path, **{path.stem: text})
    assert found == [f"manifests/toy/{path.stem}.yaml:{line}" for line in expected]


def test_an_op_declared_twice_is_found(tmp_path: Path) -> None:
    """An op that stands in two files is reported in the second, with the name of the first."""
    text = MISTAKES[0].with_name("no_rows.yaml").read_text().splitlines()
    entry = "\n".join(line for line in text if not line.startswith("#")) + "\n"
    found = problems(tmp_path, one=entry, two=entry)
    assert "manifests/toy/two.yaml:1:1: repeated-op: ToyFwdOp also stands in toy/one.yaml" in found


def test_a_shared_type_is_checked(tmp_path: Path) -> None:
    """A mistake in types.yaml is reported with its place there."""
    (tmp_path / "types.yaml").write_text("Layout:\n  sum:\n    packed: {fields: {rows: Dim}}\n")
    found = problems(tmp_path)
    assert found == ["manifests/types.yaml:3:5: missing-field: the field 'python' is missing"]


def test_a_mistake_of_a_shared_type_is_reported_once(tmp_path: Path) -> None:
    """However many entries there are, a wrong invariant and an unknown type are reported in types.yaml alone."""
    packed = "{python: a.B, fields: {rows: Dim, z: Foo}, invariant: rowz > 1}"
    text = f"Layout:\n  sum:\n    packed: {packed}\n"
    (tmp_path / "types.yaml").write_text(text)
    entry = MISTAKES[0].with_name("no_rows.yaml").read_text()
    found = problems(tmp_path, one=entry.replace("ToyFwdOp", "OneFwdOp"), two=entry.replace("ToyFwdOp", "TwoFwdOp"))
    assert [problem for problem in found if ": no-rows: " not in problem] == [
        "manifests/types.yaml:3:46: kind: unknown type Foo; declare it, or use a known type",
        "manifests/types.yaml:3:55: sum-type: unknown name 'rowz'; did you mean 'rows'?",
    ]
