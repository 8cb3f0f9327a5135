"""A runnable example of an op, made from its smallest workload row, and what it prints."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import math
from typing import TYPE_CHECKING

import torch

from tileops.manifest import registry, workloads
from tileops.manifest.rowsolving import TensorCase
from tileops_testing.shapes import rows_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tileops.manifest.model import OpEntry, TensorType
    from tileops.manifest.workloads import WorkloadCase


LARGE = 1 << 26
"""Elements beyond which a reader would wait for an example."""


def example_of(entry: OpEntry) -> str:
    """Return the code of the example: imports, inputs, construction, call, result."""
    case = min(_cases(entry), key=_size)
    contents = workloads.metadata(entry, case)
    names = [
        entry.name,
        *(type(value).__name__ for value in case.parameters.values() if dataclasses.is_dataclass(value)),
    ]
    tensors = {name: tensor for name, tensor in case.tensors.items() if tensor is not None}
    outputs = ", ".join(tensor.name for tensor in entry.signature.outputs)
    written = [tensor for tensor in entry.signature.inputs if tensor.mutated]
    call = f"op({', '.join(_arguments(case))})"
    lines = [
        "import torch",
        f"from tileops.{entry.family} import {', '.join(sorted(names))}",
        "",
        "torch.manual_seed(0)",
        *(f"{name} = {_made(name, tensor, contents.get(name))}" for name, tensor in tensors.items()),
        f"op = {entry.name}({', '.join(_parameters(entry, case))})",
        f"{outputs} = {call}" if outputs else call,
        *(_shown(tensor) for tensor in (entry.signature.outputs or written)),
    ]
    return "\n".join(lines) + "\n"


def _cases(entry: OpEntry) -> Sequence[WorkloadCase]:
    """Return the workload cases; where they are large, or tensors tell of other tensors, the kit's smaller ones."""
    cases: Sequence[WorkloadCase] = registry.cases(entry.name)  # type: ignore[arg-type]
    if all(tensor.values is None for tensor in entry.signature.inputs) and min(map(_elements, cases)) <= LARGE:
        return cases
    rows = rows_for(entry.name, entry.family)
    cases = [workloads.instantiate(entry, row, dtypes) for row in rows for dtypes in row.dtype_cases]
    return [case for case in cases if all(tensor is None or 0 not in tensor.shape for tensor in case.tensors.values())]


def output_of(source: str) -> str:
    """Run an example in a namespace of its own and return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<example>", "exec"), {"__name__": "__main__"})  # noqa: S102 - generated here
    return printed.getvalue()


def _shown(output: TensorType) -> str:
    """Return the line that prints an output: its shape and its first elements."""
    if output.nullable is not None:
        return f"print({output.name})"
    return f"print(tuple({output.name}.shape), {output.name}.flatten()[:4])"


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
            yield f"{name}={_written(value)}"
    if not entry.signature.inputs and any(parameter.name == "device" for parameter in entry.signature.parameters):
        yield "device='cpu'"


def _elements(case: WorkloadCase) -> int:
    """Return the number of elements of a case's inputs."""
    return sum(math.prod(tensor.shape) for tensor in case.tensors.values() if tensor is not None)


def _size(case: WorkloadCase) -> tuple[bool, int, int]:
    """Order cases by the number of elements, and among equals float32 first, whose printed digits say most.

    Cases without a floating-point tensor come last: numbers drawn at random would mean nothing to them.
    """
    tensors = [tensor for tensor in case.tensors.values() if tensor is not None]
    widest = max((tensor.dtype.itemsize for tensor in tensors), default=0)
    drawn = any(tensor.dtype.is_floating_point for tensor in tensors)
    return not drawn, sum(math.prod(tensor.shape) for tensor in tensors), -widest


def _written(value: object) -> str:
    """Return a parameter's value as code."""
    if isinstance(value, enum.Enum):
        return repr(value.value)
    if dataclasses.is_dataclass(value):
        given = (f"{field.name}={_written(getattr(value, field.name))}" for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(given)})"
    return repr(value)


def _made(name: str, tensor: TensorCase, contents: torch.Tensor | None) -> str:
    if contents is not None:
        return f"torch.tensor({contents.tolist()}, dtype={contents.dtype})"
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
