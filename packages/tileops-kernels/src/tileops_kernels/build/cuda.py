"""CUDA programs: compiled by TileLang and nvcc into TileLang's cache, called through their main function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from tileops_kernels.build.loaded import Entry, owner_of
from tileops_kernels.build.lowering import LoweringError, compile_for_cuda, import_tilelang, tilelang_errors
from tileops_kernels.build.once import Once
from tileops_kernels.build.program import Program
from tileops_kernels.errors import BuildError

CUDAFunction: TypeAlias = Callable[..., None]
"""A loaded program: its tensors and scalars in order; it launches on the current stream of the tensors' device."""


class CUDABuilder:
    """Builds and loads CUDA programs, each once in this process and, through TileLang's cache, once on this machine."""

    def __init__(self, *, limit: float = 300.0) -> None:
        self._limit = limit
        self._loaded: Once[tuple[str, str], CUDAFunction] = Once()
        self._kernels: list[Any] = []

    def load(self, program: Program, *, arch: int, owner: str) -> CUDAFunction:
        """The loaded function of `program` for a device of compute capability `arch` (90 for Hopper).

        `owner` says in errors which kernel type asked, and for which call. Everything that is compiled is compiled
        here: a launch compiles nothing. Raises BuildError when it cannot be built, and before it starts when a CUDA
        graph is being captured; the next call tries again.
        """
        key = target_arch(arch), program.digest()
        return self._loaded.get(key, partial(self._obtain, program, key[0], f"{owner}: {program}"))

    def _obtain(self, program: Program, arch: str, owner: str) -> CUDAFunction:
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            raise BuildError(
                f"{owner}: the program is not built yet and a CUDA graph is being captured; expected a warmed-up call, "
                "received the first one; make the same call once before capturing"
            )
        kernel = _compile(program, arch, owner, self._limit)
        with tilelang_errors():
            executable = kernel.adapter._get_executable()  # noqa: SLF001
            function: CUDAFunction = executable["main"]
        self._kernels.append(kernel)
        return function


def target_arch(arch: int) -> str:
    """The nvcc name of compute capability `arch`; on Hopper with the instructions that only Hopper has."""
    return "sm_90a" if arch == 90 else f"sm_{arch}"


def cross_compile(program: Program, *, arch: int, owner: str = "cross compile") -> str:
    """Compile `program` for `arch` into TileLang's cache, on a machine with or without a GPU, and return its CUDA text.

    Raises BuildError when it does not compile.
    """
    source: str = _compile(program, target_arch(arch), f"{owner}: {program}", 300.0).adapter.get_device_source()
    return source


def _compile(program: Program, arch: str, owner: str, limit: float) -> Any:
    try:
        with tilelang_errors():
            return compile_for_cuda(import_tilelang(limit=limit), program.build(), arch)
    except LoweringError as error:
        if find_nvcc() is None:
            raise BuildError(
                f"{owner}: no nvcc found to compile for {arch}; expected it under CUDA_HOME or on PATH, received none; "
                "install a CUDA toolkit, or pip install tileops-kernels[cuda]"
            ) from error
        raise BuildError(
            f"{owner}: compiling for {arch} failed: {error}; expected nvcc and TileLang to accept the program; check "
            "that nvcc knows the architecture and that tilelang is a version this package names"
        ) from error


def find_nvcc() -> Path | None:
    """The nvcc that TileLang compiles with, None where it would find none."""
    from tilelang.contrib import nvcc  # noqa: PLC0415

    try:
        found = Path(nvcc.get_nvcc_compiler())
    except RuntimeError:
        return None
    return found if found.is_file() else None


_BUILDER = CUDABuilder()


def load(program: Program, *, arch: int, owner: str) -> CUDAFunction:
    """The loaded function of `program`, from this process, TileLang's cache or a build; see `CUDABuilder.load`."""
    return _BUILDER.load(program, arch=arch, owner=owner)


def load_for(kernel: Entry, program: Program) -> CUDAFunction:
    """The loaded function of `program` for the device of the call that `kernel` was built for; errors name both."""
    return load(program, arch=kernel.call.arch, owner=owner_of(kernel))
