"""The seven steps of a call: begun, checked, empty writes, target, run, result checked, recorded."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from tileops.backend import BUILTIN
from tileops.errors import DelegateError, DeviceError, DTypeError, NoCallError, ResultError, ShapeError
from tileops.op import call as call_module
from tileops.op import delegates
from tileops.op.call import CallFrame

from .capture import noting
from .composites import ChainFwdOp, NestedFwdOp, StrayFwdOp, ones
from .toys import (
    CPU,
    CentreFwdOp,
    DoubleFwdOp,
    EveryFwdOp,
    GatherFwdOp,
    Hooks,
    IntoFwdOp,
    NegateFwdOp,
    SplitFwdOp,
    ToyCall,
    TripleFwdOp,
)


def frames() -> list[CallFrame]:
    """The calls under way on this thread."""
    return call_module._STACK.frames


def test_the_seven_steps_run_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin, check, look for an empty write, select, run, check the result, record."""
    seen: list[str] = []

    def watch(owner: Any, name: str, step: str) -> None:
        monkeypatch.setattr(owner, name, noting(seen, step, getattr(owner, name)))

    watch(call_module, "CallFrame", "1 begin")
    watch(call_module, "check_signature", "2 check")
    watch(call_module, "select_target", "4 select")
    watch(TripleFwdOp, "forward", "5 run")
    watch(call_module, "report", "7 report")
    op = TripleFwdOp()
    checking = noting(seen, "6 result", op._plan.check_result)
    monkeypatch.setattr(TripleFwdOp, "_plan", msgspec.structs.replace(op._plan, check_result=checking))
    op(ones(2))

    assert seen == ["1 begin", "2 check", "4 select", "5 run", "6 result"]


def test_row_1_the_stack_holds_the_calls_under_way() -> None:
    """While a sub-op runs, its call and those that enclose it are on this thread's stack, and none after."""
    seen: list[list[str]] = []
    Hooks.on_run = lambda _: seen.append([type(frame.op).__name__ for frame in frames()])
    NestedFwdOp()(ones(2))

    assert seen == [["NestedFwdOp", "ChainFwdOp", "DoubleFwdOp"], ["NestedFwdOp", "ChainFwdOp", "TripleFwdOp"]]
    assert frames() == []


def test_row_1_each_thread_has_a_stack_of_its_own() -> None:
    """A call under way elsewhere encloses nothing here."""
    inside, done, counts = threading.Event(), threading.Event(), []

    def hold(_: ToyCall) -> None:
        inside.set()
        assert done.wait(10)

    Hooks.on_run = hold
    thread = threading.Thread(target=TripleFwdOp(), args=(ones(2),))
    thread.start()
    assert inside.wait(10)
    counts.append(len(frames()))
    done.set()
    thread.join()
    assert counts == [0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: TripleFwdOp()(ones(2).double()),
            DTypeError,
            "TripleFwdOp: x: expected dtype float16 or float32, received float64; convert x with .to(torch.float32)",
        ),
        (
            lambda: DoubleFwdOp()(ones(2), ones(2).half()),
            DTypeError,
            (
                "DoubleFwdOp: bias: expected dtype float32, as x has, received float16; "
                "convert bias with .to(torch.float32)"
            ),
        ),
        (
            lambda: DoubleFwdOp()(ones(2), ones(3)),
            ShapeError,
            "DoubleFwdOp: bias: expected shape [2] for S=(2,), received [3]; pass bias of shape [2]",
        ),
        (
            lambda: DoubleFwdOp()(ones(2), torch.ones(2, device="meta")),
            DeviceError,
            "DoubleFwdOp: bias: expected device cpu, as x has, received device meta; make bias on cpu",
        ),
        (
            lambda: GatherFwdOp()(ones(2), torch.zeros(1, dtype=torch.int64, device="meta")),
            DeviceError,
            "GatherFwdOp: places: expected device cpu, received device meta; make places on cpu",
        ),
        (
            lambda: IntoFwdOp()(ones(2), out=ones(3)),
            ShapeError,
            "IntoFwdOp: out: expected shape [2] of y, received [3]; pass out of shape [2]",
        ),
    ],
)
def test_row_2_a_wrong_call_is_refused_before_anything_is_selected(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    """The text names op, argument, expected, received and the mend; no kernel is built."""
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message
    assert Hooks.built == []


def test_row_2_the_check_produces_the_record() -> None:
    """What the check found is the record: indices, branch, device, tensors and traffic."""
    op = SplitFwdOp()
    op(ones(2, 3))
    call = op.last_call

    assert dict(call.indices) == {"T": torch.float32, "S": (2,), "N": 3}
    assert (call.branch_key, call.device, call.written, call.has_out) == ((True,), CPU, (), False)
    assert {name: facts.shape for name, facts in call.tensors.items()} == {"x": (2, 3), "y": (2, 3), "total": (2,)}
    assert {name: (bytes_.reads, bytes_.writes) for name, bytes_ in call.traffic.items()} == {
        "x": (24, 0),
        "y": (0, 24),
        "total": (0, 8),
    }


def test_row_2_a_call_that_passes_may_find_no_kernel() -> None:
    """A dtype that the signature accepts and no kernel type serves is refused when the kernel is selected."""
    from tileops_kernels.errors import NoImplementationError

    from .toys import ToyKernel

    class Refusing(ToyKernel):
        @classmethod
        def refusal(cls, call: ToyCall) -> str | None:
            return "serves float16 alone" if call.dtype is not torch.float16 else super().refusal(call)

    class HalfFwdOp(TripleFwdOp, entry=TripleFwdOp._plan.entry):
        kernel_types = {"toy": Refusing}  # noqa: RUF012

    op = HalfFwdOp()
    with pytest.raises(NoImplementationError, match=r"HalfFwdOp\.toy: no implementation .* toy: serves float16 alone"):
        op(ones(2))
    assert op(ones(2, dtype=torch.float16)).dtype is torch.float16


@pytest.mark.parametrize(
    ("make", "shape"),
    [(TripleFwdOp, (0, 3)), (lambda: NegateFwdOp(inplace=True), (0,)), (SplitFwdOp, (0, 3)), (IntoFwdOp, (2, 0))],
)
def test_row_3_an_empty_write_runs_nothing(make: Callable[[], Any], shape: tuple[int, ...]) -> None:
    """When every write is empty the result comes from the signature; the call is recorded, no target is selected."""
    op, x = make(), torch.ones(shape)
    result = op(x)
    first = result[0] if isinstance(result, tuple) else result

    assert (first.shape, Hooks.runs, Hooks.built, op.serving_target) == (shape, [], [], None)
    assert op.last_call.tensors["x"].shape == shape


def test_row_3_one_write_with_elements_runs() -> None:
    """An output with elements beside an empty one is computed: sums over no elements are zero."""
    y, total = SplitFwdOp()(ones(2, 0))

    assert (y.shape, total.tolist(), Hooks.runs) == ((2, 0), [0.0, 0.0], ["split"])


def test_row_3_an_empty_write_gives_the_callers_own_objects() -> None:
    """The written input and the caller's buffer come back as they are."""
    x = torch.ones(0)
    out = torch.ones(0)

    assert NegateFwdOp(inplace=True)(x) is x
    assert IntoFwdOp()(x, out=out) is out


def test_row_4_a_target_is_selected_once() -> None:
    """The first call that runs selects; later calls find it."""
    op = TripleFwdOp()
    op(torch.ones(0))
    assert op.serving_target is None
    op(ones(1))

    assert op.serving_target == BUILTIN


def test_row_5_the_body_gets_checked_tensors_as_they_are() -> None:
    """In-tree bodies make their own inputs contiguous: a transposed tensor gives what its contiguous copy gives."""
    x = torch.randn(5, 3).t()

    assert torch.equal(TripleFwdOp()(x), x.contiguous() * 3)


@pytest.mark.parametrize(
    ("wrong", "received"),
    [
        (lambda y: y.double(), "float64 [2, 2] on cpu"),
        (lambda y: y[:1], "float32 [1, 2] on cpu"),
        (lambda y: y.to("meta"), "float32 [2, 2] on meta"),
        (lambda y: y.t(), "float32 [2, 2] on cpu, strides [1, 2]"),
        (lambda y: None, "NoneType"),
        (lambda y: (y, y), "tuple"),
    ],
)
def test_row_6_the_result_is_checked(wrong: Callable[[Tensor], Any], received: str) -> None:
    """Another dtype, shape, device, layout or count than promised is refused, and nothing is recorded."""
    Hooks.on_result = wrong
    op = TripleFwdOp()
    with pytest.raises(ResultError) as caught:
        op(ones(2, 2))

    assert str(caught.value) == (
        f"TripleFwdOp: y: expected float32 [2, 2] on cpu, contiguous, received {received}; the implementation has to "
        "return that"
    )
    assert op._running.last_call is None


def test_row_6_the_count_of_results_is_checked() -> None:
    """An op of two outputs that returns one is refused with the names of both."""
    Hooks.on_result = lambda result: result[0]
    with pytest.raises(ResultError) as caught:
        SplitFwdOp()(ones(2, 2))

    assert str(caught.value) == (
        "SplitFwdOp: result: expected 2 values (y, total), received Tensor; the implementation has to return that"
    )


def test_row_7_the_four_acts_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages are written, the call leaves the stack, it becomes the last, and the enclosing call hears of it."""
    acts: list[str] = []
    real_file, real_report = delegates.file_stages, call_module.report

    def file(op: Any, record: Any, completed: Any) -> Any:
        acts.append(f"stages of {type(op).__name__}, stack {len(frames())}")
        return real_file(op, record, completed)

    def report(op: Any, record: Any, built: Any) -> None:
        acts.append(f"report {type(op).__name__}, stack {len(frames())}, last {op._running.last_call is record}")
        real_report(op, record, built)

    monkeypatch.setattr(call_module, "file_stages", file)
    monkeypatch.setattr(call_module, "report", report)
    ChainFwdOp()(ones(2))

    assert acts == ["report DoubleFwdOp, stack 1, last True", "stages of ChainFwdOp, stack 1"]


def test_row_7_stages_hold_the_calls_of_sub_ops() -> None:
    """Each completed call of a held sub-op stands under its stage, in order; a stage that did not run is absent."""
    op = ChainFwdOp()
    op(ones(2))
    assert list(op.last_call.stages) == ["first"]
    nested = NestedFwdOp()
    nested(ones(2))
    chain = nested.last_call.stages["chain"][0]

    assert [(stage, len(calls)) for stage, calls in chain.stages.items()] == [("first", 1), ("second", 1)]
    assert chain.stages["second"][0] is nested.held_delegates()[0].held_delegates()[1].last_call


def test_row_7_the_record_is_read_only() -> None:
    """Neither the record nor its stages can be written."""
    op = ChainFwdOp()
    op(ones(2))
    with pytest.raises(AttributeError):
        op.last_call.device = None  # type: ignore[misc]
    with pytest.raises(TypeError):
        op.last_call.stages["first"] = ()  # type: ignore[index]


def test_row_7_a_call_of_a_sub_op_that_is_not_held_raises() -> None:
    """A completed call that no stage can take makes the composite's call fail, naming the sub-op and the mend."""
    op = StrayFwdOp()
    StrayFwdOp.stray = TripleFwdOp()
    with pytest.raises(DelegateError) as caught:
        op(ones(2))

    assert str(caught.value) == (
        "StrayFwdOp: forward: expected calls of held sub-ops alone, received one of TripleFwdOp; get the sub-op from "
        "self.delegate_for(stage, identity)"
    )
    assert op._running.last_call is None


def test_row_7_an_op_that_is_no_composite_calls_no_other() -> None:
    """It declares no stage, so the call of another op in its `forward` has nowhere to stand."""
    other = DoubleFwdOp()

    class SneakyFwdOp(TripleFwdOp, entry=TripleFwdOp._plan.entry):
        def forward(self, x: Tensor) -> Any:
            return other(x)

    with pytest.raises(DelegateError, match="SneakyFwdOp: forward: expected calls of held sub-ops alone, received one"):
        SneakyFwdOp()(ones(2))


def test_row_7_a_sub_op_called_outside_belongs_to_no_call() -> None:
    """A sub-op called by itself is recorded on itself alone."""
    op = ChainFwdOp()
    op(ones(2))
    record = op.last_call
    op.held_delegates()[0](ones(5))

    assert op.last_call is record
    assert op.held_delegates()[0].last_call.tensors["x"].shape == (5,)


def test_no_record_before_a_completed_call() -> None:
    """Reading it raises a RuntimeError that says to call the op."""
    with pytest.raises(NoCallError) as caught:
        _ = TripleFwdOp().last_call

    assert isinstance(caught.value, RuntimeError)
    assert str(caught.value) == (
        "TripleFwdOp: last_call: expected a completed call, received none; call the op before reading its record"
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x: (DoubleFwdOp(), (x, x.clone())),
        lambda x: (ChainFwdOp(twice=True), (x,)),
        lambda x: (NegateFwdOp(inplace=True), (x,)),
        lambda x: (CentreFwdOp(training=True), (x, x.clone(), torch.tensor(0))),
    ],
)
def test_an_op_keeps_no_tensor_of_a_call(call: Callable[[Tensor], tuple[Any, tuple[Tensor, ...]]]) -> None:
    """Inputs and outputs are free once the caller drops them."""
    op, inputs = call(torch.ones(4))
    alive = [weakref.ref(tensor) for tensor in (*inputs, op(*inputs))]
    del inputs
    gc.collect()

    assert [reference() for reference in alive] == [None] * len(alive)
    assert op.last_call.tensors["x"].shape == (4,)


def test_a_repeated_call_is_checked_by_its_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal metadata finds the record of the first call; other metadata is checked."""
    op = TripleFwdOp()
    op(ones(2))
    record = op.last_call
    op(torch.zeros(2))
    assert op.last_call is record
    op(torch.zeros(3))

    assert op.last_call is not record


def test_checked_calls_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths that grow with every call do not pile up: the oldest is forgotten."""
    monkeypatch.setattr(call_module, "_SEEN_CALLS", 4)
    op = TripleFwdOp()
    for length in range(1, 10):
        op(torch.ones(length))

    assert [seen.record.shapes for seen in op._running.seen.values()] == [((6,),), ((7,),), ((8,),), ((9,),)]


def test_row_6_a_buffer_excuses_no_other_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the caller's buffer passed, an output that the op allocates must still be contiguous."""

    def forward(_: EveryFwdOp, x: Tensor, state: Tensor, *, out: Tensor | None = None) -> Any:
        return out, None, x.repeat_interleave(2)[::2]

    monkeypatch.setattr(EveryFwdOp, "forward", forward)
    with pytest.raises(ResultError, match=r"EveryFwdOp: z: expected .*contiguous"):
        EveryFwdOp(twice=True)(torch.ones(4), torch.ones(4), out=torch.ones(8)[::2])
