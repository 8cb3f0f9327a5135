"""Every branch of every op on CUDA: captured cold, under mode="reduce-overhead", on a device that is not current."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tileops_testing.cases import Inputs
from tileops_testing.catalog import implemented_ops
from tileops_testing.graphs import CudaGraphRecorder, copy_into
from tileops_testing.suites.suite import cloned
from tileops_testing.workload_cases import cases_of

from .branch_calls import BranchCall, branch_calls, each_branch
from .comparing import assert_same

WITHOUT_BOUNDARY = [op for op in implemented_ops() if not op.compile_op_names]

COLD_CAPTURES = """
import json, sys, warnings
import torch
from tests.op.comparing import assert_same
from tests.op.test_cuda_calls import every_call
from tileops_kernels.build import cuda
from tileops_testing.suites.suite import cloned

warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
device, rows = torch.device(sys.argv[1]), {}
for call in every_call(device):
    cuda._BUILDER = cuda.CUDABuilder()
    op = call.construct()
    inputs, buffers = call.arguments(device)
    copies, other_buffers = cloned(inputs), {name: tensor.clone() for name, tensor in buffers.items()}
    refusal = ""
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            op(*inputs, **buffers)
    except RuntimeError as error:
        refusal = str(error)
    left = [len(list(op.iter_kernels())), op.serving_target]
    expected = op(*copies, **other_buffers)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = op(*inputs, **buffers)
    graph.replay()
    torch.cuda.synchronize()
    assert_same(results, expected)
    assert_same((*inputs, *buffers.values()), (*copies, *other_buffers.values()))
    rows[call.operator] = [refusal, *left]
print(json.dumps(rows))
"""


def every_call(device: torch.device) -> Iterator[BranchCall]:
    """One call per branch, then one per op without a compile boundary, under the op's name."""
    yield from branch_calls()
    for op in WITHOUT_BOUNDARY:
        cases = sorted(cases_of(op, small=True), key=lambda case: case.largest_input())
        yield BranchCall(cases[-1].on(device), op.__name__, buffered=False)


def require_cuda(device: torch.device) -> None:
    """Skip, with the reason, where there is no CUDA device to test on."""
    if device.type != "cuda":
        pytest.skip(f"CUDA graphs need a CUDA device, the device is {device}")


@pytest.fixture(scope="module")
def captured_cold(tileops_device: torch.device) -> dict[str, list[Any]]:
    """What a fresh process found that captured each call before any other, and then warmed it up."""
    require_cuda(tileops_device)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", COLD_CAPTURES, str(tileops_device)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr
    rows: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


NAMES = [
    *[pytest.param(call.operator, marks=pytest.mark.op(call.case.op_name)) for call in branch_calls()],
    *[pytest.param(op.__name__, marks=pytest.mark.op(op.__name__)) for op in WITHOUT_BOUNDARY],
]


@pytest.mark.parametrize("name", NAMES)
def test_a_cold_capture_asks_for_a_warm_up(name: str, captured_cold: dict[str, list[Any]]) -> None:
    """It is refused in one line and leaves neither kernel nor target; warmed up, the same process captures and replays.

    The process compares the replay with a plain call itself.
    """
    refusal, *left = captured_cold[name]

    assert "expected a warmed-up call, received the first one; make the same call once before capturing" in refusal
    assert "\n" not in refusal
    assert left == [0, None]


@each_branch()
def test_reduce_overhead(call: BranchCall, tileops_device: torch.device) -> None:
    """Where torch captures CUDA graphs itself, six calls on new data in a row give eager's bits."""
    require_cuda(tileops_device)
    torch.compiler.reset()
    op = call.construct()
    compiled: Any = torch.compile(op, fullgraph=True, mode="reduce-overhead")
    for fresh in range(6):
        inputs, buffers = call.arguments(tileops_device, fresh=fresh)
        copies, other_buffers = cloned(inputs), {name: tensor.clone() for name, tensor in buffers.items()}
        expected = op(*copies, **other_buffers)
        torch.compiler.cudagraph_mark_step_begin()
        assert_same(compiled(*inputs, **buffers), expected)
        assert_same((*inputs, *buffers.values()), (*copies, *other_buffers.values()))


@each_branch()
def test_a_device_that_is_not_current(call: BranchCall, tileops_device: torch.device) -> None:
    """One instance serves two cards in turn, captured on the second too, and the current device stays the first."""
    require_cuda(tileops_device)
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices, there is one")
    op, first, second = call.construct(), torch.device("cuda", 0), torch.device("cuda", 1)
    with torch.cuda.device(first):
        results = []
        for device in (second, first, second):
            inputs, buffers = call.arguments(device)
            result = op(*inputs, **buffers)
            assert torch.cuda.current_device() == 0
            after = left_by(result, inputs)
            assert {tensor.device for tensor in after} == {device}
            results.append(tuple(tensor.cpu() for tensor in after))
    fresh = call.case.tensors(second)
    inputs, buffers = call.arguments(second)
    with torch.cuda.device(second):
        recorder = CudaGraphRecorder()
        captured = recorder.capture(lambda: op(*inputs, **buffers))
        copy_into(inputs, fresh)
        recorder.replay()
    replayed = left_by(captured, inputs)

    assert_same(results[1], results[0])
    assert_same(results[2], results[0])
    assert_same(tuple(tensor.cpu() for tensor in replayed), results[0])


def left_by(result: Any, inputs: Inputs) -> list[torch.Tensor]:
    """What a call returned, and its inputs as it left them: some ops write these and return nothing."""
    outputs = result if isinstance(result, tuple) else (result,)
    return [tensor for tensor in (*outputs, *inputs) if tensor is not None]


def copied(call: BranchCall, device: torch.device, *, fresh: int) -> tuple[Any, Any]:
    """The result of an eager call on values of its own, and the tensors that it was called with, as it left them."""
    inputs, buffers = call.arguments(device, fresh=fresh)
    result = call.construct()(*inputs, **buffers)
    return result, (*inputs, *buffers.values())


@each_branch()
def test_a_call_runs_on_the_current_stream(call: BranchCall, tileops_device: torch.device) -> None:
    """On a side stream that is still busy, a call waits its turn: it reads what that stream puts into its inputs."""
    require_cuda(tileops_device)
    op = call.construct()
    op(*call.arguments(tileops_device)[0], **call.arguments(tileops_device)[1])
    expected, left = copied(call, tileops_device, fresh=1)
    inputs, buffers = call.arguments(tileops_device)
    values = call.arguments(tileops_device, fresh=1)[0]
    torch.cuda.synchronize(tileops_device)
    stream = torch.cuda.Stream(tileops_device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # cycles: some tens of milliseconds
        copy_into(inputs, values)
        received = op(*inputs, **buffers)
    stream.synchronize()

    assert_same(received, expected)
    assert_same((*inputs, *buffers.values()), left)


@each_branch()
def test_a_capture_of_another_shape_than_warmed_up(call: BranchCall, tileops_device: torch.device) -> None:
    """It either replays right, or is refused with what to do and leaves the op usable."""
    require_cuda(tileops_device)
    larger = call.case.resized()
    assert larger is not None
    other = BranchCall(larger, call.operator, call.buffered)
    op, recorder = call.construct(), CudaGraphRecorder()
    op(*call.arguments(tileops_device)[0], **call.arguments(tileops_device)[1])
    expected, left = copied(other, tileops_device, fresh=1)
    inputs, buffers = other.arguments(tileops_device)
    try:
        received = recorder.capture(lambda: op(*inputs, **buffers))
    except RuntimeError as error:
        assert "make the same call once before capturing" in str(error)  # noqa: PT017 - a refusal is one of two right ends
        copy_into(inputs, other.arguments(tileops_device, fresh=1)[0])
        received = op(*inputs, **buffers)
    else:
        copy_into(inputs, other.arguments(tileops_device, fresh=1)[0])
        recorder.replay()

    assert_same(received, expected)
    assert_same((*inputs, *buffers.values()), left)
