"""The source of a CPU library: our prelude, the generated program, a launcher that shares rows, and its function."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tileops_kernels.errors import BuildError

ENTRY_POINT = "tileops_function"
"""What a CPU library exports: it gives the Python function that runs the program."""

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

_SCALARS: Mapping[str, str] = {
    "float": "number",
    "double": "number",
    "int8_t": "integer",
    "int16_t": "integer",
    "int32_t": "integer",
    "int64_t": "integer",
    "bool": "integer",
}
"""The C types of scalars that a program can have, and how the prelude reads one of Python's numbers as such."""


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


def prelude_text() -> str:
    """The header text that stands in for TileLang's."""
    return _PRELUDE.read_text(encoding="utf-8")


def library_source(generated: str, order: Sequence[str], split: RowSplit | None) -> str:
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
    ordered = {name: types[name] for name in names}
    launcher = _launcher(function, list(types), ordered, split)
    return generated.replace(_INCLUDE, prelude_text(), 1) + launcher + _function(ordered)


def entry_point(library: Path) -> CPUFunction:
    """Load `library` and give the function that runs its program, which lets go of Python's lock meanwhile.

    Raises OSError when it cannot be loaded, and AttributeError when it has no entry point.
    """
    give = ctypes.PyDLL(str(library))[ENTRY_POINT]
    give.argtypes, give.restype = (), ctypes.py_object
    function: CPUFunction = give()
    return function


def _reader(kind: str) -> str:
    """How the prelude reads an argument of a C type."""
    return "address" if kind.endswith("*") else _SCALARS[kind]


def _is_type(name: str) -> bool:
    return name.endswith("*") or name in _SCALARS


def _launcher(function: str, passed: Sequence[str], types: Mapping[str, str], split: RowSplit | None) -> str:
    """C++ text of the launcher, which calls `function` once or on one range of rows in each thread.

    Names of its own begin with tileops_, so that no parameter of a program is hidden.
    """
    parameters = ", ".join(f"{kind} {name}" for name, kind in types.items())
    head = f"\nstatic void tileops_run({parameters}, int32_t tileops_threads) {{\n"
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


def _function(types: Mapping[str, str]) -> str:
    """C++ text of the Python function, which takes the program's arguments in order, its sizes and the threads.

    A call through ctypes takes longer than the program of a short row (docs/performance/cpu.md).
    """
    kinds = [*types.values(), "int32_t"]
    values = "".join(
        f"  {kind} value_{place} = ({kind})tileops_{_reader(kind)}(given[{place}]);\n"
        for place, kind in enumerate(kinds)
    )
    passed = ", ".join(f"value_{place}" for place in range(len(kinds)))
    return f"""
static PyObject *tileops_call(PyObject *, PyObject *const *given, intptr_t count) {{
  if (count != {len(kinds)}) return tileops_miscounted({len(kinds)}, count);
{values}\
  if (PyErr_Occurred()) return nullptr;
  void *lock = PyEval_SaveThread();
  tileops_run({passed});
  PyEval_RestoreThread(lock);
  return tileops_none();
}}
static PyMethodDef tileops_method = {{"run", tileops_call, METH_FASTCALL, nullptr}};
extern "C" PyObject *{ENTRY_POINT}() {{ return PyCFunction_NewEx(&tileops_method, nullptr, nullptr); }}
"""
