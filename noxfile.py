"""Every command of a contributor: `nox -l` lists them, `nox -s NAME` runs one, `nox -s NAME -- ARGUMENTS` narrows it.

All sessions share one environment under `.nox/`, made on first use. With `--no-venv` they use the interpreter that runs
nox and install nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import nox

if TYPE_CHECKING:
    from collections.abc import Iterator

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "none"

ROOT: Final = Path(__file__).resolve().parent
ENVIRONMENT: Final = ROOT / ".nox" / f"python{sys.version_info.major}.{sys.version_info.minor}"
COMPLETE: Final = ENVIRONMENT / "complete"
PACKAGES: Final = ("packages/tileops-kernels", "packages/tileops", "packages/tileops-testing")
DOCS: Final = ROOT / "build" / "docs"
LANGUAGES: Final = ("zh_CN",)
"""Those that the site is translated into, each a folder of it and a tag of docs/conf.py."""
IN_PARALLEL: Final = ("-n", str(min(os.cpu_count() or 1, 8)), "--dist", "loadgroup")
LINT_IMPORTS: Final = """
import sys
sys.path[:0] = ["docs/examples/backend/src", "docs/examples/downstream/src"]
from importlinter.cli import lint_imports_command
lint_imports_command()
"""
COVERAGE: Final = (
    "tests/testing_kit/test_cases.py::test_every_implemented_op_has_a_reference",
    "tests/compile_contract.py::test_every_op_with_a_boundary_is_registered",
    "tests/compile_contract.py::test_every_composite_is_registered",
)
"""What the validator cannot see, being below the testing kit."""


@nox.session(venv_backend="none")
def quickstart(session: nox.Session) -> None:
    """Set up and run the README's example: eager, compiled, and the kernel that served it."""
    refuse_arguments(session)
    run(session, "-m", "tileops_testing.quickstart")


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run everything that must not break; this is what CI runs."""
    check_style(session)
    check_types(session)
    check_manifests(session)
    build_docs(session)
    run(session, "-m", "pytest", "tests", *IN_PARALLEL, *session.posargs)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Check style, imports between modules, spelling and YAML; `-- --fix` mends what can be mended."""
    refuse_arguments(session, "--fix")
    check_style(session, fix="--fix" in session.posargs)


@nox.session(venv_backend="none")
def typecheck(session: nox.Session) -> None:
    """Run mypy --strict over the packages, the tests, the documentation's code and this file."""
    refuse_arguments(session)
    check_types(session)


@nox.session(venv_backend="none")
def validate(session: nox.Session) -> None:
    """Check every manifest entry against its language, its class and its rows; `-- RMSNormFwdOp`."""
    check_manifests(session, *selection(session))
    run(session, "-m", "pytest", *COVERAGE)


@nox.session(venv_backend="none")
def eager(session: nox.Session) -> None:
    """Run the eager suite: every op and case against its reference; `-- RMSNormFwdOp` or `-- --family norm`."""
    run_suite(session, "tests/suites/test_eager.py")


@nox.session(venv_backend="none")
def compile_contract(session: nox.Session) -> None:
    """Run the compile suite: every op cold under torch.compile, one node each; `-- RMSNormFwdOp`."""
    run_suite(session, "tests/compile_contract.py")


@nox.session(venv_backend="none")
def cuda_graph(session: nox.Session) -> None:
    """Run the CUDA graph suite: every op captured and replayed; without CUDA it lists the ops as not run."""
    run_suite(session, "tests/suites/test_cuda_graph.py")


@nox.session(venv_backend="none")
def cross_compile(session: nox.Session) -> None:
    """Compile every CUDA program for each architecture that its kernel type declares; needs nvcc, no GPU."""
    run_suite(session, "tests/cross_compile", "-m", "", *IN_PARALLEL)


@nox.session(venv_backend="none")
def dist(session: nox.Session) -> None:
    """Build the three wheels, use each in an empty environment outside this tree, and run the guides' examples."""
    run(session, "-m", "pytest", "tests/dist", *session.posargs)


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Build the reference site into build/docs, warnings being errors, and run the guides' code."""
    build_docs(session)
    run(session, "-m", "pytest", "tests/docs", *session.posargs)


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Measure ops against their peers and the roofline, and write JSON; `-- RMSNormFwdOp`."""
    run(session, "-m", "tileops_testing.bench", *session.posargs)


def check_style(session: nox.Session, *, fix: bool = False) -> None:
    """Run the linters; with `fix`, let those that can mend what they find."""
    run(session, "-m", "ruff", "check", *(["--fix"] if fix else []))
    run(session, "-m", "ruff", "format", *([] if fix else ["--check"]))
    run(session, "-c", LINT_IMPORTS)
    run(session, "-m", "codespell_lib", *(["--write-changes"] if fix else []))
    run(session, "-m", "yamllint", "--strict", "manifests", ".pre-commit-config.yaml", ".yamllint.yaml")


def check_types(session: nox.Session) -> None:
    """Run mypy as pyproject.toml configures it."""
    run(session, "-m", "mypy")


def check_manifests(session: nox.Session, *options: str) -> None:
    """Run the manifest validator."""
    run(session, "-m", "tileops.manifest", "validate", *options)


def build_docs(session: nox.Session) -> None:
    """Build the site in each language; a warning, an unresolved reference or a broken link fails it.

    English comes last: its build checks the links between the languages.
    """
    strict = ["--quiet", "--fresh-env", "--fail-on-warning", "--keep-going", "--nitpicky"]
    for language in LANGUAGES:
        run(session, "-m", "sphinx", *strict, "--tag", language, "docs", str(DOCS / language))
    run(session, "-m", "sphinx", *strict, "docs", str(DOCS))


def run_suite(session: nox.Session, module: str, *options: str) -> None:
    """Run one suite through pytest, on the ops that the arguments name."""
    run(session, "-m", "pytest", module, *options, *selection(session))


def refuse_arguments(session: nox.Session, *accepted: str) -> None:
    """End the session when it was given an argument other than those accepted."""
    refused = [argument for argument in session.posargs if argument not in accepted]
    if refused:
        expected = f"no argument but {' '.join(accepted)}" if accepted else "no arguments"
        session.error(f"{session.name}: expected {expected}, received {' '.join(refused)}; leave them out")


def selection(session: nox.Session) -> list[str]:
    """Return the session's arguments, those up to the first option being op names."""
    names = list(itertools.takewhile(lambda argument: not argument.startswith("-"), session.posargs))
    return [*(f"--op={name}" for name in names), *session.posargs[len(names) :]]


def run(session: nox.Session, *arguments: str) -> None:
    """Run Python with `arguments` in the shared environment, or in this interpreter under --no-venv."""
    if uses_current_interpreter():
        session.run(sys.executable, *arguments, env={"TILEOPS_NO_VENV": "1"})
        return
    python = shared_environment(session)
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    session.run(str(python), *arguments, env={"PATH": path, "VIRTUAL_ENV": str(ENVIRONMENT)})


def uses_current_interpreter() -> bool:
    """Whether nox was told to make no environment.

    Every session here is declared with the backend that --no-venv forces, so only the command line tells them apart.
    """
    return "--no-venv" in sys.argv or "--force-venv-backend=none" in sys.argv


def shared_environment(session: nox.Session) -> Path:
    """Return the Python of the shared environment, made or brought up to date when it is not.

    The file `complete` inside it names what it was made from and is written last: an environment without that file was
    interrupted and is made anew.
    """
    python = ENVIRONMENT / "bin" / "python"
    with only_one_process():
        wanted = fingerprint()
        made_from = COMPLETE.read_text() if COMPLETE.exists() else None
        if made_from == wanted:
            return python
        session.log("bringing the shared environment up to date; the first time takes a few minutes")
        if made_from is None:
            shutil.rmtree(ENVIRONMENT, ignore_errors=True)
            session.run(sys.executable, "-m", "venv", str(ENVIRONMENT))
        COMPLETE.unlink(missing_ok=True)
        groups = nox.project.load_toml(ROOT / "pyproject.toml")
        editable = [argument for package in PACKAGES for argument in ("--editable", package)]
        # Files are not compiled on the way: Python does so when it first imports one, and most are never imported.
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        install += ["--no-compile", "--constraint", "constraints.txt"]
        session.run(*install, *nox.project.dependency_groups(groups, "dist"))
        session.run(*install, "--no-build-isolation", *nox.project.dependency_groups(groups, "dev"), *editable)
        COMPLETE.write_text(wanted)
    return python


def fingerprint() -> str:
    """Return a digest of all that decides what the shared environment holds."""
    groups = nox.project.load_toml(ROOT / "pyproject.toml")["dependency-groups"]
    digest = hashlib.sha256(json.dumps([sys.base_prefix, groups]).encode())
    for name in ["constraints.txt", *(f"{package}/pyproject.toml" for package in PACKAGES)]:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


@contextmanager
def only_one_process() -> Iterator[None]:
    """Hold the environment's lock, so that two sessions started at once make it once."""
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    with (ENVIRONMENT.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
