"""ReluFwdOp in compiled code: an operator for each effect branch, and writing that is never lost or reordered."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tileops.elementwise import ReluFwdOp
from tileops_testing.fakes import assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput

pytestmark = pytest.mark.op("ReluFwdOp")

OPERATOR, WRITING = "tileops::elementwise_relu_fwd", "tileops::elementwise_relu_fwd_writes_input"


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch.compiler.reset()


def signs(device: torch.device) -> Tensor:
    return torch.linspace(-1, 1, 60, device=device).reshape(6, 10)


def test_operator_names() -> None:
    """The class has an operator for a new tensor and one that writes its input."""
    assert ReluFwdOp.compile_op_names == (OPERATOR, WRITING)


def test_schemas() -> None:
    """The writing operator says which argument it writes, and returns nothing; the other writes nothing."""
    schemas = [str(torch.ops.tileops.elementwise_relu_fwd.default._schema)]
    schemas.append(str(torch.ops.tileops.elementwise_relu_fwd_writes_input.default._schema))
    assert schemas == [
        f"{OPERATOR}(Tensor input, str instance_key) -> Tensor",
        f"{WRITING}(Tensor(a0!) input, str instance_key) -> ()",
    ]


@pytest.mark.parametrize(("inplace", "operator"), [(False, OPERATOR), (True, WRITING)])
def test_one_node_of_its_branch(inplace: bool, operator: str, tileops_device: torch.device) -> None:
    """The captured graph holds the operator of the branch that the parameter decides, and equals eager."""
    op, backend = ReluFwdOp(inplace=inplace), RecordingBackend()
    compiled = torch.compile(op, fullgraph=True, backend=backend)
    x, y = signs(tileops_device), signs(tileops_device)
    assert torch.equal(compiled(x), op(y))
    assert torch.equal(x, y)
    assert backend.names() == (operator,)


def test_the_alias_is_the_very_object(tileops_device: torch.device) -> None:
    """Compiled and eager in-place calls return the tensor that they were given."""
    op = ReluFwdOp(inplace=True)
    for call in (op, torch.compile(op, fullgraph=True)):
        x = signs(tileops_device)
        assert call(x) is x
        assert not x.lt(0).any()


def test_an_unused_result_is_still_written(tileops_device: torch.device) -> None:
    """An in-place call whose result nobody reads is run, after earlier readers and before later ones."""
    op = ReluFwdOp(inplace=True)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        before = x + 1
        op(x)
        return before, x + 1

    x = signs(tileops_device)
    before, after = torch.compile(function, fullgraph=True)(x)
    assert torch.equal(before, signs(tileops_device) + 1)
    assert torch.equal(after, torch.relu(signs(tileops_device)) + 1)
    assert torch.equal(x, torch.relu(signs(tileops_device)))


def test_writing_a_temporary_and_a_view(tileops_device: torch.device) -> None:
    """What a compiled function makes, and a view of what it was given, are written as in eager."""
    op = ReluFwdOp(inplace=True)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return op(x * 2), op(x[1:3, ::2])

    x, y = signs(tileops_device), signs(tileops_device)
    for compiled, eager in zip(torch.compile(function, fullgraph=True)(x), function(y), strict=True):
        assert torch.equal(compiled, eager)
    assert torch.equal(x, y)


def test_an_unused_new_tensor_is_not_made(tileops_device: torch.device) -> None:
    """A pure node whose output nobody reads is not run."""
    op = ReluFwdOp()

    def function(x: Tensor) -> Tensor:
        op(x)
        return x + 1

    x = signs(tileops_device)
    assert torch.equal(torch.compile(function, fullgraph=True)(x), x + 1)
    assert list(op.iter_kernels()) == []


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_fake_and_real_strides_agree(layout: Layout, count: int, inplace: bool, tileops_device: torch.device) -> None:
    """A new tensor is contiguous; a written input keeps its strides; fake, eager and compiled agree on both."""
    if inplace and layout == "expanded":
        layout = "transposed"
    x = TensorInput(shape=(max(count, 1), 64), dtype=torch.float16, layout=layout).make(count, tileops_device)[:count]
    op = ReluFwdOp(inplace=inplace)
    promised = fake_outputs(op, (x,))
    assert_facts(promised, [op(x)], situation="eager")
    assert_facts(promised, [torch.compile(op, fullgraph=True)(x)], situation="compiled")
    if not inplace:
        assert promised[0] is not None
        assert promised[0].strides == (64, 1)


def test_overlapping_memory_has_the_eager_message(tileops_device: torch.device) -> None:
    """The refusal of a written tensor with shared memory is the eager one, wrapped."""
    op = ReluFwdOp(inplace=True)
    with pytest.raises(RuntimeError, match="ReluFwdOp: input: expected memory of its own for each element"):
        torch.compile(op, fullgraph=True)(torch.zeros(1, 3, device=tileops_device).expand(2, 3))


def test_inference_mode(tileops_device: torch.device) -> None:
    """In place on an inference tensor works inside inference mode, eager and compiled."""
    op = ReluFwdOp(inplace=True)
    with torch.inference_mode():
        x = signs(tileops_device)
        assert torch.equal(op(x), torch.relu(signs(tileops_device)))
        y = signs(tileops_device)
        torch.compile(op, fullgraph=True)(y)
        assert torch.equal(x, y)
