"""Modes of torch around a call, and calls that reach the boundary late: they work, or say what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.elementwise import ReluFwdOp
from tileops.errors import DTypeError
from tileops.norm import RMSNormFwdOp
from tileops_testing.numerics import assert_identical
from tileops_testing.suites.suite import cloned

from .branch_calls import BranchCall, each_branch
from .comparing import assert_same

NORM, RELU = pytest.mark.op("RMSNormFwdOp"), pytest.mark.op("ReluFwdOp")


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    """Each test compiles cold."""
    torch.compiler.reset()


@each_branch()
def test_a_fake_call_before_the_first_real_one_leaves_nothing(call: BranchCall, tileops_device: torch.device) -> None:
    """Whatever was faked, under FakeTensorMode or while compiling, the real call is that of a fresh instance."""
    op, fresh = call.construct(), call.construct()
    inputs, buffers = call.arguments(tileops_device)
    with FakeTensorMode() as mode:
        fakes = [None if tensor is None else mode.from_tensor(tensor) for tensor in inputs]
        op(*fakes, **{name: mode.from_tensor(tensor) for name, tensor in buffers.items()})
    copies, other_buffers = cloned(inputs), {name: tensor.clone() for name, tensor in buffers.items()}

    assert_same(op(*inputs, **buffers), fresh(*copies, **other_buffers))


@NORM
def test_an_op_made_under_a_meta_device_serves_real_tensors(tileops_device: torch.device) -> None:
    """`torch.device("meta")` around the construction makes no parameter of the op a meta tensor."""
    with torch.device("meta"):
        op = RMSNormFwdOp((64,))
        assert op(torch.empty(3, 64)).device.type == "meta"
        assert op(torch.ones(3, 64, device=tileops_device)).device.type == tileops_device.type


@NORM
def test_functionalize_takes_an_op_that_writes_nothing(tileops_device: torch.device) -> None:
    """`torch.func.functionalize` around a pure op changes nothing."""
    op, x = RMSNormFwdOp((64,)), torch.randn(3, 64, device=tileops_device)
    function: Callable[[Tensor], Tensor] = torch.func.functionalize(lambda x: op(x) + 1)

    assert_identical(function(x), op(x) + 1)


@RELU
def test_functionalize_refuses_an_op_that_writes(tileops_device: torch.device) -> None:
    """Outside a compiler torch functionalizes its own writing operators alone; its error names ours."""
    op, x = ReluFwdOp(inplace=True), torch.full((2, 3), -1.0, device=tileops_device)

    with pytest.raises(RuntimeError, match=r"tileops::elementwise_relu_fwd_writes_input\(Tensor\(a0!\) input"):
        torch.func.functionalize(op)(x)
    assert x.eq(-1).all()


@NORM
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_autocast_casts_nothing(compiled: bool, tileops_device: torch.device) -> None:
    """An op follows its inputs under autocast, and what torch has cast beside it is refused where dtypes do not go."""
    op = RMSNormFwdOp((64,))
    run = torch.compile(op, fullgraph=True, backend="aot_eager") if compiled else op
    x, weight = torch.randn(3, 64, device=tileops_device), torch.ones(64, device=tileops_device)
    with torch.autocast(tileops_device.type, torch.bfloat16):
        assert run(x, weight).dtype is torch.float32
        cast = x @ torch.eye(64, device=tileops_device)
        assert run(cast, weight).dtype is torch.bfloat16
        with pytest.raises((DTypeError, RuntimeError), match=r"received \(x=bfloat16, weight=float16\); convert"):
            run(cast, weight.half())


@NORM
def test_one_compiled_function_serves_inference_mode_and_training(tileops_device: torch.device) -> None:
    """Compiled in inference mode first, the function works outside, with and without a gradient, and in it again."""
    op = RMSNormFwdOp((64,))
    compiled = torch.compile(lambda x: op(x) * 2, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 64, device=tileops_device)
    expected = op(x) * 2
    with torch.inference_mode():
        assert_identical(compiled(x), expected)
    assert_identical(compiled(x), expected)
    y = compiled(x.clone().requires_grad_())
    assert y.requires_grad
    assert_identical(y.detach(), expected)
    with torch.inference_mode():
        assert_identical(compiled(x), expected)


@RELU
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_an_inference_tensor_is_written_in_inference_mode_alone(compiled: bool, tileops_device: torch.device) -> None:
    """Outside it PyTorch's own error is raised, eagerly before anything is written."""
    op = ReluFwdOp(inplace=True)
    run = torch.compile(op, fullgraph=True, backend="aot_eager") if compiled else op
    with torch.inference_mode():
        x = torch.full((2, 3), -1.0, device=tileops_device)
        run(x)
        assert x.eq(0).all()
        x.fill_(-1)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
        run(x)
    assert compiled or x.eq(-1).all()


def constructs(x: Tensor) -> Tensor:
    """Constructs its op on every call."""
    y: Tensor = RMSNormFwdOp((64,))(x)
    return y + 1


def asks(x: Tensor) -> Tensor:
    """Asks for the shared op on every call."""
    y: Tensor = RMSNormFwdOp.shared((64,))(x)
    return y + 1


@NORM
@pytest.mark.skipif(
    torch.torch_version.TorchVersion(torch.__version__) < "2.12",
    reason="dynamo before torch 2.12 ends a construction in compiled code with an internal error",
)
@pytest.mark.parametrize("function", [constructs, asks])
def test_an_op_constructed_in_compiled_code(function: Callable[[Tensor], Tensor], tileops_device: torch.device) -> None:
    """fullgraph=True refuses the construction; without, the graph breaks there and every call is right."""
    with pytest.raises(Unsupported):
        torch.compile(function, fullgraph=True, backend="eager")(torch.ones(3, 64, device=tileops_device))
    torch.compiler.reset()
    compiled = torch.compile(function, backend="aot_eager")
    for batch in (3, 5, 3):
        x = torch.randn(batch, 64, device=tileops_device)
        assert_identical(compiled(x), function(x))
