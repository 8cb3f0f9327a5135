"""Effect branches: an operator each, its schema, the caller's own objects, eager and compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.errors import ArgumentError, GradientError, LayoutError
from tileops.op import Op

from .capture import Capture
from .composites import ones
from .toys import CentreFwdOp, DoubleFwdOp, GatherFwdOp, Hooks, IntoFwdOp, NegateFwdOp, SplitFwdOp, TableFwdOp

SCHEMAS: list[tuple[type[Op], list[str]]] = [
    (DoubleFwdOp, ["toy_double_fwd(Tensor x, Tensor? bias, str instance_key) -> Tensor"]),
    (
        NegateFwdOp,
        [
            "toy_negate_fwd(Tensor x, str instance_key) -> Tensor",
            "toy_negate_fwd_writes_x(Tensor(a0!) x, str instance_key) -> ()",
        ],
    ),
    (
        IntoFwdOp,
        [
            "toy_into_fwd(Tensor x, str instance_key) -> Tensor",
            "toy_into_fwd_out(Tensor x, Tensor(out!) out, str instance_key) -> ()",
        ],
    ),
    (
        SplitFwdOp,
        [
            "toy_split_fwd(Tensor x, str instance_key) -> (Tensor, Tensor)",
            "toy_split_fwd_without_total(Tensor x, str instance_key) -> Tensor",
        ],
    ),
    (
        CentreFwdOp,
        [
            "toy_centre_fwd(Tensor x, Tensor mean, Tensor? count, str instance_key) -> Tensor",
            (
                "toy_centre_fwd_writes_mean_writes_count(Tensor x, Tensor(a1!) mean, Tensor(a2!) count, "
                "str instance_key) -> Tensor"
            ),
        ],
    ),
    (GatherFwdOp, ["toy_gather_fwd(Tensor x, Tensor places, str instance_key) -> Tensor"]),
    (TableFwdOp, ["toy_table_fwd(Tensor x, str instance_key) -> Tensor"]),
]


def operator(name: str) -> Any:
    """The overload of a qualified name."""
    return getattr(torch.ops.tileops, name.removeprefix("tileops::")).default


@pytest.mark.parametrize(("op", "schemas"), SCHEMAS, ids=lambda value: getattr(value, "__name__", ""))
def test_each_branch_has_its_operator(op: type[Op], schemas: list[str]) -> None:
    """Names and schemas say what a branch writes, in input order, whether it has `out`, and what it allocates."""
    assert [str(operator(name)._schema) for name in op.compile_op_names] == [f"tileops::{text}" for text in schemas]
    assert [operator(name)._schema.is_mutable for name in op.compile_op_names] == ["!" in text for text in schemas]


CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "toy_double_fwd": (DoubleFwdOp, (ones(3, 4), ones(3, 4)), {}),
    "toy_negate_fwd": (NegateFwdOp, (ones(3, 4),), {}),
    "toy_negate_fwd_writes_x": (lambda: NegateFwdOp(inplace=True), (ones(3, 4),), {}),
    "toy_into_fwd": (IntoFwdOp, (ones(3, 4),), {}),
    "toy_into_fwd_out": (IntoFwdOp, (ones(3, 4),), {"out": torch.zeros(3, 4)}),
    "toy_split_fwd": (SplitFwdOp, (ones(3, 4),), {}),
    "toy_split_fwd_without_total": (lambda: SplitFwdOp(sums=False), (ones(3, 4),), {}),
    "toy_centre_fwd": (CentreFwdOp, (ones(3, 4), ones(3, 4)), {}),
    "toy_centre_fwd_writes_mean_writes_count": (
        lambda: CentreFwdOp(training=True),
        (ones(3, 4), torch.zeros(3, 4), torch.tensor(0)),
        {},
    ),
    "toy_gather_fwd": (GatherFwdOp, (ones(3, 4), torch.tensor([0, 2])), {}),
}


def cloned(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A new instance for a branch and inputs of its own."""
    make, inputs, buffers = CALLS[name]
    return make(), tuple(tensor.clone() for tensor in inputs), {key: value.clone() for key, value in buffers.items()}


@pytest.mark.parametrize("name", CALLS)
def test_opcheck_accepts_each_branch(name: str) -> None:
    """PyTorch's checks of schema, fake and ahead-of-time dispatch, static and dynamic, pass."""
    op, inputs, buffers = cloned(name)
    missing = [None] * (len(op._plan.inputs) - len(inputs))

    torch.library.opcheck(
        operator(name), (*inputs, *missing, *buffers.values(), op._instance_key), raise_exception=True
    )


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", CALLS)
def test_a_compiled_call_equals_an_eager_one(name: str, backend: str) -> None:
    """Results and written tensors are those of the eager call, through one node of the branch."""
    op, inputs, buffers = cloned(name)
    expected = op(*inputs, **buffers)
    twin, others, other_buffers = cloned(name)
    capture = Capture()
    captured: Any = torch.compile(twin, fullgraph=True, backend=capture)
    captured(*cloned(name)[1], **cloned(name)[2])
    torch._dynamo.reset()
    compiled: Any = torch.compile(twin, fullgraph=True, backend=backend)
    received = compiled(*others, **other_buffers)

    assert capture.operators() == [f"tileops.{name}.default"]
    assert_equal(received, expected)
    assert_equal((*others, *other_buffers.values()), (*inputs, *buffers.values()))


def assert_equal(received: Any, expected: Any) -> None:
    """Equal tensors, in equal structure."""
    if isinstance(expected, tuple):
        assert len(received) == len(expected)
        for left, right in zip(received, expected, strict=True):
            assert_equal(left, right)
        return
    assert (received is None) == (expected is None)
    assert expected is None or torch.equal(received, expected)


def test_an_alias_is_the_very_input() -> None:
    """In place, the output is the object that was passed; otherwise a new tensor, and the input is as it was."""
    x = ones(2)

    assert NegateFwdOp(inplace=True)(x) is x
    assert x.tolist() == [-1.0, -1.0]
    y = NegateFwdOp()(x)
    assert (y is x, y.tolist(), x.tolist()) == (False, [1.0, 1.0], [-1.0, -1.0])


def test_the_buffer_is_the_very_tensor_passed() -> None:
    """With `out` the result is that object, written; without, a new one."""
    out = torch.full((2,), torch.nan)

    assert IntoFwdOp()(ones(2), out=out) is out
    assert out.tolist() == [2.0, 2.0]
    assert IntoFwdOp()(ones(2)).tolist() == [2.0, 2.0]


def test_a_buffer_may_have_any_layout_of_its_own() -> None:
    """A strided buffer keeps its strides and gets the values; what lies between its elements is untouched."""
    storage = torch.full((2, 4), torch.nan)
    out = storage[:, ::2]

    assert IntoFwdOp()(ones(2, 2), out=out) is out
    assert storage[:, ::2].tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert storage[:, 1::2].isnan().all()


def test_the_objects_come_back_from_a_compiled_call() -> None:
    """A compiled function that returns the written tensor returns what its caller passed."""
    op, x = NegateFwdOp(inplace=True), ones(2)
    into, out = IntoFwdOp(), torch.zeros(2)

    assert torch.compile(op, fullgraph=True, backend="aot_eager")(x) is x
    assert torch.compile(into, fullgraph=True, backend="aot_eager")(ones(2), out=out) is out


def test_a_nullable_output_is_none() -> None:
    """Where its discriminant is false the output is None, in its place."""
    y, total = SplitFwdOp(sums=False)(ones(2))

    assert (y.tolist(), total) == ([2.0, 2.0], None)


def test_every_written_input_is_written() -> None:
    """A branch that writes several inputs writes exactly those."""
    op, mean, count = CentreFwdOp(training=True), torch.zeros(2), torch.tensor(0)
    y = op(ones(2), mean, count)

    assert (y.tolist(), mean.tolist(), count.item()) == ([0.0, 0.0], [1.0, 1.0], 1)
    assert op.last_call.written == ("mean", "count")
    assert CentreFwdOp()(ones(2), mean).tolist() == [0.0, 0.0]
    assert mean.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("training", "inputs", "message"),
    [
        (
            True,
            2,
            "CentreFwdOp: count: expected a Tensor for training=True, received None; pass count",
        ),
        (
            False,
            3,
            "CentreFwdOp: count: expected None for training=False, received a Tensor; leave count out",
        ),
    ],
)
def test_a_required_optional_input(training: bool, inputs: int, message: str) -> None:
    """An input that a discriminant requires is refused where it is absent, and where it must not be there."""
    tensors = (ones(2), torch.zeros(2), torch.tensor(0))[:inputs]
    with pytest.raises(ArgumentError) as caught:
        CentreFwdOp(training)(*tensors)
    assert str(caught.value) == message


def test_writing_memory_that_elements_share_is_refused() -> None:
    """An expanded tensor cannot be written in place, nor be the buffer; it is as it was."""
    x = torch.zeros(1, 3).expand(2, 3)
    with pytest.raises(LayoutError) as caught:
        NegateFwdOp(inplace=True)(x)
    assert str(caught.value) == (
        "NegateFwdOp: x: expected memory of its own for each element, received strides [0, 1]; "
        "assign x = x.clone() before the call, which writes it"
    )
    with pytest.raises(LayoutError) as caught:
        IntoFwdOp()(ones(2, 3), out=x)
    assert str(caught.value) == (
        "IntoFwdOp: out: expected memory of its own for each element, received strides [0, 1]; allocate out = "
        "torch.empty_like(out, memory_format=torch.contiguous_format) before the call, which writes it"
    )
    assert (x.sum().item(), Hooks.runs) == (0.0, [])


def test_a_declared_layout_is_required() -> None:
    """A written input that declares contiguous memory is refused without it."""
    with pytest.raises(LayoutError) as caught:
        CentreFwdOp(training=True)(ones(2, 3), torch.zeros(3, 2).t(), torch.tensor(0))
    assert str(caught.value) == (
        "CentreFwdOp: mean: expected a contiguous tensor, received strides [1, 2]; "
        "assign mean = mean.contiguous() before the call, which writes it"
    )


@pytest.mark.parametrize("name", CALLS)
def test_fakes_promise_what_calls_give(name: str) -> None:
    """Shape, dtype and strides of every output agree between a fake and a real call, for transposed inputs too."""
    op, inputs, buffers = cloned(name)
    strided = [tensor.t().contiguous().t() if tensor.ndim == 2 and not buffers else tensor for tensor in inputs]
    if name.startswith("toy_centre"):
        strided = list(inputs)
    with FakeTensorMode() as mode:
        promised = op(*(mode.from_tensor(t) for t in strided), **{k: mode.from_tensor(t) for k, t in buffers.items()})
    received = op(*strided, **buffers)

    assert facts(promised) == facts(received)


def facts(result: Any) -> list[Any]:
    """Shape, dtype and strides of each output."""
    outputs: list[Tensor | None] = list(result) if isinstance(result, tuple) else [result]
    return [None if item is None else (item.shape, item.dtype, item.stride()) for item in outputs]


def test_a_written_tensor_orders_the_graph() -> None:
    """In compiled code a read before the write sees the old value, one after it the new one; nothing is dropped."""
    op = NegateFwdOp(inplace=True)

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        before = x + 0
        op(x)
        return before, x + 0

    before, after = torch.compile(f, fullgraph=True)(ones(2))

    assert (before.tolist(), after.tolist()) == ([1.0, 1.0], [-1.0, -1.0])


def test_an_unused_pure_call_is_dropped() -> None:
    """A call that writes nothing and whose result nobody reads does not run."""
    op = DoubleFwdOp()
    compiled = torch.compile(lambda x: (op(x), x + 1)[1], fullgraph=True)

    assert compiled(ones(2)).tolist() == [2.0, 2.0]
    assert Hooks.runs == []


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["in place", "out"])
def test_backward_through_a_written_tensor_raises(kind: str, compiled: bool) -> None:
    """The gradient of a tensor that an op wrote is refused, not taken past the op."""
    negate, into = NegateFwdOp(inplace=True), IntoFwdOp()

    def f(p: Tensor, out: Tensor) -> Any:
        x = p * 2
        return negate(x) + p if kind == "in place" else into(x, out=out) + p

    run = torch.compile(f, fullgraph=True, backend="aot_eager") if compiled else f
    p = torch.ones(2, requires_grad=True)
    y = run(p, torch.zeros(2))

    assert y.tolist() == ([-1.0, -1.0] if kind == "in place" else [4.0, 4.0])
    with pytest.raises(GradientError, match="FwdOp: backward through its output is not defined"):
        y.sum().backward()


def test_writing_a_leaf_that_requires_a_gradient_is_torchs_own_error() -> None:
    """PyTorch refuses it, and so does an op."""
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        NegateFwdOp(inplace=True)(torch.ones(2, requires_grad=True))


def test_an_inference_tensor_is_written_in_inference_mode_alone() -> None:
    """Outside, PyTorch's own error; inside, it works."""
    op = NegateFwdOp(inplace=True)
    with torch.inference_mode():
        x = torch.ones(2)
        assert op(x) is x
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        op(x)
