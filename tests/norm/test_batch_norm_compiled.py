"""BatchNormFwdOp's effect branches: operators and schemas, and running statistics that compiled code moves alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tileops.norm import BatchNormFwdOp
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import TensorInput
from tileops_testing.numerics import assert_identical

pytestmark = pytest.mark.op("BatchNormFwdOp")

PLAIN = "tileops::norm_batch_norm_fwd"
WRITING = "tileops::norm_batch_norm_fwd_writes_running_mean_writes_running_var"


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch.compiler.reset()


@pytest.fixture
def x(tileops_device: torch.device) -> Tensor:
    return TensorInput(shape=(5, 6, 7), dtype=torch.float16).make(0, tileops_device)


def statistics(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.linspace(-1, 1, 6, device=device), torch.linspace(0.5, 2, 6, device=device)


def test_operator_names() -> None:
    """The class has an operator for calls that write nothing and one for those that move the running statistics."""
    assert BatchNormFwdOp.compile_op_names == (PLAIN, WRITING)


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        (
            PLAIN,
            (
                f"{PLAIN}(Tensor x, Tensor? running_mean, Tensor? running_var, Tensor? weight, Tensor? bias, "
                "str instance_key) -> Tensor"
            ),
        ),
        (
            WRITING,
            (
                f"{WRITING}(Tensor x, Tensor(a1!) running_mean, Tensor(a2!) running_var, Tensor? weight, Tensor? bias, "
                "str instance_key) -> Tensor"
            ),
        ),
    ],
)
def test_schemas(name: str, schema: str) -> None:
    """Each operator names what it writes, and no other."""
    assert str(getattr(torch.ops.tileops, name.partition("::")[2]).default._schema) == schema


@pytest.mark.parametrize(
    ("training", "passed", "operator"), [(False, True, PLAIN), (True, False, PLAIN), (True, True, WRITING)]
)
def test_branch_of_a_call(training: bool, passed: bool, operator: str, x: Tensor) -> None:
    """Training with running statistics is the writing node; inference, and training without, are the plain one."""
    op, backend = BatchNormFwdOp(training=training), RecordingBackend()
    given = statistics(x.device) if passed else ()
    torch.compile(op, fullgraph=True, backend=backend)(x, *given)
    assert backend.names() == (operator,)
    op(x, *given)
    assert op.last_call.written == (("running_mean", "running_var") if operator == WRITING else ())


@pytest.mark.parametrize("inference_mode", [False, True], ids=["grad-mode", "inference-mode"])
def test_compiled_moves_the_statistics_as_eager_does(inference_mode: bool, x: Tensor) -> None:
    """Two compiled training steps leave the bits in output and running statistics that two eager ones leave."""
    op = BatchNormFwdOp(training=True, momentum=0.25)
    compiled = torch.compile(op, fullgraph=True)
    results = []
    with torch.inference_mode(inference_mode):
        for run in (op, compiled):
            mean, var = statistics(x.device)
            outputs = [run(x, mean, var), run(x * 2, mean, var)]
            results.append((*outputs, mean, var))
    for eager, other in zip(*results, strict=True):
        assert_identical(other, eager)
    assert not torch.equal(results[0][2], statistics(x.device)[0])


def test_statistics_of_grad_mode_move_in_inference_mode(x: Tensor) -> None:
    """Running statistics made outside inference mode, as a module's buffers are, are moved inside it, compiled too."""
    op = BatchNormFwdOp(training=True)
    expected = statistics(x.device)
    op(x, *expected)
    given = statistics(x.device)
    with torch.inference_mode():
        torch.compile(op, fullgraph=True)(x, *given)
    for moved, right in zip(given, expected, strict=True):
        assert_identical(moved, right)


def test_a_reader_after_the_node_sees_the_new_statistics(x: Tensor) -> None:
    """Compiled code that reads the running mean before and after the node reads the old and the new one."""
    op = BatchNormFwdOp(training=True)

    def function(x: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        before = mean + 1
        op(x, mean, var)
        return before, mean + 1

    run: Callable[..., tuple[Tensor, Tensor]] = torch.compile(function, fullgraph=True)
    mean, var = statistics(x.device)
    before, after = run(x, mean, var)
    assert torch.equal(before, statistics(x.device)[0] + 1)
    assert torch.equal(after, mean + 1)
    assert not torch.equal(before, after)


def test_dynamic_compiles_once(tileops_device: torch.device) -> None:
    """With dynamic=True one compilation serves other batches, channels and planes, and one kernel all planes."""
    op, backend = BatchNormFwdOp(training=True), RecordingBackend()
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for shape in ((3, 4, 5, 6), (7, 8, 9, 10), (2, 33, 6, 4)):
        x = TensorInput(shape=shape, dtype=torch.float32).make(0, tileops_device)
        assert_identical(compiled(x), op(x))
    assert len(backend.graphs) == 1
    if tileops_device.type == "cpu":
        assert len(list(op.iter_kernels())) == 1
