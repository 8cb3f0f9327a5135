"""CPU programs: lowered to C++ by TileLang, compiled for the host, kept on disk and called as functions of Python."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tileops_kernels.build import compiler, launcher
from tileops_kernels.build.cache import CacheFolder, cache_folder
from tileops_kernels.build.compiler import Compiler
from tileops_kernels.build.launcher import CPUFunction, RowSplit
from tileops_kernels.build.loaded import Entry, owner_of
from tileops_kernels.build.lowering import LoweringError, import_tilelang, lower_to_c, tilelang_errors
from tileops_kernels.build.once import Once
from tileops_kernels.build.program import Program
from tileops_kernels.errors import BuildError

SUBFOLDER = "cpu"
FORMAT = 3
"""Raised when what is stored in an entry changes its meaning."""


class CPUBuilder:
    """Builds and loads CPU programs, each once in this process and, through the cache folder, once on this machine."""

    def __init__(self, folder: Callable[[], CacheFolder] = cache_folder, *, limit: float = 300.0) -> None:
        self._folder = folder
        self._limit = limit
        self._loaded: Once[str, CPUFunction] = Once()

    def load(self, program: Program, *, owner: str) -> CPUFunction:
        """The loaded function of `program`; `owner` says in errors which kernel type asked, and for which call.

        A program that was built before is loaded without importing TileLang. Raises BuildError when it cannot be built,
        and CacheError when the cache folder is unsafe; the next call tries again.
        """
        owner = f"{owner}: {program}"
        compiler.require_platform(owner)
        found = compiler.find_compiler(owner)
        key = _key(program, found)
        return self._loaded.get(key, partial(self._obtain, program, found, key, owner))

    def _obtain(self, program: Program, found: Compiler, key: str, owner: str) -> CPUFunction:
        folder = self._folder()
        if (run := _stored(folder, key)) is not None:
            return run
        try:
            with folder.building(SUBFOLDER, key) as staging:
                if (run := _stored(folder, key)) is not None:
                    return run
                library = self._build(program, found, owner, staging)
                run = _checked(library, owner)
                folder.store(key, library, {"program": str(program), "compiler": found.version})
                return run
        except OSError as error:
            raise BuildError(
                f"{owner}: the compiled library could not be kept in the cache folder: {error}; expected a folder with "
                "room for it; free some space, or set TILEOPS_CACHE_DIR to another folder"
            ) from error

    def _build(self, program: Program, found: Compiler, owner: str, staging: Path) -> Path:
        """Write the source of `program` into `staging` and compile it there."""
        text, library = staging / "program.cpp", staging / "program.so"
        text.write_text(_source(program, owner, self._limit), encoding="utf-8")
        command = [*found.command, *compiler.FLAGS, "-o", str(library), str(text)]
        compiler.run_compiler(command, owner=owner, limit=self._limit)
        if library.is_symlink() or not library.is_file():
            raise BuildError(
                f"{owner}: the C++ compiler reported success without a library; expected the file that -o names, "
                f"received none; command: {shlex.join(command)}; set CXX to a working compiler"
            )
        return library


def _key(program: Program, found: Compiler) -> str:
    """What decides the library: the program, how it is built, by which compiler, and for which instruction set."""
    facts = {
        "format": FORMAT,
        "program": program.digest(),
        "build": _build_digest(),
        "flags": compiler.FLAGS,
        "compiler": found.version,
        "cpu": compiler.cpu_identity(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _build_digest() -> str:
    """A digest of the texts that stand around a generated program in its library."""
    return hashlib.sha256(Path(launcher.__file__).read_bytes() + launcher.prelude_text().encode()).hexdigest()


def _source(program: Program, owner: str, limit: float) -> str:
    """Trace and lower `program`; its builder returns a prim_func, alone or with a RowSplit."""
    try:
        with tilelang_errors():
            tilelang = import_tilelang(limit=limit)
            built = program.build()
            prim_func, split = built if isinstance(built, tuple) else (built, None)
            generated, order = lower_to_c(tilelang, prim_func)
    except LoweringError as error:
        raise BuildError(
            f"{owner}: lowering to C failed: {error}; expected TileLang to accept the program; install a tilelang "
            "version that this package names"
        ) from error
    if split is not None and not isinstance(split, RowSplit):
        raise BuildError(
            f"{owner}: the builder returned more than a prim_func; expected a RowSplit beside it, received "
            f"{type(split).__name__}; return one"
        )
    return launcher.library_source(generated, order, split)


def _stored(folder: CacheFolder, key: str) -> CPUFunction | None:
    """The function of the library stored under `key`; None when there is none, or it cannot be loaded."""
    stored = folder.find(SUBFOLDER, key)
    if stored is None:
        return None
    try:
        return launcher.entry_point(stored.path)
    except (OSError, AttributeError):
        return None


def _checked(library: Path, owner: str) -> CPUFunction:
    """The function of `library`, loaded before it is stored: what cannot be loaded is an error, not an entry."""
    try:
        return launcher.entry_point(library)
    except (OSError, AttributeError) as error:
        raise BuildError(
            f"{owner}: the compiled library cannot be loaded: {error}; set TILEOPS_CACHE_DIR to a folder from which "
            "libraries may be loaded, install the OpenMP runtime of the compiler, or set CXX to a working compiler"
        ) from error


_BUILDER = CPUBuilder()


def load(program: Program, *, owner: str) -> CPUFunction:
    """The loaded function of `program`, from this process, the cache folder or a build; see `CPUBuilder.load`."""
    return _BUILDER.load(program, owner=owner)


def load_for(kernel: Entry, program: Program) -> CPUFunction:
    """The loaded function of `program`; errors name `kernel` and the call that it was built for."""
    return load(program, owner=owner_of(kernel))
