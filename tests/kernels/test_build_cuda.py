"""CUDA programs: what is compiled when, and what a build that cannot be done says. No GPU is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.architecture.sources import ROOT
from tileops_kernels.build import cuda
from tileops_kernels.build.cuda import CUDABuilder, cross_compile, target_arch
from tileops_kernels.build.program import Program
from tileops_kernels.errors import BuildError

TOYS = "tests.kernels.programs.toys"
COPY = Program.of(TOYS, "cuda_copy", n=256, threads=32)

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TileLang's cache lies in a cache folder of the test."""
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILELANG_CACHE_DIR", raising=False)


def test_hopper_is_compiled_with_its_own_instructions() -> None:
    """Compute capability 90 becomes sm_90a; the others are named as they are."""
    assert [target_arch(arch) for arch in (80, 86, 89, 90, 100)] == ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100"]


@needs_nvcc
def test_a_program_met_again_compiles_nothing(tmp_path: Path) -> None:
    """Another process loads the program from the cache folder, host code and all, with no compiler on its path."""
    assert "__global__" in cross_compile(COPY, arch=90)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tilelang"]
    code = (
        "import os, sys; import tileops_kernels.build.lowering as lowering; lowering.import_tilelang(limit=9); "
        "import subprocess; subprocess.Popen = None; "
        "from tileops_kernels.build.cuda import CUDABuilder; from tileops_kernels.build.program import Program; "
        f"print(CUDABuilder().load(Program.of('{TOYS}', 'cuda_copy', n=256, threads=32), arch=90, owner='Toy'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, env=dict(os.environ)
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Function" in ran.stdout


def test_a_cold_program_is_refused_during_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a CUDA graph is captured nothing is built; the error says to make the call once before."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    with pytest.raises(BuildError) as caught:
        CUDABuilder().load(COPY, arch=90, owner="ToyKernel for n=256")

    assert str(caught.value) == (
        f"ToyKernel for n=256: {COPY}: the program is not built yet and a CUDA graph is being captured; expected a "
        "warmed-up call, received the first one; make the same call once before capturing"
    )
    assert not (tmp_path / "cache").exists()


def test_no_nvcc_names_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nvcc the error names the toolkit and the extra that brings it."""
    from tilelang.contrib import nvcc

    monkeypatch.setattr(nvcc, "get_nvcc_compiler", lambda: str(tmp_path / "nvcc"))
    program = Program.of(TOYS, "cuda_copy", n=512, threads=32)

    with pytest.raises(BuildError) as caught:
        cross_compile(program, arch=90, owner="ToyKernel")

    assert str(caught.value) == (
        f"ToyKernel: {program}: no nvcc found to compile for sm_90a; expected it under CUDA_HOME or on PATH, received "
        "none; install a CUDA toolkit, or pip install tileops-kernels[cuda]"
    )


@needs_nvcc
def test_a_failing_compile_says_what_nvcc_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names kernel type, program, nvcc's last lines and its command, on one line."""
    monkeypatch.setattr(cuda, "target_arch", lambda arch: f"sm_{arch}")

    with pytest.raises(BuildError) as caught:
        cross_compile(COPY, arch=12, owner="ToyKernel")

    message = str(caught.value)
    assert message.startswith(f"ToyKernel: {COPY}: compiling for sm_12 failed: RuntimeError: ")
    assert "Unsupported gpu architecture 'sm_12'" in message
    assert "Command: " in message
    assert "\n" not in message
    assert message.endswith(
        "; expected nvcc and TileLang to accept the program; check that nvcc knows the architecture and that tilelang "
        "is a version this package names"
    )
