"""Entry points: through the compile boundary, bound by name, on meta tensors, and traced."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.backend import BUILTIN, BackendRegistry
from tileops.errors import ArgumentError, ShapeError
from tileops.op import Op, boundary, repeats
from tileops.op import base as base_module
from tileops_kernels.errors import ContractTypeError

from .capture import Capture
from .composites import CacheFwdOp, ChainFwdOp, MixedFwdOp, NestedFwdOp, ones
from .toys import CPU, DoubleFwdOp, Hooks, IntoFwdOp, NegateFwdOp, RampFwdOp, SplitFwdOp, ToyOp, TripleFwdOp, entry

WITH_BOUNDARY: list[type[Op]] = [DoubleFwdOp, TripleFwdOp, NegateFwdOp, IntoFwdOp, SplitFwdOp]


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls that reach `run_call`, as (op class, entry point)."""
    found: list[tuple[str, str]] = []
    for module, place in ((boundary, "operator"), (repeats, "operator"), (base_module, "bound by name")):

        def watched(op: Op, *args: Any, place: str = place, real: Any = module.run_call, **kwargs: Any) -> Any:
            found.append((type(op).__name__, place))
            return real(op, *args, **kwargs)

        monkeypatch.setattr(module, "run_call", watched)
    return found


def test_row_1_a_call_with_a_boundary_comes_through_its_operator(entered: list[tuple[str, str]]) -> None:
    """The generated call hands the tensors to the operator, which runs the instance."""
    assert torch.equal(DoubleFwdOp()(ones(2)), torch.full((2,), 2.0))
    assert entered == [("DoubleFwdOp", "operator")]


def test_row_1_every_call_of_a_target_comes_through_the_operator(
    registry: BackendRegistry, entered: list[tuple[str, str]]
) -> None:
    """What a backend's kernel does with torch is not known here, so that nothing is left out on its way."""
    registry.register_kernel_builder("TripleFwdOp", "acme", lambda *specs, **params: lambda x: x * 10)
    op = TripleFwdOp(target="acme")
    assert [op(ones(2)).tolist() for _ in range(2)] == [[10.0, 10.0]] * 2
    assert entered == [("TripleFwdOp", "operator")] * 2


def test_row_2_a_call_without_a_boundary_is_bound_by_name(entered: list[tuple[str, str]]) -> None:
    """The arguments are bound by the names of the signature; sub-ops come through their operators."""
    assert torch.equal(ChainFwdOp()(bias=ones(2), x=ones(2)), torch.full((2,), 3.0))
    assert entered == [("ChainFwdOp", "bound by name"), ("DoubleFwdOp", "operator")]


def test_row_2_forward_receives_arguments_under_their_names() -> None:
    """`forward` may declare its parameters in an order of its own: each is passed by name."""

    class SwappedFwdOp(ChainFwdOp, entry=ChainFwdOp._plan.entry):
        def forward(  # type: ignore[override]
            self, bias: Tensor | None = None, x: Tensor | None = None
        ) -> Any:
            return self.delegate_for("first", "only")(x, bias)

    assert torch.equal(SwappedFwdOp()(ones(2), 3 * ones(2)), torch.full((2,), 5.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda op, x: op(),
            "ChainFwdOp: x: expected a tensor, received nothing; call it as op(x, bias=None)",
        ),
        (
            lambda op, x: op(x, bais=x),
            ("ChainFwdOp: bais: expected arguments (x, bias=None), received the keyword 'bais'; did you mean bias?"),
        ),
        (
            lambda op, x: op(x, x, x),
            "ChainFwdOp: expected at most 2 arguments (x, bias=None), received 3; call it as op(x, bias=None)",
        ),
        (
            lambda op, x: op(x, x, bias=x),
            (
                "ChainFwdOp: bias: expected one value, received a positional and a keyword one; call it as "
                "op(x, bias=None)"
            ),
        ),
    ],
)
def test_row_2_wrong_arguments_are_named_before_anything_runs(call: Any, message: str) -> None:
    """Missing, unknown, surplus and doubled arguments of an op without a boundary are one error each."""
    with pytest.raises(ArgumentError) as caught:
        call(ChainFwdOp(), ones(2))

    assert str(caught.value) == message
    assert Hooks.runs == []


def test_row_1_a_doubled_argument_is_named() -> None:
    """With a boundary, a value given twice is Python's own error, which names the op and the argument."""
    with pytest.raises(TypeError, match=r"DoubleFwdOp\._call_boundary\(\) got multiple values for argument 'bias'"):
        DoubleFwdOp()(ones(2), ones(2), bias=ones(2))


def test_row_3_a_meta_call_is_checked_recorded_and_answered_by_the_signature(entered: list[tuple[str, str]]) -> None:
    """No target, no kernel and no run: a record, and an output that the signature describes."""
    op = SplitFwdOp()
    y, total = op(torch.ones(2, 3, device="meta").t())

    assert (y.shape, y.stride(), y.device.type, total.shape) == ((3, 2), (2, 1), "meta", (3,))
    assert (entered, Hooks.built, op.serving_target) == ([], [], None)
    assert op.last_call.device == torch.device("meta")
    assert op.last_call.tensors["total"].shape == (3,)


def test_row_3_a_meta_parameter_is_a_meta_call() -> None:
    """A subclass of Tensor counts: a module's parameter on the meta device is recorded too."""
    op = TripleFwdOp()
    op(torch.nn.Parameter(torch.ones(2, device="meta"), requires_grad=False))

    assert op.last_call.tensors["x"].shape == (2,)


def test_row_3_a_meta_call_does_not_warm_up() -> None:
    """The real call that follows selects and builds."""
    op = DoubleFwdOp()
    op(torch.ones(2, device="meta"))
    op(ones(2))

    assert (op.serving_target, len(Hooks.built)) == (BUILTIN, 1)


def test_row_3_a_wrong_meta_call_raises_as_a_real_one() -> None:
    """The texts are equal, and the record of the last completed call stays."""
    op = DoubleFwdOp()
    op(ones(2))
    record, texts = op.last_call, []
    for device in ("cpu", "meta"):
        with pytest.raises(ShapeError) as caught:
            op(torch.ones(2, device=device), torch.ones(3, device=device))
        texts.append(str(caught.value))

    assert texts[0] == texts[1]
    assert op.last_call is record


def test_row_3_a_meta_call_of_a_composite_is_answered_by_its_sub_ops() -> None:
    """It is checked and recorded with its stages, builds nothing, and selects no target anywhere."""
    op = NestedFwdOp()
    y = op(torch.ones(2, device="meta"))
    chain = op.held_delegates()[0]

    assert (y.device.type, op.serving_target, chain.serving_target, Hooks.built) == ("meta", None, None, [])
    assert [call.branch.entry.name for call in op.last_call.stages["chain"]] == ["ChainFwdOp"]
    assert sorted(op.last_call.stages["chain"][0].stages) == ["first", "second"]


def test_row_3_a_composite_with_kernels_of_its_own_answers_from_the_signature() -> None:
    """Its kernels run on no meta tensor, so nothing of it runs."""
    op = MixedFwdOp()
    y = op(torch.ones(2, device="meta"))

    assert (y.shape, y.device.type, op.serving_target, Hooks.built) == ((2,), "meta", None, [])
    assert op.last_call.tensors["x"].shape == (2,)


def test_row_3_a_meta_device_parameter_makes_a_meta_call() -> None:
    """An op without tensor inputs that is constructed for the meta device answers from its signature."""
    op = RampFwdOp(3, torch.float32, torch.device("meta"))
    y = op()

    assert (y.shape, y.device.type, Hooks.built, op.serving_target) == ((3,), "meta", [], None)
    assert op.last_call.device == torch.device("meta")


def test_row_4_a_traced_composite_is_its_sub_ops_nodes(entered: list[tuple[str, str]]) -> None:
    """Tracing checks nothing; the operators of the sub-ops are the nodes, and run when the graph does."""
    op, capture = ChainFwdOp(twice=True), Capture()
    compiled = torch.compile(op, fullgraph=True, backend=capture)
    y = compiled(ones(2))

    assert capture.operators() == ["tileops.toy_double_fwd.default", "tileops.toy_triple_fwd.default"]
    assert entered == [("DoubleFwdOp", "operator"), ("TripleFwdOp", "operator")]
    assert torch.equal(y, torch.full((2,), 6.0))
    assert op._running.last_call is None


def test_row_4_a_traced_composite_is_not_checked() -> None:
    """A wrong call is refused by the sub-op that it reaches, with that op's text."""
    compiled = torch.compile(ChainFwdOp(), fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="DoubleFwdOp: bias: expected shape"):
        compiled(ones(2), ones(3))


def test_row_4_a_sub_op_must_be_held_before_tracing() -> None:
    """Constructing an op cannot be traced: a sub-op that is not there yet is refused with the mend."""
    op = ChainFwdOp(twice=True)
    with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
        torch.compile(op, fullgraph=True, backend="eager")(ones(2, dtype=torch.float16))

    assert (
        "ChainFwdOp: second: expected a sub-op held before tracing, received a request to build one; call the op once "
        "before compiling it, or hold the sub-op in the constructor"
    ) in str(caught.value)


def test_row_4_a_target_must_have_built_before_tracing(registry: BackendRegistry) -> None:
    """Building cannot be traced: inputs of another shape than any eager call's are refused with the mend."""
    registry.register_kernel_builder("ChainFwdOp", "acme", lambda *specs, **params: lambda x, bias: x * 10)
    op = ChainFwdOp(target="acme")
    op(ones(2))
    with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
        torch.compile(op, fullgraph=True, backend="eager", dynamic=False)(ones(3))

    assert (
        "ChainFwdOp: target 'acme': expected inputs that its kernels were built for, received shapes [[3], None] while "
        "tracing; call the op once with such inputs before compiling"
    ) in str(caught.value)


def test_row_4_a_traced_target_writes_the_callers_own_tensors(registry: BackendRegistry) -> None:
    """What the call writes reaches the target as it is, whatever its strides; what it does not write is contiguous."""
    given: list[bool] = []

    def build(*_: Any, **__: Any) -> Any:
        def kernel(x: Tensor, cache: Tensor, *, out: Tensor | None = None) -> Tensor:
            given.append(x.is_contiguous())
            cache.copy_(x)
            return x * 10 if out is None else out.copy_(x * 10)

        return kernel

    registry.register_kernel_builder("CacheFwdOp", "acme", build)
    op = CacheFwdOp(target="acme")
    op(ones(3, 2), torch.zeros(3, 2))
    traced = torch.compile(op, fullgraph=True, backend="aot_eager")
    cache, out = torch.zeros(2, 3).t(), torch.zeros(2, 3).t()

    assert traced(torch.full((2, 3), 2.0).t(), cache, out=out) is out
    assert (cache.tolist(), out.tolist()) == ([[2.0, 2.0]] * 3, [[20.0, 20.0]] * 3)
    assert given == [True, True]


def test_row_4_a_composite_on_fake_tensors_leaves_no_record() -> None:
    """Under FakeTensorMode the call is traced through: no target, no record, nothing kept."""
    op = ChainFwdOp(twice=True)
    with FakeTensorMode() as mode:
        y = op(mode.from_tensor(ones(2, 3)))

    assert y.shape == (2, 3)
    assert (op.serving_target, op._running.last_call, op._running.seen, Hooks.built) == (None, None, {}, [])


def test_row_4_a_serving_target_runs_its_kernel_when_traced(registry: BackendRegistry) -> None:
    """Once a target serves the composite, its kernel is what is traced; before, `forward` is."""
    registry.register_kernel_builder("ChainFwdOp", "acme", lambda *specs, **params: lambda x, bias: x * 10)
    op = ChainFwdOp(first=DoubleFwdOp(target=BUILTIN), target="acme")
    before, after = Capture(), Capture()
    assert torch.equal(torch.compile(op, fullgraph=True, backend=before)(ones(2)), torch.full((2,), 2.0))
    assert torch.equal(op(ones(2)), torch.full((2,), 10.0))
    torch._dynamo.reset()
    traced = torch.compile(op, fullgraph=True, backend=after)

    assert torch.equal(traced(ones(2)), torch.full((2,), 10.0))
    assert before.operators() == ["tileops.toy_double_fwd.default"]
    assert after.operators() == []


def test_row_1_the_captured_graph_shows_one_node() -> None:
    """What `TORCH_LOGS=graph_code` prints of a compiled call is the operator, once, with the instance's key."""
    program = (
        "import torch\n"
        "from tests.spec.toys import DoubleFwdOp\n"
        "op = DoubleFwdOp()\n"
        "torch.compile(op, fullgraph=True, backend='eager')(torch.ones(2), torch.ones(2))\n"
        "print(op._instance_key)\n"
    )
    environment = {**os.environ, "TORCH_LOGS": "graph_code", "PYTHONPATH": str(Path(__file__).parents[2])}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )

    (line,) = [line for line in result.stderr.splitlines() if "torch.ops." in line]
    assert "torch.ops.tileops.toy_double_fwd.default(" in line
    assert f"'{result.stdout.strip()}')" in line


@pytest.mark.parametrize("op", WITH_BOUNDARY)
def test_an_entry_with_a_tensor_input_and_no_composition_has_a_boundary(op: type[Op]) -> None:
    """Such a class has one operator per effect branch, and a generated call."""
    assert len(op.compile_op_names) == len(op._plan.branches) >= 1
    assert "def _call_boundary(self, x=MISSING" in inspect.getsource(op._call_boundary)


@pytest.mark.parametrize("op", [RampFwdOp, ChainFwdOp, NestedFwdOp, MixedFwdOp, ToyOp, Op])
def test_any_other_class_has_none(op: type[Op]) -> None:
    """No entry, no call-time tensor input, or a composition: no operator, and the base's call."""
    assert op.compile_op_names == ()
    assert op._call_boundary is Op._call_boundary


def test_a_class_that_adds_a_composition_loses_the_boundary_it_inherits() -> None:
    """What a class inherits does not count: its own entry decides."""

    class ComposedFwdOp(TripleFwdOp, entry=NestedFwdOp._plan.entry):
        pass

    assert ComposedFwdOp.compile_op_names == ()
    assert ComposedFwdOp._call_boundary is Op._call_boundary


def test_no_class_is_exempt() -> None:
    """The names are made by the class statement, whatever the class sets."""

    class WilfulFwdOp(TripleFwdOp, entry=entry("WilfulFwdOp", TripleFwdOp._plan.entry.source.text)):
        compile_op_names: ClassVar[tuple[str, ...]] = ()

    assert WilfulFwdOp.compile_op_names == ("tileops::toy_wilful_fwd",)


def test_an_op_without_tensor_inputs_runs_through_one_call(entered: list[tuple[str, str]]) -> None:
    """Its eager call is checked, run and recorded like any other."""
    op = RampFwdOp(3, torch.float32, CPU)

    assert torch.equal(op(), torch.arange(3.0))
    assert entered == [("RampFwdOp", "bound by name")]
    assert op.last_call.tensors["y"].shape == (3,)


def test_a_missing_forward_says_so() -> None:
    """An op class that writes no computation says which method to write."""

    class EmptyFwdOp(ToyOp, entry=entry("EmptyFwdOp", TripleFwdOp._plan.entry.source.text)):
        pass

    with pytest.raises(ContractTypeError) as caught:
        EmptyFwdOp()(ones(2))
    assert str(caught.value) == (
        "EmptyFwdOp: forward is missing; expected a method that takes the signature's inputs, received none; define "
        "forward in the op class"
    )
