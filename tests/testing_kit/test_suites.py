"""The suites catch every way in which a toy op is wrong, and pass the right one."""

from __future__ import annotations

import pytest
import torch

from tileops_testing.errors import CheckFailedError
from tileops_testing.suites import Check, CompileContractSuite, CudaGraphSuite, EagerSuite

from . import toys

CPU = torch.device("cpu")
COMPILE = CompileContractSuite(backend="aot_eager")
GRAPH = CudaGraphSuite(recorder=toys.HostRecorder, device_type="cpu")


def names(checks: tuple[Check, ...]) -> list[str]:
    return [check.name for check in checks if check.outcome == "passed"]


def test_eager_passes_a_right_op() -> None:
    """Every check of the eager suite passes on an op that is right."""
    checks = EagerSuite().run(toys.doubling_case(toys.Doubling), device=CPU)
    assert names(checks) == ["output", "record", "effect", "strides", "second call", "layouts", "zero size"]


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (toys.WrongKernel, r"output: output 0: 1 of 15 elements disagree; worst at \[2, 4\]: expected .*, received "),
        (toys.UnwrittenTail, r"worst at \[2, 4\]: expected .*, received nan \(NaN against a number\)"),
        (toys.WritesInput, r"effect: input x, which the call must not write: .* elements disagree"),
        (toys.RowStrideIgnored, r"layouts: transposed inputs: output 0 against dense inputs"),
        (
            toys.StridesOfInput,
            r"layouts: transposed inputs: output 0: strides: the fake promises \(1, 3\), .* \(5, 1\)",
        ),
        (toys.StaleInput, r"second call: output 0: 15 of 15 elements disagree"),
        (toys.ReusesOutput, r"second call: output 0 of the second call lies in the storage of the first call's"),
        (toys.BuildsEachTime, r"second call: a call with equal shapes and dtypes went from 1 kernels to 2"),
        (toys.WrongRecord, r"record: x: was passed, the record lacks it"),
        (toys.BuildsOnEmpty, r"zero size: a call that writes no element built a kernel"),
    ],
)
def test_eager_catches(op: type[toys.Doubling], message: str) -> None:
    """The eager suite fails a wrong op, and its report says which check, which element and both values."""
    with pytest.raises(CheckFailedError, match=message):
        EagerSuite().run(toys.doubling_case(op), device=CPU)


def test_compile_contract_passes_a_right_op() -> None:
    """Every check of the compile suite passes on an op that is right."""
    checks = COMPILE.run(toys.doubling_case(toys.Doubling), device=CPU)
    assert names(checks) == ["cold", "one node", "equals eager", "strides", "dynamic", "opcheck"]


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (
            toys.GraphBreak,
            r"cold: a graph break, which fullgraph=True refuses: Call to `torch._dynamo.graph_break\(\)`",
        ),
        (
            toys.SecondNode,
            r"one node: one call node out of \['tileops_toys::double'\] expected, captured .*'Tensor.abs'",
        ),
        (toys.WritesOnlyEagerly, r"equals eager: input x after the call, compiled against eager: 15 of 15 elements"),
        (toys.RaisingFake, r"cold: torch.compile refuses the call: (?s:.*)no fake today"),
        (toys.Specialises, r"dynamic: .* need one graph with dynamic=True, compiled 2"),
        (toys.UnwrittenTail, r"equals eager"),
        (toys.WritesInput, r"opcheck: test_schema of tileops_toys.double.default: .*mutate"),
    ],
)
def test_compile_contract_catches(op: type[toys.Doubling], message: str) -> None:
    """The compile suite fails a graph break, a second node, a specialised size, an undeclared write."""
    with pytest.raises(CheckFailedError, match=message):
        COMPILE.run(toys.doubling_case(op), device=CPU)


def test_a_failure_shows_the_captured_graph() -> None:
    """Below the failed checks stands each captured graph as code, so that a reader sees what came beside the node."""
    with pytest.raises(CheckFailedError) as caught:
        COMPILE.run(toys.doubling_case(toys.SecondNode), device=CPU)

    title, *_ = str(caught.value).splitlines()
    graph = str(caught.value).partition("captured graph:\n")[2]
    assert title == "compile_contract: SecondNode-toy on cpu: 4 of 6 checks failed"
    assert [check.name for check in caught.value.checks if check.outcome == "failed"][:2] == [
        "one node",
        "equals eager",
    ]
    assert "def forward(self, L_tensors_0_" in graph
    assert ".abs()" in graph
    assert "torch.ops.tileops_toys.double.default(" in graph


def test_a_second_compilation_shows_where_the_graphs_part() -> None:
    """When another size needs another graph, the message shows the first line that differs."""
    with pytest.raises(CheckFailedError, match=r"compiled 2; the first line to differ reads '.*' and then '.*'|guard"):
        COMPILE.run(toys.doubling_case(toys.Specialises), device=CPU)


def test_a_composite_is_held_to_its_stages_nodes() -> None:
    """Of an op without a node of its own the graph holds its stages' nodes, and nothing else."""
    checks = COMPILE.run(toys.doubling_case(toys.Composite), device=CPU)
    assert names(checks) == ["cold", "stages' nodes", "equals eager", "strides", "dynamic", "opcheck"]
    with pytest.raises(CheckFailedError, match=r"stages' nodes: .* the first other: Tensor\.abs"):
        COMPILE.run(toys.doubling_case(toys.StrayNode), device=CPU)


def test_compile_contract_says_why_an_op_without_boundary_is_not_run() -> None:
    """An op class without operators is reported as not run, with the reason."""

    class NoBoundary(toys.Doubling):
        compile_op_names = ()

    reason = COMPILE.unavailable(toys.doubling_case(NoBoundary), CPU)
    assert reason == "NoBoundary has no compile boundary (compile_op_names is empty)"


def test_cuda_graph_passes_a_right_op() -> None:
    """Every check of the graph suite passes on an op that is right."""
    checks = GRAPH.run(toys.doubling_case(toys.Doubling), device=CPU)
    assert names(checks) == [
        "cold capture",
        "warm call",
        "capture builds and waits for nothing",
        "replay on new data",
        "replay on a side stream",
        "twice in one graph",
    ]


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (toys.StaleInput, r"replay on new data: output 0: 15 of 15 elements disagree"),
        (toys.UnwrittenTail, r"replay on new data: .*worst at \[2, 4\]: expected .*, received "),
        (toys.WritesInput, r"replay on new data: input x: the replay changed it"),
        (toys.RefusesWithoutReason, r"cold capture: expected one line that asks for a warm-up call .* received: no$"),
        (toys.SkipsRepeated, r"twice in one graph: output 0: 15 of 15 elements disagree"),
        (toys.WrongWhenCold, r"cold capture: output 0: 15 of 15 elements disagree"),
        (toys.BuildsEachTime, r"capture builds and waits for nothing: capturing went from 3 kernels to 4"),
    ],
)
def test_cuda_graph_catches(op: type[toys.Doubling], message: str) -> None:
    """The graph suite fails a stale input, an unwritten element, an undeclared write, a build while capturing."""
    with pytest.raises(CheckFailedError, match=message):
        GRAPH.run(toys.doubling_case(op), device=CPU)


def test_cuda_graph_takes_a_cold_capture_that_is_right() -> None:
    """An op with nothing left to build may be captured cold, if the replay is right; the check says which it was."""
    refused = GRAPH.run(toys.doubling_case(toys.Doubling), device=CPU)[0]
    captured = GRAPH.run(toys.doubling_case(toys.BuildsWhileCapturing), device=CPU)[0]
    assert refused.detail == "refused: Doubling: call it once before capturing, to warm it up"
    assert captured.detail == "captured: nothing was left to build"


def test_cuda_graph_says_why_it_is_not_run_without_cuda() -> None:
    """On a device that captures no graphs the suite gives the reason."""
    reason = CudaGraphSuite().unavailable(toys.doubling_case(toys.Doubling), CPU)
    assert reason == "CUDA graphs need a CUDA device, the device is cpu"
