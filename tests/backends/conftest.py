"""Installing the backends beside the environment, and running programs in processes that see them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = {"plain_torch": ROOT / "docs/examples/backend"}
"""Backends that are no test's own; the others lie here under their names."""
Run: TypeAlias = Callable[..., list[str]]
"""Runs a program with the named backends installed and returns the lines that it prints."""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the folder where a backend's distribution is installed, alone; installs it on the first request."""
    folder, done = tmp_path_factory.mktemp("backends"), set()

    def install(name: str) -> Path:
        target = folder / name
        if name not in done:
            command = ["pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
            options = [
                "--no-build-isolation",
                "--no-compile",
                "--target",
                str(target),
                str(EXAMPLES.get(name, HERE / name)),
            ]
            subprocess.run([sys.executable, "-m", *command, *options], check=True, capture_output=True)
            done.add(name)
        return target

    return install


@pytest.fixture
def run(installed: Callable[[str], Path]) -> Run:
    """Runs a program in a process of its own, which sees the named backends and no other test's."""

    def run_with(program: str, *backends: str) -> list[str]:
        folders = [str(installed(name)) for name in backends]
        path = os.pathsep.join([*folders, str(ROOT)])
        result = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    return run_with
