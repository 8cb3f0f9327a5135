"""`python -m tileops_testing.quickstart`: run the README's example and say what happened, and where."""

from __future__ import annotations

import ast
import platform
import runpy
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.resources import files
from typing import Any

import torch
from rich.console import Console
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from torch import Tensor

from tileops.norm import RMSNormFwdOp
from tileops_kernels.norm import RMS_NORM
from tileops_testing.graphs import CudaGraphRecorder, RecordingBackend
from tileops_testing.numerics import Comparison, compare, tolerance
from tileops_testing.references import reference_for

__all__ = ["example_source", "main"]

_EXAMPLE = "tileops_testing.example"


def main() -> int:
    """Run the example, print what it did, and return 0 when the result is right."""
    console = Console(width=100 if not sys.stdout.isatty() else None)
    console.print(Rule("where", align="left"))
    console.print(_circumstances())
    console.print(Rule("the example", align="left"))
    console.print(Syntax(example_source(), "python", theme="ansi_dark", background_color="default"))
    console.print(Rule("what it printed", align="left"))
    ran = runpy.run_module(_EXAMPLE)
    op, model, x = ran["op"], ran["model"], ran["x"]
    console.print(Rule("the kernel that served it", align="left"))
    console.print(_kernels(op))
    console.print(Rule("the graph that torch.compile captured", align="left"))
    console.print(_graph(model, x), highlight=False)
    console.print(Rule("a CUDA graph of the call", align="left"))
    console.print(_cuda_graph(model, x), highlight=False)
    console.print(Rule("against the reference in float64", align="left"))
    comparison, error = _error(op(x, ran["weight"]), x, ran["weight"])
    console.print(f"{comparison.describe()}; largest relative error {error:.2e}", highlight=False)
    return 0 if comparison.passed else 1


def example_source() -> str:
    """Return the example's code, without its docstring, as the README shows it."""
    source = files("tileops_testing").joinpath("example.py").read_text(encoding="utf-8")
    docstring = ast.parse(source).body[0]
    return "".join(source.splitlines(keepends=True)[docstring.end_lineno :]).strip() + "\n"


def _circumstances() -> str:
    if torch.cuda.is_available():
        device = f"cuda ({torch.cuda.get_device_name()})"
    else:
        device = f"cpu ({platform.machine()}, {torch.get_num_threads()} threads; torch finds no CUDA device)"
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("tileops", "torch", "tilelang"))
    return f"device {device}\n{versions}, Python {platform.python_version()}"


def _kernels(op: RMSNormFwdOp) -> Table:
    """One line per kernel type: whether it served, and if not, why."""
    kernel = next(op.iter_kernels())
    table = op.kernel_table(RMS_NORM)
    selection = table.explain(kernel.call)
    shown = Table(box=None, pad_edge=False)
    for heading in ("key", "kernel type", "outcome"):
        shown.add_column(heading, overflow="fold")
    for key, kernel_type in sorted(table.types.items(), key=lambda item: item[0] != selection.key):
        outcome = "served" if key == selection.key else f"not: {selection.passed_over[key]}"
        shown.add_row(key, kernel_type.__name__, outcome, style="bold" if key == selection.key else None)
    return shown


def _graph(model: Callable[[Tensor], Tensor], x: Tensor) -> str:
    """The nodes that dynamo captured, with the one that is ours named first."""
    recording = RecordingBackend()
    torch.compile(model, backend=recording, fullgraph=True)(x)
    ours = [name for name in recording.names() if name.startswith("tileops::")]
    others = [name for name in recording.names() if name not in ours]
    return f"TileOPs: {', '.join(ours)} ({len(ours)} node)\nothers: {', '.join(others)}"


def _cuda_graph(model: Callable[[Tensor], Tensor], x: Tensor) -> str:
    if not x.is_cuda:
        return "not run: needs a CUDA device"
    recorder = CudaGraphRecorder()
    captured = recorder.capture(lambda: model(x))
    expected = model(x.copy_(torch.randn_like(x)))
    recorder.replay()
    return f"captured, replayed on new data; equal to the eager call: {torch.equal(captured, expected)}"


def _error(y: Tensor, x: Tensor, weight: Tensor) -> tuple[Comparison, float]:
    """The comparison of the op's result with its reference, and the largest relative error."""
    reference = reference_for("RMSNormFwdOp", "norm")
    parameters: dict[str, Any] = {"normalized_shape": (x.shape[-1],)}
    (expected,) = reference.outputs((x, weight), parameters)
    if expected is None:
        raise TypeError("RMSNormFwdOp: expected a reference that returns a tensor, received None")
    allowed = tolerance(y.dtype, summed=reference.summed(parameters))
    error = (y.double() - expected).abs() / expected.abs().clamp_min(torch.finfo(y.dtype).tiny)
    return compare(y, expected, allowed), float(error.max())


if __name__ == "__main__":
    sys.exit(main())
