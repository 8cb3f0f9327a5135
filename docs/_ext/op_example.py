"""A runnable example of an op, made from its smallest workload row, and what it prints."""

from __future__ import annotations

import contextlib
import io
import math
from typing import TYPE_CHECKING

import torch

from tileops.manifest import registry
from tileops.manifest.workloads import TensorCase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tileops.manifest.model import OpEntry
    from tileops.manifest.workloads import WorkloadCase


def example_of(entry: OpEntry) -> str:
    """Return the code of the example: imports, inputs, construction, call, result."""
    case = min(registry.cases(entry.name), key=_size)  # type: ignore[arg-type]
    tensors = {name: tensor for name, tensor in case.tensors.items() if tensor is not None}
    outputs = ", ".join(tensor.name for tensor in entry.signature.outputs)
    lines = [
        "import torch",
        f"from tileops.{entry.family} import {entry.name}",
        "",
        "torch.manual_seed(0)",
        *(f"{name} = {_made(name, tensor)}" for name, tensor in tensors.items()),
        f"op = {entry.name}({', '.join(_parameters(entry, case))})",
        f"{outputs} = op({', '.join(_arguments(case))})",
        f"print({outputs})",
    ]
    return "\n".join(lines) + "\n"


def output_of(source: str) -> str:
    """Run an example in a namespace of its own and return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<example>", "exec"), {"__name__": "__main__"})  # noqa: S102 - generated here
    return printed.getvalue()


def _parameters(entry: OpEntry, case: WorkloadCase) -> Iterator[str]:
    """Yield the constructor's arguments; a call without tensors is small and on the CPU, where every reader has it."""
    for name, value in case.parameters.items():
        if value is None:
            continue
        if isinstance(value, TensorCase):
            yield f"{name}=torch.ones({', '.join(map(str, value.shape))}, dtype={value.dtype})"
        elif not entry.signature.inputs and isinstance(value, int):
            yield f"{name}={min(value, 4)}"
        else:
            yield f"{name}={value!r}"
    if not entry.signature.inputs and any(parameter.name == "device" for parameter in entry.signature.parameters):
        yield "device='cpu'"


def _size(case: WorkloadCase) -> tuple[int, int]:
    """Order cases by the number of elements, and among equals float32 first, whose printed digits say most."""
    tensors = [tensor for tensor in case.tensors.values() if tensor is not None]
    widest = max((tensor.dtype.itemsize for tensor in tensors), default=0)
    return sum(math.prod(tensor.shape) for tensor in tensors), -widest


def _made(name: str, tensor: TensorCase) -> str:
    if not tensor.dtype.is_floating_point:
        raise ValueError(f"{name}: expected a floating-point input, received {tensor.dtype}; its values have a meaning")
    dtype = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
    return f"torch.randn({', '.join(map(str, tensor.shape))}{dtype})"


def _arguments(case: WorkloadCase) -> list[str]:
    """Return the call's arguments: by position up to the first input that is not passed, then by keyword."""
    arguments: list[str] = []
    by_keyword = False
    for name, tensor in case.tensors.items():
        if tensor is None:
            by_keyword = True
        else:
            arguments.append(f"{name}={name}" if by_keyword else name)
    return arguments
