"""RMSNormFwdOp in compiled code: one node, one compilation for all row counts, strides as promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tileops.norm import RMSNormFwdOp
from tileops_testing.fakes import assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.norm import rms_norm_fwd

pytestmark = pytest.mark.op("RMSNormFwdOp")

OPERATOR = "tileops::norm_rms_norm_fwd"


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch.compiler.reset()


def rows(count: int, device: torch.device, layout: Layout = "contiguous") -> Tensor:
    return TensorInput(shape=(count, 64), dtype=torch.float16, layout=layout).make(count, device)


def test_operator_name() -> None:
    """The class has one operator, named after family and class."""
    assert RMSNormFwdOp.compile_op_names == (OPERATOR,)


def test_one_node_beside_relu(tileops_device: torch.device) -> None:
    """`op(x, w).relu()` compiles cold to one graph of two nodes, of which one is the op's."""
    op, backend = RMSNormFwdOp((64,)), RecordingBackend()
    x, weight = rows(5, tileops_device), rows(1, tileops_device)[0]
    compiled = torch.compile(lambda x, w: op(x, w).relu(), fullgraph=True, backend=backend)
    y = compiled(x, weight)
    assert [graph.names for graph in backend.graphs] == [(OPERATOR, "Tensor.relu")]
    assert_close(y, rms_norm_fwd(x, weight, normalized_shape=(64,)).relu(), dtype=torch.float16, summed=64)
    assert len(list(op.iter_kernels())) == 1


def test_compiled_equals_eager(tileops_device: torch.device) -> None:
    """Compiled and eager calls give the same bits."""
    op, x = RMSNormFwdOp((64,)), rows(5, tileops_device)
    assert_identical(torch.compile(op, fullgraph=True)(x), op(x))


def test_dynamic_compiles_once(tileops_device: torch.device) -> None:
    """With dynamic=True one compilation serves batches of 3, 17 and 4096."""
    op, backend = RMSNormFwdOp((64,)), RecordingBackend()
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for count in (3, 17, 4096):
        x = rows(count, tileops_device)
        assert_close(compiled(x), rms_norm_fwd(x, normalized_shape=(64,)), dtype=torch.float16, summed=64)
    assert len(backend.graphs) == 1
    assert len(list(op.iter_kernels())) == 1


def test_marked_axis_compiles_once(tileops_device: torch.device) -> None:
    """An axis marked dynamic stays so: one compilation for every batch of two rows and more, right for one and none."""
    op, backend = RMSNormFwdOp((64,)), RecordingBackend()
    compiled = torch.compile(op, fullgraph=True, backend=backend)
    first = rows(16, tileops_device)
    torch._dynamo.mark_dynamic(first, 0)
    compiled(first)
    for count in (17, 100, 4097):
        compiled(rows(count, tileops_device))
    assert len(backend.graphs) == 1
    for count in (1, 0):
        assert compiled(rows(count, tileops_device)).shape == (count, 64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_fake_and_real_strides_agree(layout: Layout, count: int, tileops_device: torch.device) -> None:
    """What the fake promises for any layout, zero-size and one row included, eager and compiled calls return."""
    op, x = RMSNormFwdOp((64,)), rows(max(count, 1), tileops_device, layout)[:count]
    promised = fake_outputs(op, (x,))
    assert promised[0] is not None
    assert promised[0].strides == (64, 1)
    assert_facts(promised, [op(x)], situation="eager")
    assert_facts(promised, [torch.compile(op, fullgraph=True)(x)], situation="compiled")


def test_layout_dependent_consumer_reads_right_values(tileops_device: torch.device) -> None:
    """Code that inductor fuses after the node reads the op's output in the layout it has, for transposed inputs."""
    op, x = RMSNormFwdOp((64,)), rows(5, tileops_device, "transposed")

    def function(x: Tensor) -> Tensor:
        y: Tensor = op(x)
        return y.view(-1) * 2

    expected = rms_norm_fwd(x, normalized_shape=(64,)).reshape(-1) * 2
    assert_close(torch.compile(function, fullgraph=True)(x), expected, dtype=torch.float16, summed=64)


def test_tracing_builds_nothing_and_keeps_no_record(tileops_device: torch.device) -> None:
    """A fake call leaves no kernel, no target and no record on the instance, and the real call is right after it."""
    op, x = RMSNormFwdOp((64,)), rows(5, tileops_device)
    fake_outputs(op, (x,))
    assert list(op.iter_kernels()) == []
    assert op.serving_target is None
    assert_close(op(x), rms_norm_fwd(x, normalized_shape=(64,)), dtype=torch.float16, summed=64)


def test_meta_call_is_checked_and_recorded() -> None:
    """An eager call on meta tensors gives meta outputs and a record, and builds nothing."""
    op = RMSNormFwdOp((64,))
    y = op(torch.empty(3, 64, dtype=torch.float16, device="meta"))
    assert (y.shape, y.dtype, y.device.type, y.stride()) == ((3, 64), torch.float16, "meta", (64, 1))
    assert op.last_call.tensors["y"].shape == (3, 64)
    assert list(op.iter_kernels()) == []


def test_two_instances_in_one_graph(tileops_device: torch.device) -> None:
    """Two instances are two nodes of one graph, each with its own parameters."""
    plain, damped, backend = RMSNormFwdOp((64,)), RMSNormFwdOp((64,), eps=1.0), RecordingBackend()
    x = rows(5, tileops_device)
    compiled = torch.compile(lambda x: (plain(x), damped(x)), fullgraph=True, backend=backend)
    first, second = compiled(x)
    assert backend.names() == (OPERATOR, OPERATOR)
    assert_identical(first, plain(x))
    assert_identical(second, damped(x))


def test_one_instance_in_two_compiled_functions(tileops_device: torch.device) -> None:
    """One instance serves several compiled functions with one kernel."""
    op, x = RMSNormFwdOp((64,)), rows(5, tileops_device)
    functions: list[Callable[[Tensor], Tensor]] = [lambda x: op(x) + 1, lambda x: op(x) - 1]
    first, second = (torch.compile(function, fullgraph=True)(x) for function in functions)
    assert_close(first - second, torch.full((5, 64), 2.0, dtype=torch.float64), dtype=torch.float16, roundings=8)
    assert len(list(op.iter_kernels())) == 1


def test_unused_node_is_removed(tileops_device: torch.device) -> None:
    """A pure node whose output nobody reads is not run."""
    op, x = RMSNormFwdOp((64,)), rows(5, tileops_device)

    def function(x: Tensor) -> Tensor:
        op(x)
        return x + 1

    assert torch.equal(torch.compile(function, fullgraph=True)(x), x + 1)
    assert list(op.iter_kernels()) == []
