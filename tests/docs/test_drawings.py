"""Drawings name files that exist, and take their colours from the site's style sheet."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.docs.pages import ROOT

DRAWINGS = sorted((ROOT / "docs" / "drawings").glob("*.svg"))
STYLES = (ROOT / "docs" / "_static" / "site.css").read_text()


def parts(drawing: Path) -> list[ET.Element]:
    """Return every element of a drawing."""
    return list(ET.fromstring(drawing.read_text()).iter())  # noqa: S314 - a file of this repository


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.stem)
def test_every_file_that_a_drawing_names_is_there(drawing: Path) -> None:
    """A module is named by its path within its package, another file by that from the root."""
    folders = [ROOT, *(ROOT / "packages").glob("*/src/*")]
    named = {part.text or "" for part in parts(drawing) if part.get("class") == "module"}
    assert named
    assert {name for name in named if not any((folder / name).is_file() for folder in folders)} == set()


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_is_styled_by_the_site_alone(drawing: Path) -> None:
    """Every class has a rule and no element states a colour, so the drawing follows the light or dark theme."""
    classes = {name for part in parts(drawing) for name in part.get("class", "").split()}
    assert {name for name in classes if f"svg.drawing .{name}" not in STYLES} == {"drawing"}
    assert [part.tag for part in parts(drawing) if part.get("fill") or part.get("stroke") or part.get("style")] == []


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_says_in_words_what_it_shows(drawing: Path) -> None:
    """A reader who does not see it is told."""
    titles = [part.text for part in parts(drawing) if part.tag.endswith("}title")]
    assert len(titles) == 1
    assert titles[0]
