"""The way to TileLang: importing it with its settings in order, lowering to C, compiling for CUDA, and its errors."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tileops_kernels.build.cache import cache_folder
from tileops_kernels.build.compiler import last_lines
from tileops_kernels.errors import TileOPsError

SUBFOLDER = "tilelang"
"""Where in the cache folder TileLang keeps what it compiles for CUDA."""

_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError, OSError)
"""What TileLang raises when tracing, lowering or compiling fails; it has no error class of its own."""


def import_tilelang(*, limit: float) -> ModuleType:
    """Import TileLang and settle its settings, except those that the user has set in the environment.

    Its own cache lies in ours, it does not announce what it compiles, and nvcc may run for `limit` seconds.
    """
    tilelang = importlib.import_module("tilelang")
    settings = sys.modules["tilelang.env"].env
    if "TILELANG_CACHE_DIR" not in os.environ:
        settings.TILELANG_CACHE_DIR = str(cache_folder().folder(SUBFOLDER))
    if "TILELANG_PRINT_ON_COMPILATION" not in os.environ:
        settings.TILELANG_PRINT_ON_COMPILATION = "0"
    if "TILELANG_COMPILE_TIMEOUT_SECONDS" not in os.environ:
        settings.TILELANG_COMPILE_TIMEOUT_SECONDS = str(limit)
    return tilelang


def lower_to_c(tilelang: ModuleType, prim_func: Any) -> tuple[str, list[str]]:
    """The C text of `prim_func`, and the names that its parameters have there, in the program's order."""
    with tilelang.tvm.target.Target("c"):
        text: str = tilelang.lower(prim_func, target="c", target_host="c").kernel_source
    buffers = prim_func.buffer_map
    return text, [buffers[each].name if each in buffers else each.name for each in prim_func.params]


def compile_for_cuda(tilelang: ModuleType, prim_func: Any, arch: str) -> Any:
    """The TileLang kernel of `prim_func` for `arch` ("sm_90a"), from TileLang's cache or compiled by nvcc."""
    return tilelang.compile(
        prim_func,
        target={"kind": "cuda", "arch": arch},
        execution_backend="tvm_ffi",
        pass_configs={getattr(tilelang.PassConfigKey, name): True for name in _UNWANTED_CHECKS & _keys(tilelang)},
    )


_UNWANTED_CHECKS = {"TL_DISABLE_BUFFER_INIT_CHECK"}
"""TileLang's switches for checks that our programs fail without being wrong.

Functions of a prelude fill arrays that TileLang then takes to be read before they are written.
"""


def _keys(tilelang: ModuleType) -> set[str]:
    """The switches that this version of TileLang has."""
    return set(tilelang.PassConfigKey.__members__)


class LoweringError(TileOPsError, RuntimeError):
    """TileLang failed; the message is the end of what it said, on one line."""


@contextlib.contextmanager
def tilelang_errors() -> Iterator[None]:
    """Turn what TileLang raises into LoweringError, and let our own errors pass."""
    try:
        yield
    except TileOPsError:
        raise
    except _ERRORS as error:
        raise LoweringError(f"{type(error).__name__}: {last_lines(str(error))}") from error
