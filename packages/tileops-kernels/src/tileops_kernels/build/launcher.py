"""The source of a CPU library: our prelude, the generated program, and a launcher that shares rows among threads."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tileops_kernels.errors import BuildError

ENTRY_POINT = "tileops_run"
"""The function that a CPU library exports: the program's arguments in order, its sizes, then the number of threads."""

GRAIN = 16384
"""Elements that are worth a thread of their own: below twice this a call stays on the calling thread.

RMSNorm on two cores with a warm pool broke even at 8192 elements in all and ran 1.6 times as fast at 32768 (float32
11.5 and 7.4 us, float16 24 and 16); larger pools take longer to wake.
"""

CPUFunction: TypeAlias = Callable[..., None]
"""A loaded program: addresses of the tensors, scalars, sizes, and the number of threads, all positional."""

_PRELUDE = Path(__file__).with_name("prelude.h")
_INCLUDE = "#include <tl_templates/cpp/common.h>"
_SIGNATURE = re.compile(r"^int32_t (\w+)\(([^)]*)\) \{$", re.MULTILINE)

_SCALARS: Mapping[str, type[ctypes._SimpleCData[int] | ctypes._SimpleCData[float] | ctypes._SimpleCData[bool]]] = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "int8_t": ctypes.c_int8,
    "int16_t": ctypes.c_int16,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "bool": ctypes.c_bool,
}


@dataclass(frozen=True, slots=True)
class RowSplit:
    """How the work of a program is shared among threads: each takes a range of one of its sizes.

    `size` names the size that is split, `advance` for each tensor that moves with it the elements of one step, and
    `work` the elements that one step handles, which decides how many threads are worth waking. Both may be C
    expressions in the program's other sizes and scalars. `start` names an integer scalar that says where the range
    begins, for a program whose rows differ by their place; callers give it the place of the first row.
    """

    size: str
    advance: Mapping[str, int | str]
    work: int | str
    start: str | None = None


@dataclass(frozen=True, slots=True)
class LibrarySource:
    """C++ text to compile, and the C types of its entry point's arguments."""

    text: str
    types: tuple[str, ...]


def prelude_text() -> str:
    """The header text that stands in for TileLang's."""
    return _PRELUDE.read_text(encoding="utf-8")


def library_source(generated: str, order: Sequence[str], split: RowSplit | None) -> LibrarySource:
    """The whole source of a library.

    `generated` is TileLang's C text, which holds one function whose parameters are in an order of its own; `order`
    names the program's parameters in the order that callers use, and sizes that it does not name follow.
    """
    matches = _SIGNATURE.findall(generated)
    if len(matches) != 1 or _INCLUDE not in generated:
        raise BuildError(
            f"generated CPU source: expected one function and the line {_INCLUDE}, received {len(matches)} functions; "
            "write the program as one prim_func, and install the TileLang version that this package names"
        )
    function, parameters = matches[0]
    types = dict(reversed(parameter.rsplit(" ", 1)) for parameter in parameters.split(", "))
    if unused := [name for name in order if name not in types]:
        raise BuildError(
            f"generated CPU source of {function}: parameters {', '.join(unused)} of the program are not used; expected "
            f"every parameter in use, received {parameters}; leave unused parameters out of the prim_func"
        )
    if unknown := sorted({kind for kind in types.values() if not _is_type(kind)}):
        raise BuildError(
            f"generated CPU source of {function}: arguments of type {', '.join(unknown)}; expected pointers and "
            f"{', '.join(_SCALARS)}, received {parameters}; give the prim_func parameters of those types"
        )
    names = [*order, *(name for name in types if name not in order)]
    launcher = _launcher(function, list(types), {name: types[name] for name in names}, split)
    text = generated.replace(_INCLUDE, prelude_text(), 1) + launcher
    return LibrarySource(text, (*(types[name] for name in names), "int32_t"))


def argument_types(stated: object) -> list[str] | None:
    """`stated` when it is a list of C types that an entry point can have, else None."""
    if not isinstance(stated, list) or not all(isinstance(name, str) and _is_type(name) for name in stated):
        return None
    return stated


def entry_point(library: Path, types: Sequence[str]) -> CPUFunction:
    """Load `library` and give its typed entry point.

    Raises OSError when it cannot be loaded, and AttributeError when it has no entry point.
    """
    function = ctypes.CDLL(str(library))[ENTRY_POINT]
    function.argtypes = [ctypes.c_void_p if name.endswith("*") else _SCALARS[name] for name in types]
    function.restype = None
    return function


def _is_type(name: str) -> bool:
    return name.endswith("*") or name in _SCALARS


def _launcher(function: str, passed: Sequence[str], types: Mapping[str, str], split: RowSplit | None) -> str:
    """C++ text of the entry point, which calls `function` once or on one range of rows in each thread.

    Names of its own begin with tileops_, so that no parameter of a program is hidden.
    """
    parameters = ", ".join(f"{kind} {name}" for name, kind in types.items())
    head = f'\nextern "C" void {ENTRY_POINT}({parameters}, int32_t tileops_threads) {{\n'
    whole = f"{function}({', '.join(passed)});"
    if split is None:
        return f"{head}  (void)tileops_threads;\n  {whole}\n}}\n"
    arguments = {name: f"{name} + tileops_first * ({step})" for name, step in split.advance.items()}
    arguments[split.size] = "tileops_count"
    if split.start is not None:
        arguments[split.start] = f"{split.start} + tileops_first"
    part = f"{function}({', '.join(arguments.get(name, name) for name in passed)});"
    rows = split.size
    return f"""{head}\
  int64_t tileops_parts = {rows} * (int64_t)({split.work}) / {GRAIN};
  if (tileops_parts > tileops_threads) tileops_parts = tileops_threads;
  if (tileops_parts > {rows}) tileops_parts = {rows};
  if (tileops_parts <= 1 || omp_in_parallel()) {{
    {whole}
    return;
  }}
  #pragma omp parallel num_threads(tileops_threads)
  {{
    int64_t tileops_team = omp_get_num_threads() < tileops_parts ? omp_get_num_threads() : tileops_parts;
    int64_t tileops_part = omp_get_thread_num();
    if (tileops_part < tileops_team) {{
      int64_t tileops_rest = {rows} % tileops_team;
      int64_t tileops_before = tileops_part < tileops_rest ? tileops_part : tileops_rest;
      int64_t tileops_first = {rows} / tileops_team * tileops_part + tileops_before;
      int64_t tileops_count = {rows} / tileops_team + (tileops_part < tileops_rest ? 1 : 0);
      {part}
    }}
  }}
}}
"""
