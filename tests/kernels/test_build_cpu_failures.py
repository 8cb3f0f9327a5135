"""What goes wrong when a CPU program is compiled: each mistake has one error, and nothing half built is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tileops_kernels.build import compiler
from tileops_kernels.build.cache import CacheFolder
from tileops_kernels.build.compiler import Compiler, run_compiler
from tileops_kernels.build.cpu import CPUBuilder
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.errors import BuildError

TOYS = "tests.kernels.programs.toys"
ADD = Program.of(TOYS, "add_constant", n=8)


@pytest.fixture
def empty(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "cache")


def added(run: CPUFunction, x: Tensor) -> Tensor:
    """X + 1 by the toy program."""
    y = torch.full_like(x, torch.nan)
    run(x.data_ptr(), y.data_ptr(), 1)
    return y


def files(folder: CacheFolder) -> list[str]:
    return sorted(path.suffix for path in (folder.root / "cpu").iterdir())


def test_a_failing_compile_says_so_and_leaves_nothing(empty: CacheFolder) -> None:
    """The error names kernel type, program, command and last lines; no file stays, and the next build works."""
    builder = CPUBuilder(lambda: empty)
    program = Program.of(TOYS, "unknown_function", n=4)

    with pytest.raises(BuildError) as caught:
        builder.load(program, owner="ToyKernel for n=4")

    message = str(caught.value)
    assert message.startswith(f"ToyKernel for n=4: {program}: the C++ compiler failed with exit code 1: ")
    assert "not_a_function" in message
    assert "; command: " in message
    assert "-march=native" in message or "-mcpu=native" in message
    assert message.endswith("; set CXX to a working compiler")
    assert "\n" not in message
    assert files(empty) == []
    assert added(builder.load(ADD, owner="Toy"), torch.zeros(8)).tolist() == [1.0] * 8


def script(path: Path, text: str) -> str:
    """An executable shell script, for CXX."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_compile_beyond_its_limit_is_stopped(
    empty: CacheFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that takes too long is stopped with what it started, and the error names the limit."""
    pid = tmp_path / "pid"
    slow = script(tmp_path / "slow", f'[ "$1" = --version ] && echo slow 1 && exit\nsleep 60 & echo $! > {pid}; wait')
    monkeypatch.setenv("CXX", slow)

    with pytest.raises(BuildError) as caught:
        CPUBuilder(lambda: empty, limit=0.5).load(ADD, owner="Toy")

    message = str(caught.value)
    assert message.startswith(
        f"Toy: {ADD}: the C++ compiler ran for more than 0.5 s and was stopped; command: {slow} -O3"
    )
    assert message.endswith("; retry on a less busy machine, or set CXX to another compiler")
    assert files(empty) == []
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_no_compiler_is_named(empty: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler the error says what was looked for and how to get one."""
    monkeypatch.setenv("CXX", "absent++ -x")
    with pytest.raises(BuildError) as stated:
        CPUBuilder(lambda: empty).load(ADD, owner="Toy")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError) as searched:
        CPUBuilder(lambda: empty).load(ADD, owner="Toy")

    rest = "; install one (Debian and Ubuntu: apt install g++), or set CXX to a working one"
    head = f"Toy: {ADD}: no C++ compiler to build with; expected "
    assert str(stated.value) == f"{head}CXX=absent++ -x on PATH, received none{rest}"
    assert str(searched.value) == f"{head}one of g++, c++, clang++ on PATH, received none{rest}"


def test_a_compiler_that_does_not_run_is_named(
    empty: CacheFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that cannot tell its version is refused before anything is built with it."""
    monkeypatch.setenv("CXX", script(tmp_path / "broken", "exit 7"))

    with pytest.raises(
        BuildError, match=r"received one that does not tell its version: .* exit status 7\.; install one"
    ):
        CPUBuilder(lambda: empty).load(ADD, owner="Toy")


def test_a_compiler_that_is_gone_is_named() -> None:
    """One that was found and does not start any more is an error with its command."""
    with pytest.raises(BuildError) as caught:
        run_compiler(["/absent/g++", "-x c"], owner="Toy", limit=1.0)

    assert str(caught.value) == (
        "Toy: the C++ compiler could not be started: [Errno 2] No such file or directory: '/absent/g++'; command: "
        "/absent/g++ '-x c'; set CXX to a working compiler"
    )


FAKE = '[ "$1" = --version ] && echo fake && exit 0\n'
OUTPUT = 'while [ "$1" != -o ]; do shift; done; '


@pytest.mark.parametrize("output", ["echo text >", "mkdir", "mkfifo", "ln -s /dev/null", ": >", "true"])
def test_a_compiler_that_writes_no_library(
    empty: CacheFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    """What a compiler wrote is loaded before it is stored; when it cannot be, the error says so and nothing stays."""
    fake = script(tmp_path / "fake", f'{FAKE}{OUTPUT}{output} "$2"')
    monkeypatch.setenv("CXX", fake)
    builder = CPUBuilder(lambda: empty)

    with pytest.raises(BuildError) as caught:
        builder.load(ADD, owner="Toy")

    message = str(caught.value)
    if output.endswith(">"):
        assert message.startswith(f"Toy: {ADD}: the compiled library cannot be loaded: {empty.root}")
        assert message.endswith(
            "; set TILEOPS_CACHE_DIR to a folder from which libraries may be loaded, install the OpenMP runtime of the "
            "compiler, or set CXX to a working compiler"
        )
    else:
        assert message.startswith(
            f"Toy: {ADD}: the C++ compiler reported success without a library; expected the file that -o names, "
            f"received none; command: {fake} -O3"
        )
        assert message.endswith("; set CXX to a working compiler")
    assert files(empty) == []


def test_a_library_without_the_entry_point_is_not_stored(
    empty: CacheFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that loads and lacks the function to call is an error, not an entry."""
    hollow = script(tmp_path / "hollow", f'{FAKE}{OUTPUT}echo | g++ -shared -x c++ - -o "$2"')
    monkeypatch.setenv("CXX", hollow)

    with pytest.raises(
        BuildError, match=r"the compiled library cannot be loaded: .*undefined symbol: tileops_function"
    ):
        CPUBuilder(lambda: empty).load(ADD, owner="Toy")

    assert files(empty) == []


def test_a_cxx_that_is_no_command_line(empty: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CXX with an open quotation is an error that shows it, on one line."""
    monkeypatch.setenv("CXX", 'g++\n "x')

    with pytest.raises(BuildError) as caught:
        CPUBuilder(lambda: empty).load(ADD, owner="Toy")

    assert str(caught.value) == (
        f'Toy: {ADD}: no C++ compiler to build with; expected CXX=g++ "x on PATH, received a CXX that is no command '
        "line: No closing quotation; install one (Debian and Ubuntu: apt install g++), or set CXX to a working one"
    )


def test_a_blank_cxx_states_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CXX of spaces is the same as none."""
    monkeypatch.delenv("CXX", raising=False)
    found = compiler.find_compiler("Toy")
    monkeypatch.setenv("CXX", "  ")

    assert compiler.find_compiler("Toy") == found


def test_a_version_in_another_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler may say its version in any bytes."""
    other = script(tmp_path / "other", "printf '\\377 x\\nmore'")
    monkeypatch.setenv("CXX", other)

    assert compiler.find_compiler("Toy") == Compiler((other,), f"{other} \N{REPLACEMENT CHARACTER} x")


def test_a_compiler_that_comes_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That there was no compiler, or one that did not answer in time, is forgotten; what was found is kept."""
    path = tmp_path / "late"
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setattr(compiler, "VERSION_SECONDS", 0.2)
    with pytest.raises(BuildError, match="received none; install one"):
        compiler.find_compiler("Toy")
    script(path, "exec sleep 60")
    with pytest.raises(BuildError, match=r"received one that does not tell its version: .* timed out after 0\.2 sec"):
        compiler.find_compiler("Toy")
    monkeypatch.setattr(compiler, "VERSION_SECONDS", 60.0)
    script(path, "echo late 1")

    found = compiler.find_compiler("Toy")

    assert found == Compiler((str(path),), f"{path} late 1")
    script(path, "echo late 2")
    assert compiler.find_compiler("Toy") is found


def test_a_folder_that_fills_up_is_named(empty: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a library cannot be written to the cache folder, the error says so and how to mend it."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(empty.__class__, "store", full)

    with pytest.raises(BuildError) as caught:
        CPUBuilder(lambda: empty).load(ADD, owner="Toy")

    assert str(caught.value) == (
        f"Toy: {ADD}: the compiled library could not be kept in the cache folder: [Errno 28] No space left on device; "
        "expected a folder with room for it; free some space, or set TILEOPS_CACHE_DIR to another folder"
    )
    assert files(empty) == []
