"""Orders that must not matter, and failures at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tileops.backend import BackendRegistry, Discovery
from tileops.op import Op
from tileops.op import call as call_module
from tileops_kernels.errors import TileOPsError

from .composites import ChainFwdOp, NestedFwdOp, names, ones
from .toys import CPU, TOY, DoubleFwdOp, Hooks, ToyCall, ToyKernel, ToyOp, Watched

KEYS = ("a", "b", "c", "d")


@st.composite
def kernel_sets(draw: st.DrawFn) -> dict[str, type[ToyKernel]]:
    """Any set of kernel types: which refuse, which is general, which prefer which; sound or not."""
    found = {}
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True)):
        reason = draw(st.sampled_from([None, None, "refuses"]))
        general = draw(st.sampled_from([False, False, False, True]))
        found[key] = type(
            f"Kernel{key.upper()}",
            (ToyKernel,),
            {
                "forward": Watched.forward,
                "general": general,
                "preferred_over": draw(st.frozensets(st.sampled_from(KEYS), max_size=2)),
                "devices": draw(st.sampled_from([frozenset({"cpu"}), frozenset({"cuda"})])),
                "refusal": classmethod(lambda cls, call, reason=reason: reason),
            },
        )
    return found


def outcome(types: Sequence[tuple[str, Any]], registered: Sequence[tuple[str, Any]]) -> str:
    """The key that an op with these kernel types selects, or its error."""
    registry = BackendRegistry(names)
    for key, kernel_type in registered:
        registry.register_kernel_type("DoubleFwdOp", key, kernel_type)
    body = {"kernel_types": dict(types), "_backends": Discovery(registry, find=lambda: ())}
    op = type("DoubleFwdOp", (DoubleFwdOp,), body, entry=None)
    try:
        return str(op().key_for(TOY, ToyCall(device=CPU, dtype=torch.float32, compute="double")))
    except TileOPsError as error:
        return f"{type(error).__name__}: {error}"


@given(types=kernel_sets(), split=st.integers(0, 4), data=st.data())
@settings(max_examples=80, deadline=None)
def test_no_order_of_declaration_or_registration_matters(
    types: dict[str, type[ToyKernel]], split: int, data: st.DataObject
) -> None:
    """Any permutation of `kernel_types` and of registrations gives the same key or the same error."""
    items = list(types.items())
    own, brought = items[:split], items[split:]
    expected = outcome(own, brought)
    shuffled_own, shuffled_brought = data.draw(st.permutations(own)), data.draw(st.permutations(brought))

    assert outcome(shuffled_own, shuffled_brought) == expected


def test_every_order_of_three_selects_alike() -> None:
    """All orders of a sound set: the preferred type, whoever brought it."""
    first = type(
        "First", (ToyKernel,), {"general": False, "preferred_over": frozenset({"b"}), "forward": Watched.forward}
    )
    second = type("Second", (ToyKernel,), {"general": False, "forward": Watched.forward})
    items = [("a", first), ("b", second), ("c", ToyKernel)]

    assert {outcome(order[:1], order[1:]) for order in permutations(items)} == {"a"}


@given(
    steps=st.lists(
        st.sampled_from(["good", "build", "run", "result", "interrupt", "half", "meta", "empty"]), max_size=8
    )
)
@settings(max_examples=80, deadline=None)
def test_any_run_of_failures_leaves_the_state_of_table_6(steps: list[str]) -> None:
    """Selected exactly when a call has completed or was interrupted, with the record of the last good one."""
    Hooks.reset()
    op, selected, record = ChainFwdOp(), False, None
    for step in steps:
        Hooks.on_build = Hooks.on_run = Hooks.on_result = None
        kernels = set(map(id, op.iter_kernels()))
        if step in {"good", "half"}:
            op(ones(2, dtype=torch.float32 if step == "good" else torch.float16))
            selected, record = True, op.last_call
        elif step in {"meta", "empty"}:
            op(torch.ones(2, device="meta") if step == "meta" else torch.ones(0))
            record = op.last_call
        else:
            broke = _inject(step)
            try:
                op(ones(2))
            except broke:
                selected = selected or broke is KeyboardInterrupt
            else:
                assert step == "build"
                assert kernels
                record = op.last_call
        assert (op.serving_target is not None) == selected
        assert op._running.last_call is record
        assert call_module._STACK.frames == []
        if not selected:
            assert list(op.iter_kernels()) == []
    Hooks.reset()


class BrokenError(RuntimeError):
    """What an injected failure raises."""


def failing_at(number: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """`real`, which fails when it is called for the `number`th time."""
    left = [number]

    def maybe(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise BrokenError
        return real(*args, **kwargs)

    return maybe


STEPS: dict[str, tuple[Any, str]] = {
    "1 begin": (call_module, "CallFrame"),
    "2 check": (call_module, "check_signature"),
    "4 select": (call_module, "select_target"),
    "5 run a kernel": (Watched, "forward"),
    "5 build": (Watched, "__init__"),
    "5 run a composite": (ChainFwdOp, "forward"),
    "7 stages": (call_module, "file_stages"),
}
"""Where each step of a call can be made to fail."""


@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from([None, "6 result", *STEPS]),
            st.integers(1, 4),
            st.sampled_from([torch.float32, torch.float16]),
        ),
        max_size=6,
    )
)
@settings(max_examples=60, deadline=None)
def test_a_failure_injected_into_any_step_leaves_the_state_of_table_6(
    calls: list[tuple[str | None, int, torch.dtype]],
) -> None:
    """The first, second, ... time that a step is taken in a nested composite's call, it fails: nothing else is left."""
    Hooks.reset()
    op = NestedFwdOp()
    for step, number, dtype in calls:
        selected, record, kernels = op.serving_target, op._running.last_call, list(op.iter_kernels())
        served = [item for item in every_op(op) if item.serving_target is not None]
        with pytest.MonkeyPatch.context() as patch:
            if step in STEPS:
                owner, name = STEPS[step]
                patch.setattr(owner, name, failing_at(number, getattr(owner, name)))
                if step == "5 run a kernel":  # calling an entry is calling the `forward` of its class
                    patch.setattr(ToyKernel, "__call__", Watched.forward)
            elif step is not None:
                Hooks.on_result = failing_at(number, lambda result: result)
            try:
                op(ones(2, dtype=dtype))
            except BrokenError:
                completed = False
            else:
                completed = True
        Hooks.on_result = None
        tree = list(every_op(op))
        assert call_module._STACK.frames == []
        if completed:
            assert (op.serving_target, op.last_call.dtypes) == ("builtin", (dtype,))
        elif selected is None:
            assert ({item.serving_target for item in tree}, list(op.iter_kernels())) == ({None}, [])
            assert op._running.last_call is record
        else:
            assert {item.serving_target for item in served} == {"builtin"}
            assert set(map(id, kernels)) <= set(map(id, op.iter_kernels()))
            assert op._running.last_call is record
    assert op(ones(2)).tolist() == [6.0, 6.0]


def every_op(op: Op) -> Iterator[Op]:
    """The op and all that it holds, at any depth."""
    yield op
    for sub_op in op.held_delegates():
        yield from every_op(sub_op)


def _inject(step: str) -> type[BaseException]:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt if step == "interrupt" else RuntimeError(step)

    setattr(Hooks, {"build": "on_build", "result": "on_result"}.get(step, "on_run"), fail)
    return KeyboardInterrupt if step == "interrupt" else RuntimeError


@pytest.fixture(scope="module", autouse=True)
def quiet_backends() -> Any:
    """Properties make their own registries; the toys' default one stays empty."""
    previous = ToyOp._backends
    ToyOp._backends = Discovery(BackendRegistry(names), find=lambda: ())
    yield
    ToyOp._backends = previous
