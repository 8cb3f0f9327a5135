"""The commands of noxfile.py: which there are, what each says of itself, and that none installs by nox's own means."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

SESSIONS = {
    "quickstart",
    "tests",
    "lint",
    "typecheck",
    "validate",
    "eager",
    "compile_contract",
    "cuda_graph",
    "cross_compile",
    "dist",
    "docs",
    "bench",
}


def test_every_command_says_what_it_does() -> None:
    """`nox -l` lists every session with a one-line description."""
    command = [sys.executable, "-m", "nox", "--list"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    listed = dict(re.findall(r"^[-*] (\w+) -> (\S.*)$", result.stdout, re.MULTILINE))
    assert listed.keys() == SESSIONS


def test_no_session_installs_by_itself() -> None:
    """`session.install` fails under --no-venv, so that no session calls it."""
    assert "session.install" not in (ROOT / "noxfile.py").read_text()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("lint", "--", "--fast"), "lint: expected no argument but --fix, received --fast; leave them out"),
        (("typecheck", "--", "noxfile.py"), "typecheck: expected no arguments, received noxfile.py; leave them out"),
        (("quickstart", "--", "SumFwdOp"), "quickstart: expected no arguments, received SumFwdOp; leave them out"),
    ],
)
def test_arguments_that_a_command_does_not_take_are_refused(command: tuple[str, ...], message: str) -> None:
    """A session without arguments ends before it runs anything, with what it was given."""
    result = subprocess.run(
        [sys.executable, "-m", "nox", "--no-venv", "-s", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert message in result.stderr
