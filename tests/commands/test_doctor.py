"""`python -m tileops doctor`: what it finds, and each problem with what to do about it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from tileops.__main__ import main
from tileops.backend import BackendRegistry, Discovery
from tileops.commands import doctor
from tileops.version import __version__
from tileops_kernels.kernel import Kernel

Section = dict[str, str]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, which is not there yet."""
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def section(name: str, backends: Discovery | None = None) -> Section:
    """Return one section of what doctor finds."""
    found = doctor.examine() if backends is None else doctor.examine(backends)
    return dict(found.sections[name])


def test_the_page_has_every_section(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints versions, devices, compilers, backends, the cache and the environment, and status 0."""
    assert main(["doctor"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles == ["versions", "devices", "compilers", "backends", "cache", "environment", "no problem found"]
    assert f"  tileops          {__version__}" in lines
    assert str(cache) in "".join(line.strip() for line in lines)  # a long path is folded


def test_a_package_that_is_missing_is_said_to_be(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is not installed has a line too."""
    monkeypatch.setattr(doctor, "PACKAGES", ("tileops", "no-such-package"))
    versions = section("versions")
    assert versions["no-such-package"] == "not installed"
    assert versions["tileops"] == __version__


def test_the_cache_is_measured(cache: Path) -> None:
    """Each subfolder's files are counted with their bytes; a folder that is not there yet is said to be."""
    assert section("cache") == {"folder": f"{cache}, which the first compiled program makes"}
    cache.mkdir(mode=0o700)
    assert section("cache") == {"folder": str(cache), "holds": "nothing"}
    inner = cache / "cpu" / "deep"
    inner.mkdir(mode=0o700, parents=True)
    (inner / "a.so").write_bytes(b"x" * 2_000_000)
    (cache / "cpu" / "b.json").write_bytes(b"y" * 500_000)
    (cache / "cpu").chmod(0o700)
    assert section("cache") == {"folder": str(cache), "cpu": "2 files, 2.5 MB"}


def test_a_cache_that_others_can_write_is_a_problem(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with status 1 and the error that a call would raise."""
    (cache / "cpu").mkdir(parents=True)
    cache.chmod(0o700)
    (cache / "cpu").chmod(0o777)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "\nproblems\n" in printed
    assert f"cache folder {cache}/cpu: it holds code that gets executed and can be written by group and" in printed


PROBLEM = (
    "cache folder {root}: expected one that can be written, received {place}; make it so, or set TILEOPS_CACHE_DIR to "
    "another: every process compiles anew until then"
)


@pytest.mark.parametrize("name", ["", "cpu", "tilelang", "tuned"])
def test_a_file_in_the_place_of_the_cache_is_a_problem(name: str, cache: Path) -> None:
    """A file where the folder or one of its subfolders belongs is named with what to do."""
    place = cache / name
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.write_text("in the way")
    found = doctor.examine()
    assert found.problems == [PROBLEM.format(root=cache, place=f"{place} is no folder")]
    assert found.sections["cache"][0] == ("folder", str(cache) if name else unusable(cache))


def test_a_file_above_the_cache_is_a_problem(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing folder cannot be made in a file."""
    root = cache / "deep" / "cache"
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(root))
    cache.write_text("in the way")
    assert doctor.examine().problems == [PROBLEM.format(root=root, place=f"{cache} is no folder")]
    assert section("cache") == {"folder": f"{root}, which cannot be used"}


def unusable(root: Path) -> str:
    """Return what the section says of a folder that is not there and cannot be made."""
    return f"{root}, which cannot be used"


def test_a_cache_that_cannot_be_written_is_a_problem(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is read-only for this user, or one above a missing one, is named with what to do; nothing is made.

    A superuser may write everywhere, so the answer of the system is stated.
    """
    refused = cache.parent
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != refused)
    found = doctor.examine()
    user = f"cannot be written by user {os.geteuid()}"
    assert found.problems == [PROBLEM.format(root=cache, place=f"{refused} {user}")]
    assert found.sections["cache"] == [("folder", unusable(cache))]
    assert not cache.exists()
    cache.mkdir(mode=0o700)
    refused = cache
    assert doctor.examine().problems == [PROBLEM.format(root=cache, place=f"{refused} {user}")]
    refused = cache / "cpu"
    refused.mkdir(mode=0o700)
    assert doctor.examine().problems == [PROBLEM.format(root=cache, place=f"{refused} {user}")]
    assert section("cache") == {"folder": str(cache), "cpu": "0 files, 0.0 MB"}


def test_a_missing_compiler_is_a_problem(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a C++ compiler the problem says which was looked for; without nvcc only a CUDA device makes it one."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(doctor, "find_nvcc", lambda: None)
    found = doctor.examine()
    compilers = dict(found.sections["compilers"])
    assert compilers["C++"] == "none that CPU programs can be built with"
    assert compilers["nvcc"] == "none: CUDA programs are not compiled here"
    assert [problem.partition(";")[0] for problem in found.problems] == ["doctor: no C++ compiler to build with"]
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(doctor, "_devices", lambda: iter(()))
    (problem,) = doctor.examine().problems
    assert problem == (
        "nvcc: expected it under CUDA_HOME or on PATH, since there is a CUDA device, received none; install a CUDA "
        'toolkit, or pip install "tileops[cuda]"'
    )


def test_nvcc_is_shown_with_its_release(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of nvcc's version that names the release is shown; one that does not run is a problem."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'nvcc: NVIDIA (R) Cuda compiler driver'\necho 'tools, release 13.0, V13.0.88'\n")
    nvcc.chmod(0o700)
    monkeypatch.setattr(doctor, "find_nvcc", lambda: nvcc)
    assert section("compilers")["nvcc"] == f"{nvcc} tools, release 13.0, V13.0.88"
    nvcc.write_text("#!/bin/sh\nexit 3\n")
    found = doctor.examine()
    assert dict(found.sections["compilers"])["nvcc"] == f"{nvcc}, which does not run"
    (problem,) = found.problems
    assert problem.startswith(f"nvcc: expected {nvcc} to tell its version, received Command")
    assert problem.endswith("returned non-zero exit status 3.; mend the CUDA toolkit")
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([str(nvcc)], check=True)


def discovery(*loads: tuple[str, Callable[[BackendRegistry], None]]) -> Discovery:
    """Return a discovery whose entry points run these functions."""
    registry = BackendRegistry(lambda: ("AddFwdOp", "MulFwdOp"))

    class Point:
        def __init__(self, name: str, load: Callable[[BackendRegistry], None]) -> None:
            self.name, self.value, self.module, self.attr, self.dist = name, name, f"no.{name}", "register", None
            self._load = load

        def load(self) -> Callable[[BackendRegistry], None]:
            return self._load

    points: list[EntryPoint] = [Point(*each) for each in loads]  # type: ignore[misc]
    return Discovery(registry, lambda: points)


def acme(registry: BackendRegistry) -> None:
    """Register a target that serves two ops, its detector, and a kernel type."""
    registry.register_detector("acme", lambda _: False)
    for op in ("AddFwdOp", "MulFwdOp"):
        registry.register_kernel_builder(op, "acme", lambda *_, **__: lambda *tensors: None)
    registry.register_kernel_type("AddFwdOp", "fast_add", Kernel)


def broken(registry: BackendRegistry) -> None:
    """Fail to load."""
    raise ImportError("no acme\ndriver")


def test_backends_are_listed_with_who_brought_them(cache: Path) -> None:
    """A line per kind of registration: builders of one target are counted together."""
    found = doctor.examine(discovery(("acme", acme)))
    assert found.sections["backends"] == [
        ("acme", "detector of target acme"),
        ("acme", "kernel type fast_add of AddFwdOp"),
        ("acme", "target acme, builders of ops: 2"),
    ]
    assert found.problems == []


def test_a_backend_that_fails_to_load_is_a_problem(cache: Path) -> None:
    """The failure stands among the problems, on one line, and no warning is given beside."""
    found = doctor.examine(discovery(("acme", acme), ("broken", broken)))
    assert found.problems == [
        "backend broken (broken): ImportError: no acme driver; mend or uninstall the distribution"
    ]
    assert len(found.sections["backends"]) == 3


def test_variables_that_matter_are_shown(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment sets is listed by name."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert section("environment")["OMP_NUM_THREADS"] == "2"
    assert section("environment")["TILEOPS_CACHE_DIR"] == str(cache)


def test_a_cuda_device_is_described(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each CUDA device has its name, architecture, multiprocessors and shared memory."""
    from tileops_kernels.devices import STATED_FACTS, DeviceFacts, device_facts

    def facts(device: torch.device) -> DeviceFacts:
        return STATED_FACTS[90] if device.type == "cuda" else device_facts(device)

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert section("devices")["cuda"] == "torch is built for CUDA 13.0 and finds no device"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(doctor, "device_name", lambda device: f"H200 number {device.index}")
    monkeypatch.setattr(doctor, "device_facts", facts)
    described = "H200 number 0, sm90, 132 multiprocessors, 232448 bytes of shared memory for a block"
    assert section("devices")["cuda:0"] == described
