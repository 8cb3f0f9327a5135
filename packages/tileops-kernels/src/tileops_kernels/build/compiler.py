"""The host's C++ compiler: which one it is, its flags, and running it within a time limit."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tileops_kernels.errors import BuildError

FLAGS = (
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-fopenmp",
    "-Wl,--no-undefined",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fno-tree-loop-distribute-patterns",
    "-D__FAST_MATH__=1",
    "-march=native" if platform.machine() == "x86_64" else "-mcpu=native",
)
"""IEEE semantics stay: NaN, infinities, signed zeros and denormals.

The macro (not the option -ffast-math, which drops NaN and flushes denormals for the whole thread) makes glibc declare
its vector functions; aliasing is not strict because generated code reads float32 bits through integer pointers. Copies
of a block stay loops: with calls of memcpy in their place BatchNorm of float32 took 1.3 to 1.8 times as long.
"""

CANDIDATES = ("g++", "c++", "clang++")
LAST_LINES = 6
VERSION_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler: the command, and what it says of its version."""

    command: tuple[str, ...]
    version: str


def find_compiler(owner: str) -> Compiler:
    """The compiler that `CXX` names, else the first of g++, c++ and clang++ on the path.

    Raises BuildError for `owner` when there is none.
    """
    stated = os.environ.get("CXX", "").strip()
    try:
        return _find(stated, os.environ.get("PATH", ""))
    except _NoCompilerError as error:
        expected = f"CXX={' '.join(stated.split())}" if stated else f"one of {', '.join(CANDIDATES)}"
        raise BuildError(
            f"{owner}: no C++ compiler to build with; expected {expected} on PATH, received {error}; install one "
            "(Debian and Ubuntu: apt install g++), or set CXX to a working one"
        ) from error


@cache
def cpu_identity() -> str:
    """The machine and a digest of its instruction set, as Linux reports it for the first processor."""
    features = ""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                features = " ".join(sorted(value.split()))
                break
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()}"


def require_platform(owner: str) -> None:
    """Raise BuildError for `owner` on a platform that CPU programs are not built for."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise BuildError(
            f"{owner}: CPU programs are built on Linux x86-64 and aarch64; received {sys.platform} "
            f"{platform.machine()}; run on one of those"
        )


def run_compiler(command: Sequence[str], *, owner: str, limit: float) -> None:
    """Run `command` to its end; raises BuildError for `owner` when it fails or takes more than `limit` seconds."""
    shown = shlex.join(command)
    try:
        process = subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise BuildError(
            f"{owner}: the C++ compiler could not be started: {error}; command: {shown}; set CXX to a working compiler"
        ) from error
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"{owner}: the C++ compiler ran for more than {limit:g} s and was stopped; command: {shown}; "
            "retry on a less busy machine, or set CXX to another compiler"
        ) from error
    finally:
        if process.returncode is None:
            _stop(process)
    if process.returncode != 0:
        raise BuildError(
            f"{owner}: the C++ compiler failed with exit code {process.returncode}: "
            f"{last_lines(output.decode(errors='replace'))}; command: {shown}; set CXX to a working compiler"
        )


def version_lines(command: Sequence[str]) -> list[str]:
    """What a compiler says of its version. Raises OSError or subprocess.SubprocessError where it cannot be run."""
    ran = subprocess.run(  # noqa: S603
        [*command, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=VERSION_SECONDS, check=True
    )
    return ran.stdout.decode(errors="replace").splitlines() or [""]


def last_lines(output: str) -> str:
    """The last lines of a command's output, on one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-LAST_LINES:]) or "no output"


class _NoCompilerError(Exception):
    """There is no compiler; the message says what there is instead."""


@cache
def _find(stated: str, path: str) -> Compiler:
    """The compiler, kept for this process; that there is none is not kept, so that the next call looks again."""
    try:
        command = tuple(shlex.split(stated))
    except ValueError as error:
        raise _NoCompilerError(f"a CXX that is no command line: {error}") from error
    for name in command[:1] if stated else CANDIDATES:
        if (found := shutil.which(name, path=path)) is not None:
            return _identified((found, *command[1:]))
    raise _NoCompilerError("none")


def _identified(command: tuple[str, ...]) -> Compiler:
    """The compiler with the first line that it says of its version."""
    try:
        version = version_lines(command)[0]
    except (OSError, subprocess.SubprocessError) as error:
        raise _NoCompilerError(f"one that does not tell its version: {error}") from error
    return Compiler(command, f"{Path(command[0]).resolve()} {version}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Kill the compiler and what it started (it leads a session of its own)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
