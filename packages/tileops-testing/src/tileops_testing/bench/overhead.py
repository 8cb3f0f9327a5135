"""Host overhead: microseconds that a call keeps the host, for an op, its parts and its peers, in one run."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from tileops_testing.bench.runner import host_load
from tileops_testing.bench.timing import palindrome
from tileops_testing.cases import Case, Inputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.subject import SubjectOp

__all__ = ["Overhead", "measure_overhead", "operator_call"]


@dataclass(frozen=True, slots=True)
class Overhead:
    """Host time per call of each function, in microseconds, and the conditions of the run."""

    op: str
    case: str
    device: str
    calls: int
    rounds: int
    load: float
    microseconds: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return asdict(self)

    def render(self, *, width: int = 120) -> str:
        """Return the table: a line per function."""
        title = f"host time per call, {self.op} {self.case} on {self.device}: best of {self.rounds} x {self.calls}"
        table = Table(title=title, title_justify="left")
        for heading in ("what", "us"):
            table.add_column(heading)
        for name, value in self.microseconds.items():
            table.add_row(name, f"{value:.2f}")
        output = io.StringIO()
        Console(file=output, width=width, color_system=None).print(table)
        if self.load > 1.0:
            output.write(
                f"NOT A MEASUREMENT: {self.load:.1f} processes waited for each processor; repeat on an idle machine\n"
            )
        return output.getvalue()


def measure_overhead(
    case: Case,
    functions: Mapping[str, Callable[[], object]],
    device: torch.device,
    *,
    calls: int = 200,
    rounds: int = 18,
) -> Overhead:
    """Return how long each function keeps the host per call: the best round, rounds in the order A B C C B A.

    On CUDA the device is idle when a round starts and is waited for after the clock is read, and a round launches less
    than the driver queues, so that the host never waits within it.
    """
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for name in palindrome(list(functions)) * max(1, rounds // 2):
        best[name] = min(best[name], _round(functions[name], calls, device))
    microseconds = {name: seconds * 1e6 for name, seconds in best.items()}
    return Overhead(case.op_name, case.label, str(device), calls, rounds, host_load(), microseconds)


def _round(function: Callable[[], object], calls: int, device: torch.device) -> float:
    wait = torch.cuda.synchronize if device.type == "cuda" else _nothing
    wait()
    started = time.perf_counter()
    for _ in range(calls):
        function()
    seconds = (time.perf_counter() - started) / calls
    wait()
    return seconds


def _nothing() -> None:
    """Wait for a device that has finished when a call returns."""


def operator_call(op: SubjectOp, inputs: Inputs) -> Callable[[], object]:
    """Return a call of the operator behind ``op``, as compiled code makes it: without the op's own Python."""
    recording = RecordingBackend("eager")
    torch.compiler.reset()

    def call(*tensors: object) -> object:
        return op(*tensors)

    torch.compile(call, fullgraph=True, backend=recording)(*inputs)
    graph = recording.graphs[0]
    found = next(call for name in type(op).compile_op_names for call in graph.operator_calls(name))
    operator, args, kwargs = found.operator, found.args, found.kwargs

    def call_operator(keep_alive: SubjectOp = op) -> object:
        del keep_alive
        return operator(*args, **kwargs)

    return call_operator
