"""Tables of the performance pages hold what the committed results say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.docs.pages import ROOT

PAGES = sorted((ROOT / "docs" / "performance").glob("*.md"))
RESULTS = [json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "data").glob("*.json"))]
MEASURED = {"case": ("case", "MB", "µs", "of a copy", "best peer, µs"), "row": ("row", "µs", "torch, µs")}
"""The headings that a table of measured cases begins with, by the first of them."""


def tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield the headings and the rows of each table."""
    found: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
        elif found:
            yield found[0], found[2:]
            found = []


def rows(page: str) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a page's tables of measured cases, by heading."""
    for headings, found in tables(page):
        if any(tuple(headings[: len(measured)]) == measured for measured in MEASURED.values()):
            yield from (dict(zip(headings, row, strict=True)) for row in found)


def results_of(row: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Return the committed results of a row's case: those of its op, whichever file they are in."""
    op, _, case = row.get("case", row.get("row", "")).partition(" ")
    names = {f"{op}{ending}" for ending in ("FwdOp", "BwdOp", "Op")}
    case = case.partition(",")[0]
    return [
        found
        for content in RESULTS
        for found in content.get("results", ())
        if found["op"] in names and found.get("case") == case
    ]


def agrees(row: Mapping[str, str], found: Mapping[str, Any]) -> bool:
    """Whether a row repeats what one result holds."""
    if "pairs" in found:
        numbers = [found["tileops_seconds"] * 1e6, found["torch_seconds"] * 1e6, found["ratio_of_best"]]
        numbers.append(found["ratio_median"])
        return "median of pairs" in row and close(list(row.values())[1:], numbers)
    own, *_ = [one for one in found.get("measurements", ()) if one["name"] == "tileops"] or [None]
    if own is None:
        return False
    peers = {one["name"].lower(): one["seconds"] * 1e6 for one in found["measurements"]}
    if "torch, µs" in row:
        torch = peers.get("torch", peers.get("eager", 0.0))
        return close([row["µs"], row["torch, µs"]], [own["seconds"] * 1e6, torch])
    peer, _, seconds = row["best peer, µs"].rpartition(" ")
    numbers = [found["traffic_bytes"] / 1e6, own["seconds"] * 1e6, own["share_of_copy"]]
    listed = [row["MB"], row["µs"], row["of a copy"]]
    return close(listed, numbers) and (not peer or close([seconds], [peers[peer.lower()]]))


def close(texts: Sequence[str], numbers: Sequence[float]) -> bool:
    """Whether each text is its number, rounded to the places that it has or to three digits."""
    return all(_is(text, number) for text, number in zip(texts, numbers, strict=True))


def _is(text: str, number: float) -> bool:
    places = len(text.partition(".")[2])
    return abs(float(text) - number) <= 0.51 * 10.0**-places + 0.0005 * number


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_measured_case_repeats_a_committed_result(page: Any) -> None:
    """Time, traffic, share of a copy and the fastest peer are those of one file of results."""
    wrong = [row for row in rows(page.read_text()) if not any(agrees(row, found) for found in results_of(row))]
    assert wrong == []


def test_there_are_tables_to_check() -> None:
    """The headings by which they are found are those of the pages."""
    assert sum(len(list(rows(page.read_text()))) for page in PAGES) > 300
