"""The validator on damaged manifests: whatever stands in them, it reports problems and never fails itself."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileops.manifest import registry
from tileops.manifest.document import Document, Plain
from tileops.manifest.parse import parse_text
from tileops.manifest.validate import validate_entry

ROOT = Path(__file__).resolve().parents[2] / "manifests"
TEXTS = {file.stem: file.read_text() for file in sorted(ROOT.glob("*/*.yaml"))}
ENTRIES: dict[str, Plain] = {}
for _text in TEXTS.values():
    _value = Document(_text, "").value
    assert isinstance(_value, dict)
    ENTRIES |= _value
Place = tuple[str | int, ...]


def leaves(value: Plain, path: Place = ()) -> list[Place]:
    """Return the path of every value inside a value."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += leaves(inner, (*path, key))
    if isinstance(value, list):
        for place, item in enumerate(value):
            found += leaves(item, (*path, place))
    return found


def parts(value: Plain) -> list[Plain]:
    """Return every value inside a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(part for item in inner for part in parts(item))]


WORDS = ("", "x", "T", "[N]", "[*S]", "present(x)", "N + 1")
OTHERS: tuple[Plain, ...] = (None, True, False, 0, -1, 3, 1.5, [], {}, [1], {"a": 1}, *WORDS)
KNOWN = [part for entry in ENTRIES.values() for part in parts(entry) if not isinstance(part, dict)]
JUNK: st.SearchStrategy[Plain] = st.sampled_from(OTHERS) | st.sampled_from(KNOWN) | st.text(max_size=8)


MARKS = st.lists(st.sampled_from(list("ab:-[]{},\n&*!|>'\"#1. "))).map(" ".join)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Return the text of one entry of the manifest in which some values are removed or replaced."""
    name = draw(st.sampled_from(sorted(ENTRIES)))
    entry = copy.deepcopy(ENTRIES[name])
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(leaves(entry)))
        holder: Any = entry
        for step in path[:-1]:
            holder = holder[step]
        if isinstance(holder, dict) and draw(st.booleans()):
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(draw(JUNK))
        if not leaves(entry):
            break
    return json.dumps({name: entry})


@settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(damaged())
def test_a_damaged_entry_is_reported_or_still_right(text: str) -> None:
    """A damaged entry gives problems with places, or is still an entry; nothing raises."""
    reading = parse_text(text, "damaged.yaml", registry.default().sums[0])
    problems = list(reading.problems)
    for entry in reading.drafts.values():
        problems += validate_entry(entry)
    assert all(problem.line >= 1 and problem.column >= 1 and problem.message for problem in problems)


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=60) | MARKS)
def test_any_text_is_read_or_reported(text: str) -> None:
    """Whatever the text, reading it as a manifest gives entries and problems, and raises nothing."""
    parse_text(text, "any.yaml")


@pytest.mark.parametrize(
    "text", ["[" * 3000, "{a: " * 3000, "9" * 5000, "a: 1e99999", "\ufeffa: 1", "a: \ud800", "0x" + "f" * 5000]
)
def test_extreme_texts_are_read_or_reported(text: str) -> None:
    """Deep nesting, long numbers and strange characters are values or problems."""
    reading = parse_text(text, "extreme.yaml")
    assert reading.entries == {}
    assert reading.problems
