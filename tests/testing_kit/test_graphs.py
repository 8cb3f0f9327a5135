"""Captured graphs: what nodes call, and calls repeated outside the graph; fakes held against what is real."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tileops_testing.errors import CheckFailedError
from tileops_testing.fakes import TensorFacts, assert_facts, facts_of, fake_outputs
from tileops_testing.graphs import RecordingBackend

from . import toys


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch.compiler.reset()


def test_nodes_are_named_by_what_they_call() -> None:
    """Operators, methods and functions are named in the order of the graph."""
    op, backend = toys.Doubling(), RecordingBackend("eager")

    def function(x: Tensor) -> Tensor:
        return torch.sin(op(x).relu()) + 1

    torch.compile(function, fullgraph=True, backend=backend)(torch.ones(2, 5))
    assert len(backend.graphs) == 1
    assert backend.names() == ("tileops_toys::double", "Tensor.relu", "torch.sin", "_operator.add")


def test_graph_break_gives_two_graphs() -> None:
    """Without fullgraph, a break shows as a second graph."""
    op, backend = toys.Doubling(), RecordingBackend("eager")

    def function(x: Tensor) -> Tensor:
        y = op(x)
        torch._dynamo.graph_break()
        return op(y)

    torch.compile(function, backend=backend)(torch.ones(2, 5))
    assert [graph.names for graph in backend.graphs] == [("tileops_toys::double",), ("tileops_toys::double",)]


def test_operator_calls_repeat_the_last_run() -> None:
    """An operator's call is given back with the tensors of the last run in place, the key included."""
    op, backend = toys.Doubling(), RecordingBackend("eager")
    x = torch.arange(10.0).view(2, 5)
    torch.compile(lambda value: op(value), fullgraph=True, backend=backend)(x)  # noqa: PLW0108
    (call,) = backend.graphs[0].operator_calls("tileops_toys::double")
    assert call.args[1] == op.key
    assert torch.equal(call.operator(*call.args, **call.kwargs), 2 * x)
    assert backend.graphs[0].operator_calls("aten::relu") == ()


def test_fakes_see_views() -> None:
    """The fake of a transposed view has its strides, and the facts of a fake are those of the real tensor."""
    x = torch.ones(3, 5).t()
    assert fake_outputs(toys.StridesOfInput(), (x,)) == (TensorFacts((5, 3), torch.float32, x.device, (1, 5)),)


@pytest.mark.parametrize(
    ("promised", "message"),
    [
        (torch.empty(3, 5), r"^call: output 0: shape: the fake promises \(3, 5\), the call gave \(5, 3\)$"),
        (
            torch.empty(5, 3).half(),
            r"^call: output 0: dtype: the fake promises torch.float16, the call gave torch.float32$",
        ),
        (torch.empty(3, 5).t(), r"^call: output 0: strides: the fake promises \(1, 5\), the call gave \(3, 1\)$"),
        (torch.empty(5, 3, device="meta"), r"^call: output 0: device: the fake promises meta, the call gave cpu$"),
        (None, r"^call: output 0: the fake promises None, the call gave TensorFacts\("),
    ],
)
def test_first_fact_that_differs_is_reported(promised: Tensor | None, message: str) -> None:
    """Shape, dtype, device and strides are compared, and the message says which differs and how."""
    with pytest.raises(CheckFailedError, match=message):
        assert_facts([facts_of(promised)], [torch.empty(5, 3)])


def test_number_of_outputs_is_compared() -> None:
    """A fake with fewer outputs than the call is reported."""
    with pytest.raises(CheckFailedError, match=r"^call: the fake gives 0 outputs, the call 1$"):
        assert_facts([], [torch.empty(1)])
