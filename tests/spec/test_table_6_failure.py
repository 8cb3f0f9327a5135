"""Failure: what a failed call leaves, when it selected the target and when an earlier call did."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.backend import BUILTIN, BackendRegistry
from tileops.op import call as call_module

from .composites import ChainFwdOp, NestedFwdOp, ones
from .toys import CPU, DoubleFwdOp, Hooks, NegateFwdOp, ToyCall, TripleFwdOp


def fail(*_: Any, **__: Any) -> None:
    """What a kernel does when a test says so."""
    raise RuntimeError("the kernel failed")


@pytest.fixture
def acme(registry: BackendRegistry) -> list[str]:
    """A target that serves DoubleFwdOp and fails while the list holds anything."""
    failing: list[str] = []

    def build(*_: Any, **__: Any) -> Callable[..., Tensor]:
        def kernel(x: Tensor, bias: Tensor | None) -> Tensor:
            if failing:
                fail()
            return x * 10

        return kernel

    registry.register_kernel_builder("DoubleFwdOp", "acme", build)
    return failing


def test_row_1_the_target_selected_in_the_call_is_undone() -> None:
    """Target undone, built kernels dropped, record unchanged; the next call selects again and works."""
    op = DoubleFwdOp()
    Hooks.on_run = fail
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(ones(2))
    assert (op.serving_target, op.built_entries("toy"), op._running.last_call) == (None, (), None)
    Hooks.on_run = None

    assert op(ones(2)).tolist() == [2.0, 2.0]
    assert (op.serving_target, len(Hooks.built)) == (BUILTIN, 2)


def test_row_1_the_kernels_of_a_target_are_dropped(acme: list[str]) -> None:
    """The binding group is as construction made it."""
    op = DoubleFwdOp(target="acme")
    acme.append("fail")
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(ones(2))
    assert (op.serving_target, op._binding.target_kernels) == (None, {})
    acme.clear()

    assert op(ones(2)).tolist() == [10.0, 10.0]


def test_row_2_the_target_selected_earlier_is_kept() -> None:
    """Target, entries and record stay; what the failed call built stays too."""
    op = DoubleFwdOp()
    op(ones(2))
    record = op.last_call
    Hooks.on_run = fail
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(ones(2, dtype=torch.float16))

    assert (op.serving_target, op.last_call) == (BUILTIN, record)
    assert [kernel.call.dtype for kernel in op.iter_kernels()] == [torch.float32, torch.float16]


def test_row_2_the_kernels_of_a_target_are_kept(acme: list[str]) -> None:
    """The target and its kernels serve the next call."""
    op = DoubleFwdOp(target="acme")
    op(ones(2))
    acme.append("fail")
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(ones(2))

    assert (op.serving_target, len(op._binding.target_kernels)) == ("acme", 1)


def test_row_1_holds_for_a_compiled_first_call() -> None:
    """A build that fails inside compiled code fixes no target, and the next compiled call works."""
    op = DoubleFwdOp()
    compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
    Hooks.on_build = fail
    with pytest.raises(RuntimeError, match="the kernel failed"):
        compiled(ones(2))
    assert (op.serving_target, list(op.iter_kernels())) == (None, [])
    Hooks.on_build = None

    assert compiled(ones(2)).tolist() == [2.0, 2.0]
    assert op.serving_target == BUILTIN


def test_the_call_stack_is_popped() -> None:
    """After a failure, at any depth, no call is under way."""
    Hooks.on_run = fail
    with pytest.raises(RuntimeError, match="the kernel failed"):
        NestedFwdOp()(ones(2))

    assert call_module._STACK.frames == []


def test_row_1_is_done_to_every_held_sub_op() -> None:
    """A composite that selected in the failed call resets its sub-ops, also those that had completed, recursively."""
    op = NestedFwdOp()
    Hooks.on_run = lambda call: fail() if call.compute == "triple" else None
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(ones(2))
    chain = op.held_delegates()[0]
    first, second = chain.held_delegates()

    assert [sub_op.serving_target for sub_op in (op, chain, first, second)] == [None] * 4
    assert list(op.iter_kernels()) == []
    assert first.last_call.tensors["x"].shape == (2,)
    assert (chain._running.last_call, second._running.last_call) == (None, None)


def test_held_sub_ops_and_their_records_are_kept() -> None:
    """Undo drops selections and kernels, not sub-ops."""
    op = ChainFwdOp()
    held = op.held_delegates()
    Hooks.on_run = fail
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(ones(2))

    assert op.held_delegates() == held


def test_an_injected_sub_op_is_reset_with_its_composite() -> None:
    """A sub-op that had been used by itself selects again; its entries of earlier calls stay, those of this call go."""
    first = DoubleFwdOp()
    first(ones(2))
    (kept,) = first.iter_kernels()
    op = ChainFwdOp(first=first)
    Hooks.on_run = fail
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(ones(2, dtype=torch.float16))

    assert (first.serving_target, list(first.iter_kernels())) == (None, [kept])
    assert first.last_call.dtypes == (torch.float32,)


def test_row_2_keeps_the_sub_ops_of_a_composite() -> None:
    """A composite whose target was selected earlier leaves its sub-ops alone."""
    op = ChainFwdOp()
    op(ones(2))
    record = op.last_call
    Hooks.on_run = fail
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(ones(3))

    assert [item.serving_target for item in (op, *op.held_delegates())] == [BUILTIN, BUILTIN]
    assert (op.last_call, len(list(op.iter_kernels()))) == (record, 1)


def test_a_sub_ops_own_selection_is_undone_by_its_own_failure() -> None:
    """A sub-op that selects in a call that fails inside a composite which goes on is reset by itself."""

    class PatientFwdOp(ChainFwdOp, entry=ChainFwdOp._plan.entry):
        def forward(self, x: Tensor, bias: Tensor | None = None) -> Any:
            with pytest.raises(RuntimeError, match="the kernel failed"):
                self.delegate_for("second", None)(x)
            return self.delegate_for("first", "only")(x, bias)

    Hooks.on_run = lambda call: fail() if call.compute == "triple" else None
    op = PatientFwdOp()

    assert op(ones(2)).tolist() == [2.0, 2.0]
    assert {type(item).__name__: item.serving_target for item in op.held_delegates()} == {
        "DoubleFwdOp": BUILTIN,
        "TripleFwdOp": None,
    }
    assert list(op.last_call.stages) == ["first"]


def test_what_was_written_is_not_undone() -> None:
    """A kernel that wrote before the call failed has written."""
    x, op = ones(2), NegateFwdOp(inplace=True)
    Hooks.on_result = lambda _: fail()
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(x)

    assert x.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_is_no_failure_of_the_call(interrupt: type[BaseException]) -> None:
    """The selection and what was built stay; the stack is popped, so that the next call starts clean."""

    def stop(_: ToyCall) -> None:
        raise interrupt

    op = ChainFwdOp()
    Hooks.on_run = stop
    with pytest.raises(interrupt):
        op(ones(2))

    assert [item.serving_target for item in (op, *op.held_delegates())] == [BUILTIN, BUILTIN]
    assert (len(list(op.iter_kernels())), call_module._STACK.frames) == (1, [])
    Hooks.on_run = None
    assert op(ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "inject",
    [
        "check_signature",
        "select_target",
        "forward",
        "check_result",
        "file_stages",
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_a_failure_in_any_step_leaves_the_state_of_the_table(
    inject: str, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step fails: a first call leaves nothing selected or built, a later one leaves all as it was."""
    import msgspec

    op = ChainFwdOp()
    if warm:
        op(ones(2))
    before = state(op)
    with monkeypatch.context() as patch:
        if inject == "forward":
            patch.setattr(ChainFwdOp, "forward", fail)
        elif inject == "check_result":
            patch.setattr(ChainFwdOp, "_plan", msgspec.structs.replace(op._plan, check_result=fail))
        else:
            patch.setattr(call_module, inject, fail)
        if warm and inject == "select_target":
            assert op(ones(2)).tolist() == [2.0, 2.0]
            return
        with pytest.raises(RuntimeError, match="the kernel failed"):
            op(ones(2))

    assert state(op) == before
    assert call_module._STACK.frames == []
    assert op(ones(2)).tolist() == [2.0, 2.0]


def state(op: ChainFwdOp) -> tuple[Any, ...]:
    """Target, entries and record of a composite, and targets of its sub-ops."""
    targets = tuple(item.serving_target for item in (op, *op.held_delegates()))
    return targets, tuple(map(id, op.iter_kernels())), op._running.last_call


def test_a_failure_leaves_what_another_thread_completed() -> None:
    """A selection under which another thread's call has completed stays, and so do that thread's entries."""
    op, failing, other_done = TripleFwdOp(), threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def run(call: ToyCall) -> None:
        if call.dtype is torch.float16:
            failing.set()
            assert other_done.wait(10)
            fail()

    def fails() -> None:
        try:
            op(ones(2, dtype=torch.float16))
        except RuntimeError as error:
            errors.append(error)

    Hooks.on_run = run
    thread = threading.Thread(target=fails)
    thread.start()
    assert failing.wait(10)
    assert op(ones(2)).tolist() == [3.0, 3.0]
    other_done.set()
    thread.join()

    assert [str(error) for error in errors] == ["the kernel failed"]
    assert op.serving_target == BUILTIN
    assert [kernel.call.dtype for kernel in op.iter_kernels()] == [torch.float32]
    assert op.last_call.dtypes == (torch.float32,)


def test_kernels_of_a_target_built_by_a_failed_call_are_dropped_alone(registry: BackendRegistry) -> None:
    """Where the selection stays because another thread completed under it, the failed call's kernel goes."""
    building, other_done = threading.Event(), threading.Event()

    def build(*specs: Any, **_: Any) -> Callable[..., Tensor]:
        def kernel(x: Tensor, bias: Tensor | None) -> Tensor:
            if x.shape == (3,):
                building.set()
                assert other_done.wait(10)
                fail()
            return x * 10

        return kernel

    registry.register_kernel_builder("DoubleFwdOp", "acme", build)
    op = DoubleFwdOp(target="acme")
    errors: list[BaseException] = []

    def fails() -> None:
        try:
            op(ones(3))
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=fails)
    thread.start()
    assert building.wait(10)
    op(ones(2))
    other_done.set()
    thread.join()

    assert ([str(error) for error in errors], op.serving_target) == (["the kernel failed"], "acme")
    assert list(op._binding.target_kernels) == [(CPU, ((torch.float32, (2,)), None))]
