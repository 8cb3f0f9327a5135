"""The way to TileLang: importing it with its settings in order, and lowering a prim_func to C."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from tileops_kernels.build.cache import cache_folder


def import_tilelang() -> ModuleType:
    """Import TileLang, with its own cache in ours and without its announcements, unless the user settled these."""
    tilelang = importlib.import_module("tilelang")

    settings = sys.modules["tilelang.env"].env
    if "TILELANG_CACHE_DIR" not in os.environ:
        settings.TILELANG_CACHE_DIR = str(cache_folder().folder("tilelang"))
    if "TILELANG_PRINT_ON_COMPILATION" not in os.environ:
        settings.TILELANG_PRINT_ON_COMPILATION = "0"
    return tilelang


def lower_to_c(prim_func: Any) -> tuple[str, list[str]]:
    """The C text of `prim_func`, and the names that its parameters have there, in the program's order."""
    tilelang = import_tilelang()
    with tilelang.tvm.target.Target("c"):
        text: str = tilelang.lower(prim_func, target="c", target_host="c").kernel_source
    buffers = prim_func.buffer_map
    return text, [buffers[each].name if each in buffers else each.name for each in prim_func.params]
