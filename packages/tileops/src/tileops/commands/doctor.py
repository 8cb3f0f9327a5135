"""`python -m tileops doctor`: what an installation consists of, where it runs, and what is wrong with it."""

from __future__ import annotations

import os
import platform
import subprocess
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata

import torch
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tileops.backend.discovery import Discovery
from tileops.backend.process import PROCESS
from tileops.errors import BackendLoadWarning
from tileops_kernels import tuning
from tileops_kernels.build import cpu, lowering
from tileops_kernels.build.cache import ENVIRONMENT_VARIABLE, cache_folder
from tileops_kernels.build.compiler import find_compiler, require_platform, version_lines
from tileops_kernels.build.cuda import find_nvcc
from tileops_kernels.devices import device_facts, device_name
from tileops_kernels.errors import BuildError, CacheError

PACKAGES = ("tileops", "tileops-kernels", "tileops-testing", "torch", "tilelang", "triton", "apache-tvm-ffi")
ENVIRONMENT = (
    ENVIRONMENT_VARIABLE,
    "TILELANG_CACHE_DIR",
    "CXX",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)
"""Variables that change what is found or where it is kept."""

Lines = Sequence[tuple[str, str]]


@dataclass(slots=True)
class Findings:
    """Facts by section, each under a name; and what is wrong, a line each that says what to do."""

    sections: dict[str, Lines] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def examine(backends: Discovery = PROCESS) -> Findings:
    """Look at the installation: nothing is compiled, and nothing is written."""
    found = Findings()
    found.sections["versions"] = list(_versions())
    found.sections["devices"] = list(_devices())
    found.sections["compilers"] = list(_compilers(found.problems))
    found.sections["backends"] = list(_backends(backends, found.problems))
    found.sections["cache"] = list(_cache(found.problems))
    found.sections["environment"] = [(name, os.environ[name]) for name in ENVIRONMENT if name in os.environ]
    return found


def render(found: Findings) -> Iterator[RenderableType]:
    """The page that `doctor` prints, line by line; a table is one part."""
    for title, lines in found.sections.items():
        shown = Table(box=None, show_header=False, pad_edge=False)
        shown.add_column(no_wrap=True)
        shown.add_column(overflow="fold")
        for name, text in lines:
            shown.add_row(Text(f"  {name}"), Text(text))
        yield Text(title, style="bold")
        yield shown if lines else Text("  nothing")
        yield Text("")
    yield Text("problems" if found.problems else "no problem found", style="bold")
    yield from (Text(f"  {problem}") for problem in found.problems)


def _versions() -> Iterator[tuple[str, str]]:
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()}, {platform.platform()})"
    installed = {distribution.name for distribution in metadata.distributions()}
    for name in PACKAGES:
        yield name, metadata.version(name) if name in installed else "not installed"


def _devices() -> Iterator[tuple[str, str]]:
    yield "cpu", f"{platform.machine()}, {device_facts(torch.device('cpu')).sm_count} threads"
    if torch.version.cuda is None:
        yield "cuda", "torch is built without CUDA"
        return
    if not torch.cuda.device_count():
        yield "cuda", f"torch is built for CUDA {torch.version.cuda} and finds no device"
    for index in range(torch.cuda.device_count()):
        facts = device_facts(torch.device("cuda", index))
        what = f"{facts.sm_count} multiprocessors, {facts.smem_budget} bytes of shared memory for a block"
        yield f"cuda:{index}", f"{device_name(torch.device('cuda', index))}, sm{facts.arch}, {what}"


def _compilers(problems: list[str]) -> Iterator[tuple[str, str]]:
    try:
        require_platform("doctor")
        yield "C++", find_compiler("doctor").version
    except BuildError as error:
        problems.append(str(error))
        yield "C++", "none that CPU programs can be built with"
    nvcc = find_nvcc()
    if nvcc is not None:
        try:
            yield "nvcc", f"{nvcc} {_release(version_lines([str(nvcc)]))}"
        except (OSError, subprocess.SubprocessError) as error:
            problems.append(f"nvcc: expected {nvcc} to tell its version, received {error}; mend the CUDA toolkit")
            yield "nvcc", f"{nvcc}, which does not run"
        return
    yield "nvcc", "none: CUDA programs are not compiled here"
    if torch.cuda.device_count():
        problems.append(
            "nvcc: expected it under CUDA_HOME or on PATH, since there is a CUDA device, received none; install a CUDA "
            'toolkit, or pip install "tileops[cuda]"'
        )


def _release(lines: Sequence[str]) -> str:
    return next((line for line in lines if "release" in line), lines[0])


def _backends(backends: Discovery, problems: list[str]) -> Iterator[tuple[str, str]]:
    """A line per distribution and kind of registration: so many ops can be served by one target."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BackendLoadWarning)
        registry = backends.load()
    counted: Counter[tuple[str, str]] = Counter()
    for owner, what in registry.registrations():
        kind, comma, _ = what.partition(",")
        counted[owner, f"{kind}, builders of ops" if comma else kind] += 1
    for (owner, what), count in counted.items():
        yield owner, f"{what}: {count}" if count > 1 or "," in what else what
    problems.extend(f"backend {failure}; mend or uninstall the distribution" for failure in registry.load_failures())


def _cache(problems: list[str]) -> Iterator[tuple[str, str]]:
    folder = cache_folder()
    try:
        folder.check()
    except CacheError as error:
        problems.append(str(error))
    obstacle = folder.obstacle(cpu.SUBFOLDER, lowering.SUBFOLDER, tuning.SUBFOLDER)
    if obstacle is not None:
        problems.append(
            f"cache folder {folder.root}: expected one that can be written, received {obstacle}; make it so, or set "
            f"{ENVIRONMENT_VARIABLE} to another: every process compiles anew until then"
        )
    if not os.path.isdir(folder.root):  # noqa: PTH112 - what cannot be looked into is not there
        yield "folder", f"{folder.root}, which {'cannot be used' if obstacle else 'the first compiled program makes'}"
        return
    yield "folder", str(folder.root)
    usage = folder.usage()
    for name, held in usage.items():
        yield name, f"{held.files} files, {held.bytes / 1e6:.1f} MB"
    if not usage:
        yield "holds", "nothing"
