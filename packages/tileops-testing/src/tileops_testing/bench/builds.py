"""Build times: seconds that the first call of an op takes for the programs it compiles, with an empty cache folder."""

from __future__ import annotations

import io
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from tileops_kernels.build.cache import ENVIRONMENT_VARIABLE
from tileops_testing.bench.runner import host_load
from tileops_testing.cases import Case
from tileops_testing.catalog import op_class
from tileops_testing.workload_cases import cases_of

__all__ = ["BuildTimes", "measure_builds"]

_BUILT = 0.02
"""Seconds that a first call takes longer than the next one where it has compiled anything."""


@dataclass(frozen=True, slots=True)
class BuildTimes:
    """What first calls took longer than the next, in seconds, for the cases of one op that compiled something.

    Attributes:
        op: The op class.
        device: Where it ran.
        load: How many processes waited for each of the host's processors.
        seconds: By the label of the case, in the order of the calls; a case whose programs stood is left out.
    """

    op: str
    device: str
    load: float
    seconds: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return asdict(self)

    def render(self, *, width: int = 120) -> str:
        """Return the table: a line per case that compiled something."""
        table = Table(title=f"cold builds of {self.op} on {self.device}", title_justify="left")
        for heading in ("first call of", "s"):
            table.add_column(heading)
        for label, seconds in self.seconds.items():
            table.add_row(label, f"{seconds:.2f}")
        output = io.StringIO()
        Console(file=output, width=width, color_system=None).print(table)
        return output.getvalue()


def measure_builds(cases: Sequence[Case], device: torch.device, target: str | None) -> BuildTimes:
    """Return what the first calls of the cases of one op take longer than the next.

    They run in a process of their own, whose cache folder is empty and which has loaded the compiler's parts before.
    """
    name, labels = cases[0].op_name, [case.label for case in cases]
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=context, initializer=_start, initargs=(folder,)) as process,
    ):
        seconds = process.submit(_first_calls, name, labels, str(device), target).result()
    return BuildTimes(name, str(device), host_load(), seconds)


def _start(folder: str) -> None:
    os.environ[ENVIRONMENT_VARIABLE] = folder


def _first_calls(name: str, labels: Sequence[str], device_name: str, target: str | None) -> dict[str, float]:
    device = torch.device(device_name)
    small: Any = op_class("RMSNormFwdOp")
    small(normalized_shape=(8,))(torch.ones(1, 8, device=device))  # imports TileLang and prepares the compiler
    found: dict[str, float] = {}
    cases = {case.label: case for case in cases_of(op_class(name), small=device.type == "cpu")}
    for label in labels:
        case = cases[label].on(device)
        op = case.construct(target)
        first, second = (_seconds(op, case.tensors(device, fresh=fresh), device) for fresh in range(2))
        if first - second > _BUILT:
            found[label] = round(first - second, 3)
    return found


def _seconds(op: Any, inputs: Sequence[object], device: torch.device) -> float:
    started = time.perf_counter()
    op(*inputs)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
