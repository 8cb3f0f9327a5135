"""The workload rows of an op: what each costs, what bounds it, and what was measured of it against the roofline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from op_plot import Point, plot_of
from op_results import Timed, Times, times_of
from tables import table

from tileops.manifest import registry, workloads
from tileops.manifest.primitives import show_dtype, show_shape
from tileops.manifest.rowsolving import TensorCase
from tileops.op.records import cost_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tileops.manifest.model import OpEntry
    from tileops.manifest.workloads import WorkloadCase
    from tileops.op.base import Op


@dataclass(frozen=True)
class Card:
    """What a device can do at most: bytes a second of a large copy, and operations a second of wide and half floats."""

    copy: float
    flops: float
    half_flops: float

    def arithmetic(self, work: Work) -> float:
        """Return the seconds that the arithmetic of a call takes at the least."""
        return work.flops / (self.half_flops if work.half else self.flops)


CARD = "NVIDIA H200"
CARDS = {CARD: Card(copy=4.2e12, flops=67e12, half_flops=790e12)}
"""Copies and half-precision products as measured there, float32 from the data sheet."""


@dataclass(frozen=True)
class Work:
    """The least that a call needs; `half` says whether its widest floating-point input has 16 bits or fewer."""

    flops: int
    bytes: int
    half: bool


def workloads_of(entry: OpEntry, op: type[Op]) -> Iterator[str]:
    """Yield the table of cases with their cost and bound."""
    card = CARDS[CARD]
    rows = []
    for case in registry.cases(entry.name):  # type: ignore[arg-type]
        work = work_of(entry, op, case)
        memory, arithmetic = work.bytes / card.copy, card.arithmetic(work)
        bound = "memory" if memory >= arithmetic else "arithmetic"
        cost = [_rounded(work.flops / 1e6), _rounded(work.bytes / 1e6), f"{work.flops / work.bytes:.2f}"]
        rows.append([case.id, f"{bound}, {_rounded(max(memory, arithmetic) * 1e6)} µs", *cost, _sizes(case)])
    yield (
        "Calls of models, with the least arithmetic and the least traffic that each needs. The bound is that of an "
        f"{CARD}: bytes at 4.2 TB/s or arithmetic at 790 TFLOP/s (67 in float32), whichever takes longer."
    )
    yield table(["case", "bound", "MFLOP", "MB", "FLOP/byte", "inputs"], rows, name="workloads")


def measurements_of(entry: OpEntry, op: type[Op], data: Path) -> Iterator[str]:
    """Yield, for each device with committed times, a plot and a table; a word where there are none on CUDA."""
    runs = times_of(entry.name, data)
    if not any(times.device.endswith("(CUDA)") for times in runs):
        yield ":::{note}\nNot measured on a CUDA device yet: no times of this op there are committed.\n:::"
    works = {case.id: work_of(entry, op, case) for case in registry.cases(entry.name)} if runs else {}  # type: ignore[arg-type]
    for times in runs:
        yield from _measured(times, works)


def _measured(times: Times, works: dict[str, Work]) -> Iterator[str]:
    card = CARDS.get(times.device_name)
    points, rows = [], []
    for timed in times.cases:
        if (work := works.get(timed.case)) is None:
            continue
        stated = 0.0 if card is None else card.arithmetic(work)
        least = max(timed.copy, timed.arithmetic or stated)
        points.append(Point(timed.case, least, timed.seconds, timed.peer, timed.peer_seconds))
        rows.append(_row(timed, least))
    if not rows:
        return
    yield (
        f"{times.circumstances} The roofline is the time of a copy of as many bytes in the same run or, where it is "
        "known and longer, that of the arithmetic. Below 1, the last column says that the op beats the fastest peer."
    )
    yield f"```{{raw}} html\n{plot_of(points, times.device)}\n```"
    headings = ["case", "roofline, µs", "measured, µs", "of the roofline", "best peer, µs", "to best peer"]
    yield table(headings, rows, name="times")


def _row(timed: Timed, least: float) -> list[str]:
    peer = "" if timed.peer_seconds is None else f"{timed.peer} {_rounded(timed.peer_seconds * 1e6)}"
    ratio = "" if timed.peer_seconds is None else f"{timed.seconds / timed.peer_seconds:.2f}"
    return [
        timed.case,
        _rounded(least * 1e6),
        _rounded(timed.seconds * 1e6),
        _bar(least / timed.seconds),
        peer,
        ratio,
    ]


def work_of(entry: OpEntry, op: type[Op], case: WorkloadCase) -> Work:
    """Return the least work of a case, from a call on meta tensors and the contents of its metadata."""
    construct: Callable[..., Op] = op
    parameters = {
        name: torch.ones(value.shape, dtype=value.dtype) if isinstance(value, TensorCase) else value
        for name, value in case.parameters.items()
    }
    if not case.tensors:
        parameters["device"] = "meta"
    instance = construct(**parameters)
    tensors = [
        None if tensor is None else torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        for tensor in case.tensors.values()
    ]
    instance(*tensors)
    contents = workloads.metadata(entry, case)
    cost = cost_of(instance.last_call.observing(contents) if contents else instance.last_call)
    floats = [found.dtype.itemsize for found in tensors if found is not None and found.dtype.is_floating_point]
    return Work(cost.flops, cost.bytes, max(floats, default=4) <= 2)


def _bar(share: float) -> str:
    """Return a number with a bar of its length, 1 being full."""
    width = round(100 * min(share, 1.0))
    return f'<span class="bar"><span style="width: {width}%"></span></span> {share:.2f}'


def _rounded(number: float) -> str:
    """Return three significant digits, without an exponent."""
    if number == 0:
        return "0"
    return f"{number:,.{max(0, 2 - math.floor(math.log10(number)))}f}"


def _sizes(case: WorkloadCase) -> str:
    return ", ".join(
        f"{name} {show_dtype(tensor.dtype)} {show_shape(tensor.shape)}"
        for name, tensor in case.tensors.items()
        if tensor is not None
    )
