"""The compile boundary: one opaque node, its schema and fake, and calls that need gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from tileops.errors import GradientError, ShapeError

from .toys import ScaledFwdOp, ScaledKernel


class Capture:
    """A compiler backend that keeps the graphs that it is given and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, _: object) -> object:
        self.graphs.append(graph)
        return graph.forward

    def calls(self) -> list[str]:
        return [str(node.target) for graph in self.graphs for node in graph.graph.nodes if node.op == "call_function"]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    """Each test compiles cold."""
    torch._dynamo.reset()


def test_the_operator_is_named_by_family_and_class() -> None:
    """The name is generated, and the schema takes the inputs and the instance key and writes nothing."""
    operator = torch.ops.tileops.toy_scaled_fwd.default

    assert ScaledFwdOp.compile_op_names == ("tileops::toy_scaled_fwd",)
    assert str(operator._schema) == "tileops::toy_scaled_fwd(Tensor x, Tensor? bias, str instance_key) -> Tensor"
    assert not operator._schema.is_mutable


def test_a_compiled_call_is_one_node_from_the_first_call_on() -> None:
    """The first call of an instance may be inside a compiled function; the node carries the instance's key."""
    op, capture = ScaledFwdOp(), Capture()
    compiled = torch.compile(lambda x, b: op(x, b).relu(), fullgraph=True, backend=capture)

    assert torch.equal(compiled(torch.ones(2), torch.ones(2)), torch.full((2,), 3.0))
    assert [call for call in capture.calls() if "tileops" in call] == ["tileops.toy_scaled_fwd.default"]
    assert op._instance_key in capture.graphs[0].code


def test_sizes_stay_dynamic() -> None:
    """Under dynamic=True batches of 3, 17 and 4096 share one graph."""
    op, capture = ScaledFwdOp(), Capture()
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=capture)
    for batch in (3, 17, 4096):
        assert compiled(torch.ones(batch, 4)).shape == (batch, 4)

    assert len(capture.graphs) == 1


def test_the_fake_promises_contiguous_outputs() -> None:
    """For a transposed input the fake and the real result have the same strides, those of a contiguous tensor."""
    op, x = ScaledFwdOp(), torch.randn(5, 3).t()
    with FakeTensorMode() as mode:
        fake = op(mode.from_tensor(x))

    assert op(x).stride() == fake.stride() == (5, 1)


def test_tracing_leaves_no_record_and_builds_nothing() -> None:
    """A call on fake tensors is metadata only."""
    op = ScaledFwdOp()
    with FakeTensorMode() as mode:
        op(mode.from_tensor(torch.ones(2)))

    assert (op._running.last_call, op.serving_target, ScaledKernel.builds) == (None, None, 0)


def test_a_wrong_call_has_our_text_when_traced() -> None:
    """The error of a traced call contains the eager call's message."""
    op = ScaledFwdOp()
    with pytest.raises(ShapeError) as eager:
        op(torch.ones(2), torch.ones(3))
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError) as traced:
        torch.compile(op, fullgraph=True)(torch.ones(2), torch.ones(3))

    assert str(eager.value) in str(traced.value)


def test_opcheck_passes() -> None:
    """PyTorch's own checks of schema, fake and ahead-of-time dispatch accept the operator."""
    op = ScaledFwdOp()
    torch.library.opcheck(
        torch.ops.tileops.toy_scaled_fwd.default, (torch.randn(3, 4), torch.randn(3, 4), op._instance_key)
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_backward_raises_and_forward_works(compiled: bool) -> None:
    """With an input that requires a gradient the forward is right, and backward names the op and the mend."""
    op = ScaledFwdOp()
    run = torch.compile(op, fullgraph=True, backend="aot_eager") if compiled else op
    x = torch.ones(2, requires_grad=True)
    y: Tensor = run(x)

    assert y.requires_grad
    assert torch.equal(y.detach(), torch.full((2,), 2.0))
    with pytest.raises(GradientError) as caught:
        y.sum().backward()

    assert str(caught.value) == (
        "ScaledFwdOp: backward through its output is not defined; expected a call that needs no gradient, received an "
        "input with requires_grad=True; call it under torch.no_grad(), detach its inputs, or differentiate a reference "
        "implementation"
    )


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradient_is_asked_for_without_grad_mode(mode: type[torch.no_grad]) -> None:
    """Where gradients are off the operator is called directly."""
    with mode():
        y = ScaledFwdOp()(torch.ones(2, requires_grad=True))

    assert not y.requires_grad


def test_only_the_inputs_that_need_it_are_differentiated() -> None:
    """A gradient through another path is not reached when the op's share cannot be had."""
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(GradientError, match="ScaledFwdOp"):
        (ScaledFwdOp()(torch.ones(2), x).sum() + x.sum()).backward()

    assert x.grad is None


def test_two_instances_and_two_functions() -> None:
    """One instance serves two compiled functions, and two instances one function, each with its own parameters."""
    double, triple = ScaledFwdOp(2.0), ScaledFwdOp(3.0)
    both = torch.compile(lambda x: double(x) + triple(x), fullgraph=True, backend="aot_eager")
    again = torch.compile(lambda x: double(x) - 1, fullgraph=True, backend="aot_eager")

    assert torch.equal(both(torch.ones(2)), torch.full((2,), 5.0))
    assert torch.equal(again(torch.ones(2)), torch.full((2,), 1.0))


def test_boundary_code_can_be_read() -> None:
    """The generated call is in the line cache under a name of its own, as tracebacks need it."""
    import inspect

    assert "def _call_boundary(self, x=MISSING, bias=None" in inspect.getsource(ScaledFwdOp._call_boundary)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own, of the batches that jacrev makes
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev])
def test_function_transforms_raise_the_same_error(transform: Callable[..., Callable[[Tensor], Tensor]]) -> None:
    """A transform that differentiates through an op meets the error that backward raises."""
    op = ScaledFwdOp()
    with pytest.raises(GradientError, match="ScaledFwdOp: backward through its output is not defined"):
        transform(lambda x: op(x).sum())(torch.ones(2))


def test_tangents_are_not_dropped() -> None:
    """Forward-mode differentiation through an op raises and names it; without tangents the call is as ever."""
    op = ScaledFwdOp()
    with forward_ad.dual_level():
        with pytest.raises(GradientError) as caught:
            op(forward_ad.make_dual(torch.ones(2), torch.ones(2)))
        assert torch.equal(op(torch.ones(2)), torch.full((2,), 2.0))
    assert str(caught.value) == (
        "ScaledFwdOp: a forward-mode derivative of its output is not defined; expected inputs without tangents, "
        "received one with a tangent; call it outside torch.func.jvp and torch.autograd.forward_ad, or differentiate a "
        "reference implementation"
    )
    with pytest.raises(GradientError, match="ScaledFwdOp: a forward-mode derivative"):
        torch.func.jvp(op, (torch.ones(2),), (torch.ones(2),))
