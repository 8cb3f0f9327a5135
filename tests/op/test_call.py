"""One call: the seven steps, what is recorded, and what a failure undoes."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from tileops.backend import BUILTIN
from tileops.errors import ArgumentError, DTypeError, ResultError, ShapeError, UnknownTargetError
from tileops.op import call as call_module

from .toys import ScaledFwdOp, ScaledKernel


def test_a_call_returns_the_kernels_result_and_is_recorded() -> None:
    """After a call the target serves, the entry is kept and the record says what was passed."""
    op = ScaledFwdOp()
    y = op(torch.ones(2, 3), torch.ones(2, 3))

    assert torch.equal(y, torch.full((2, 3), 3.0))
    assert op.serving_target == BUILTIN
    assert op.kernel_config() == {"threads": 128}
    assert {name: facts.shape for name, facts in op.last_call.tensors.items()} == {
        "x": (2, 3),
        "bias": (2, 3),
        "y": (2, 3),
    }
    assert op.last_call.device == torch.device("cpu")
    assert op.last_call.written == ()


def test_a_repeated_call_checks_and_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors with metadata seen before find the record and the entry of the first call."""
    op = ScaledFwdOp()
    op(torch.ones(2))
    record = op.last_call
    monkeypatch.setattr(type(op._plan), "check_call", property(lambda _: pytest.fail("checked again")), raising=False)
    op(torch.zeros(2))

    assert op.last_call is record
    assert ScaledKernel.builds == 1


def test_checked_calls_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths that grow with every call do not pile up."""
    monkeypatch.setattr(call_module, "_SEEN_CALLS", 4)
    op = ScaledFwdOp()
    for length in range(1, 10):
        op(torch.ones(length))

    assert len(op._running.seen) == 4
    assert op.last_call.tensors["x"].shape == (9,)


def test_an_empty_write_runs_nothing() -> None:
    """When every output holds no elements the result comes from the signature; no target is selected."""
    op = ScaledFwdOp()
    y = op(torch.ones(0, 3))

    assert y.shape == (0, 3)
    assert ScaledKernel.builds == 0
    assert op.serving_target is None
    assert op.last_call.tensors["y"].shape == (0, 3)


def test_a_meta_call_is_checked_and_recorded_only() -> None:
    """Meta tensors give a meta result and a record, build nothing and select no target."""
    op = ScaledFwdOp()
    y = op(torch.ones(2, 3, device="meta"))

    assert (y.shape, y.device.type) == ((2, 3), "meta")
    assert op.last_call.device == torch.device("meta")
    assert (op.serving_target, ScaledKernel.builds) == (None, 0)


def test_a_meta_call_is_refused_with_the_text_of_a_real_one() -> None:
    """The same mistake has the same message on meta tensors."""
    op = ScaledFwdOp()
    texts = []
    for device in ("cpu", "meta"):
        with pytest.raises(ShapeError) as caught:
            op(torch.ones(2, device=device), torch.ones(3, device=device))
        texts.append(str(caught.value))

    assert texts[0] == texts[1]
    assert texts[0].startswith("ScaledFwdOp: bias: expected shape [2]")


def test_a_wrong_call_runs_nothing_and_leaves_the_record() -> None:
    """A refused call builds nothing and the last record stays."""
    op = ScaledFwdOp()
    op(torch.ones(2))
    record = op.last_call
    with pytest.raises(DTypeError, match=r"ScaledFwdOp: x: expected dtype float16 or float32, received int64"):
        op(torch.ones(2, dtype=torch.int64))

    assert op.last_call is record
    assert ScaledKernel.builds == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.double(), "ScaledFwdOp: y: expected"),
        (lambda x: x[:1], "ScaledFwdOp: y: expected"),
        (lambda x: x.to("meta"), "ScaledFwdOp: y: expected"),
        (lambda x: x.repeat_interleave(2)[::2], "ScaledFwdOp: y: expected"),
        (lambda _: None, "ScaledFwdOp: y: expected"),
        (lambda x: (x, x), "ScaledFwdOp: y: expected"),
    ],
)
def test_the_result_is_checked(wrong: object, message: str) -> None:
    """A kernel that returns another dtype, shape, device, layout or count is caught, and the call is not recorded."""
    op = ScaledFwdOp()
    ScaledKernel.result = wrong  # type: ignore[assignment]
    with pytest.raises(ResultError, match=message):
        op(torch.ones(2))

    assert op._running.last_call is None


def test_a_failure_of_the_first_call_undoes_its_selection() -> None:
    """Target selected in the failed call: selection undone, entries dropped, and the next call starts afresh."""
    op = ScaledFwdOp()
    ScaledKernel.failure = RuntimeError("the kernel failed")
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(torch.ones(2))
    assert op.serving_target is None
    assert op.built_entries("scaled") == ()

    ScaledKernel.failure = None

    assert torch.equal(op(torch.ones(2)), torch.full((2,), 2.0))
    assert (op.serving_target, ScaledKernel.builds) == (BUILTIN, 2)


def test_a_failure_of_a_later_call_keeps_everything() -> None:
    """Target selected earlier: target, entries and record are kept."""
    op = ScaledFwdOp()
    op(torch.ones(2))
    record, entries = op.last_call, op.built_entries("scaled")
    ScaledKernel.failure = RuntimeError("the kernel failed")
    with pytest.raises(RuntimeError, match="the kernel failed"):
        op(torch.ones(3))

    assert (op.serving_target, op.built_entries("scaled"), op.last_call) == (BUILTIN, entries, record)


def test_an_interrupt_pops_the_call_and_undoes_nothing() -> None:
    """KeyboardInterrupt is no failure of the call: the selection stays, and the call stack is as before."""
    op = ScaledFwdOp()
    ScaledKernel.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        op(torch.ones(2))

    assert op.serving_target == BUILTIN
    assert len(op.built_entries("scaled")) == 1
    assert call_module._STACK.frames == []


def test_an_unknown_target_is_refused_at_the_first_call() -> None:
    """A target that nobody registered is named beside the known ones, and the op stays without one."""
    op = ScaledFwdOp(target="acme")
    with pytest.raises(
        UnknownTargetError, match=r"ScaledFwdOp: target: expected one of \['builtin'\], received 'acme'"
    ):
        op(torch.ones(2))

    assert op.serving_target is None


def test_the_in_tree_kernels_can_be_asked_for() -> None:
    """`target=BUILTIN` names them."""
    assert torch.equal(ScaledFwdOp(target=BUILTIN)(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda op, x: op(), r"ScaledFwdOp: x: expected a tensor, received nothing; call it as op\(x, bias=None\)"),
        (lambda op, x: op(x, x, x), r"expected at most 2 arguments \(x, bias=None\), received 3; call it as"),
        (
            lambda op, x: op(x, bais=x),
            r"ScaledFwdOp: bais: expected arguments \(x, bias=None\), received the keyword 'bais'",
        ),
        (
            lambda op, x: op([1.0]),
            r"ScaledFwdOp: x: expected a torch\.Tensor, received list; pass torch\.as_tensor\(x\)",
        ),
        (lambda op, x: op(x, 1.0), r"ScaledFwdOp: bias: expected a torch\.Tensor, received float"),
        (lambda op, x: op(None), r"ScaledFwdOp: x: expected a torch\.Tensor, received NoneType"),
    ],
)
def test_wrong_arguments_of_a_call_are_named(call: object, message: str) -> None:
    """Missing, surplus, misspelled and non-tensor arguments are each one error, before anything runs."""
    with pytest.raises(ArgumentError, match=message):
        call(ScaledFwdOp(), torch.ones(2))  # type: ignore[operator]

    assert ScaledKernel.builds == 0


def test_threads_share_one_instance() -> None:
    """16 threads calling one new instance with two dtypes get right results and build two entries."""
    op = ScaledFwdOp()
    barrier = threading.Barrier(16)

    def run(index: int) -> bool:
        barrier.wait()
        dtype = torch.float32 if index % 2 else torch.float16
        x = torch.full((index + 1,), float(index), dtype=dtype)
        return all(torch.equal(op(x), x * 2) for _ in range(20))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(run, range(16)))
    assert ScaledKernel.builds == 2


def test_an_op_keeps_no_tensor() -> None:
    """Inputs and outputs are free once the caller drops them."""
    op = ScaledFwdOp()
    x = torch.ones(2)
    y = op(x)
    alive: list[weakref.ref[Tensor]] = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()

    assert [reference() for reference in alive] == [None, None]
