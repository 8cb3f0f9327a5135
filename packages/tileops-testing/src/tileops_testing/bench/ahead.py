"""Compiling ahead: cases run once in several processes, so that measuring finds what they compiled on disk."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

from tileops_testing.bench.peers import NO_PEERS, peers_for
from tileops_testing.cases import Case
from tileops_testing.catalog import family_of, op_class
from tileops_testing.workload_cases import cases_of

__all__ = ["compile_ahead"]


def compile_ahead(
    cases: Sequence[Case], device: torch.device, target: str | None, processes: int
) -> Iterator[tuple[str, str]]:
    """Run each case's op and peers once, in `processes` processes; yield each case's id and what went wrong, or ""."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        asked = {pool.submit(_run_once, case.op_name, case.label, str(device), target): case.id for case in cases}
        for done in as_completed(asked):
            error = done.exception()
            yield asked[done], "" if error is None else f"{type(error).__name__}: {error}"


def _run_once(name: str, label: str, device_name: str, target: str | None) -> None:
    import torch._inductor.config as inductor  # noqa: PLC0415 - takes seconds, and the parent process has no use for it

    inductor.compile_threads = 1  # the processes are the threads
    device = torch.device(device_name)
    case = next(case for case in cases_of(op_class(name), small=False) if case.label == label)
    inputs = case.tensors(device)
    peers = peers_for(name, family_of(name)) or NO_PEERS
    for function in (case.construct(target), *peers.available(case, device).values()):
        function(*inputs)  # type: ignore[operator]
