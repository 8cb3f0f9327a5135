"""Program: a TileLang builder and its arguments, named without importing TileLang, and their digest."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tileops_kernels.errors import BuildError

Scalar: TypeAlias = int | float | bool | str

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Program:
    """A builder in a program module, and the arguments that it is called with; equal programs compile to the same code.

    A program module imports nothing but `tilelang`, `tileops_kernels.macros` and `RowSplit`, so that its own text, the
    text of the macros and the arguments say everything about the code that comes out.
    """

    module: str
    builder: str
    arguments: tuple[tuple[str, Scalar], ...] = ()

    @classmethod
    def of(cls, module: str, builder: str, **arguments: Scalar) -> Program:
        """The program that `module.builder(**arguments)` would build; the order of the arguments does not matter."""
        return cls(module, builder, tuple(sorted(arguments.items())))

    def __str__(self) -> str:
        return f"{self.module}:{self.builder}({', '.join(f'{name}={value!r}' for name, value in self.arguments)})"

    def digest(self) -> str:
        """A hexadecimal digest of all that decides the code: the sources, the arguments and TileLang's version.

        It is the same in every process on every machine that has these sources, and needs no import of TileLang.
        """
        facts = {
            "sources": _sources_digest(self.module),
            "builder": self.builder,
            "arguments": self.arguments,
            "tilelang": tilelang_version(),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def build(self) -> Any:
        """Call the builder and return what it returns; imports the program module, and TileLang with it."""
        _sources_digest(self.module)
        try:
            builder: Callable[..., Any] = getattr(importlib.import_module(self.module), self.builder)
        except (ImportError, AttributeError) as error:
            raise BuildError(
                f"{self}: cannot find the builder; expected a function {self.builder} in module {self.module}, "
                f"received {error}; correct the Program that the kernel type names, or install what the module imports"
            ) from error
        return builder(**dict(self.arguments))


@cache
def tilelang_version() -> str:
    """The version of the installed TileLang, read without importing it."""
    try:
        return importlib.metadata.version("tilelang")
    except importlib.metadata.PackageNotFoundError as error:
        raise BuildError(
            "tilelang is not installed; expected tilelang>=0.1.14,<0.2, received none; run pip install tilelang"
        ) from error


@cache
def _sources_digest(module: str) -> str:
    """The digest of a program module's text and of the macros' text, as first met by this process.

    It is taken before the module is imported and never again, so that a file edited under a running process cannot give
    the code that this process loaded the digest of another text.
    """
    texts = [_module_text(module)]
    texts += [path.read_bytes() for path in sorted((_PACKAGE / "macros").glob("*.py"))]
    return hashlib.sha256(b"\0".join(hashlib.sha256(text).digest() for text in texts)).hexdigest()


def _module_text(module: str) -> bytes:
    """The source text of `module`, found without executing it (its parent packages are imported)."""
    missing: ModuleNotFoundError | None = None
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        spec, missing = None, error
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        received = spec.origin if spec is not None else missing or "no such module"
        raise BuildError(
            f"program module {module} has no source; expected an importable .py module, received {received}; name a "
            "module that the package ships"
        ) from missing
    return Path(spec.origin).read_bytes()
