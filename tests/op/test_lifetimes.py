"""What an op holds and gives away: no tensor of a call, one entry for many threads, equal copies."""

from __future__ import annotations

import base64
import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from tileops_testing.catalog import implemented_ops
from tileops_testing.workload_cases import cases_of

from .branch_calls import BranchCall, branch_calls
from .comparing import assert_same

THREADS = 16


def _calls() -> Iterator[Any]:
    """A small call of every effect branch, and of every op without a compile boundary."""
    for call in branch_calls():
        yield pytest.param(call, id=call.operator.removeprefix("tileops::"), marks=pytest.mark.op(call.case.op_name))
    for op in implemented_ops():
        if not op.compile_op_names:
            case = min(cases_of(op, small=True), key=lambda case: case.largest_input())
            yield pytest.param(BranchCall(case, "", False), id=op.__name__, marks=pytest.mark.op(op.__name__))


EVERY_CALL = pytest.mark.parametrize("call", list(_calls()))


def on(call: BranchCall, device: torch.device) -> BranchCall:
    """The call with its construction-time parameters for `device`."""
    return BranchCall(call.case.on(device), call.operator, call.buffered)


def run(op: Any, call: BranchCall, device: torch.device) -> Any:
    """The outputs of the call, a tuple of one too."""
    inputs, buffers = call.arguments(device)
    result = op(*inputs, **buffers)
    return result if isinstance(result, tuple) else (result,)


@EVERY_CALL
def test_no_tensor_of_a_call_is_kept(call: BranchCall, tileops_device: torch.device) -> None:
    """Inputs, buffers and outputs go when the caller drops them; the record stays and can be read."""
    op = on(call, tileops_device).construct()
    inputs, buffers = call.arguments(tileops_device)
    result = op(*inputs, **buffers)
    outputs = result if isinstance(result, tuple) else (result,)
    passed = [item for item in (*inputs, *buffers.values(), *outputs) if item is not None]
    alive = [weakref.ref(item) for item in passed]
    del inputs, buffers, result, outputs, passed
    gc.collect()

    assert [reference() for reference in alive] == [None] * len(alive)
    assert op.last_call.tensors


@EVERY_CALL
def test_a_dropped_instance_goes_with_its_kernels(call: BranchCall, tileops_device: torch.device) -> None:
    """Nothing in the library holds an instance that has computed, nor what it has built."""
    op = on(call, tileops_device).construct()
    run(op, call, tileops_device)
    alive = [weakref.ref(op), *map(weakref.ref, op.iter_kernels())]
    assert len(alive) > 1
    del op
    gc.collect()

    assert [reference() for reference in alive] == [None] * len(alive)


def through_pickle(op: Any) -> Any:
    """The op, through bytes."""
    return pickle.loads(pickle.dumps(op))  # noqa: S301


@pytest.mark.parametrize("duplicate", [copy.deepcopy, through_pickle])
@EVERY_CALL
def test_a_copy_gives_the_same_bits(
    call: BranchCall, duplicate: Callable[[Any], Any], tileops_device: torch.device
) -> None:
    """With equal parameters, a key of its own, and nothing selected, built or recorded before its first call."""
    op = on(call, tileops_device).construct()
    expected = run(op, call, tileops_device)
    twin = duplicate(op)

    assert (repr(twin), twin.compile_op_names) == (repr(op), op.compile_op_names)
    assert twin._instance_key != op._instance_key
    assert (twin.serving_target, list(twin.iter_kernels()), twin._running.last_call) == (None, [], None)
    assert_same(run(twin, call, tileops_device), expected)


@EVERY_CALL
def test_threads_that_call_first_together_build_once(call: BranchCall, tileops_device: torch.device) -> None:
    """16 threads with a new instance get the bits of one thread's call, from as many kernels as that builds."""
    alone, op = on(call, tileops_device).construct(), on(call, tileops_device).construct()
    expected, barrier = run(alone, call, tileops_device), threading.Barrier(THREADS)
    arguments = [call.arguments(tileops_device) for _ in range(THREADS)]

    def work(index: int) -> Any:
        inputs, buffers = arguments[index]
        barrier.wait()
        result = op(*inputs, **buffers)
        return result if isinstance(result, tuple) else (result,)

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))

    for result in results:
        assert_same(result, expected)
    assert len(list(op.iter_kernels())) == len(list(alone.iter_kernels()))


LOADS = """
import base64, pickle, sys
for line in sys.stdin:
    op = pickle.loads(base64.b64decode(line))
    print(repr(op), op.serving_target, len(op.held_delegates()))
"""


def test_a_pickle_is_read_by_another_process() -> None:
    """A process that has imported nothing of the library makes the same ops, as a data loader's worker does."""
    ops = [parameter.values[0].construct() for parameter in _calls()]
    done = subprocess.run(
        [sys.executable, "-c", LOADS],
        cwd=str(Path(__file__).parents[2]),
        input="\n".join(base64.b64encode(pickle.dumps(op)).decode() for op in ops),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"{op!r} None {len(op.held_delegates())}" for op in ops]
