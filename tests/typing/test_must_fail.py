"""The type checker refuses what the interfaces forbid: each marked line of must_fail/, and no other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = sorted((Path(__file__).parent / "must_fail").glob("*.py"))
MARK = re.compile(r"# error: ([a-z-]+)$")

Finding = tuple[str, int, str]


def marked() -> set[Finding]:
    """Return file, line and code of each error that a snippet says it holds."""
    return {
        (snippet.name, number, match[1])
        for snippet in SNIPPETS
        for number, line in enumerate(snippet.read_text().splitlines(), start=1)
        if (match := MARK.search(line))
    }


@pytest.fixture(scope="module")
def found() -> set[Finding]:
    """File, line and code of each error that mypy reports on the snippets."""
    command = [sys.executable, "-m", "mypy", "--output", "json", *map(str, SNIPPETS)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert result.stderr == ""
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    return {
        (Path(report["file"]).name, report["line"], report["code"])
        for report in reports
        if report["severity"] == "error"
    }


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.stem)
def test_mypy_refuses_each_marked_line(found: set[Finding], snippet: Path) -> None:
    """Each marked line gives the marked error, and no unmarked line gives one."""
    expected = {finding for finding in marked() if finding[0] == snippet.name}
    assert expected != set()
    assert {finding for finding in found if finding[0] == snippet.name} == expected
