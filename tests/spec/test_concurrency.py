"""Many threads, forks and copies: one build per entry, right values, nothing kept alive."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.backend import BUILTIN, BackendRegistry, Discovery
from tileops_kernels.calls import CallSpec

from .composites import ChainFwdOp, NestedFwdOp, names, ones
from .toys import CPU, TOY, DoubleFwdOp, Hooks, TableFwdOp, ToyCall, ToyKernel, ToyOp, TripleFwdOp

THREADS = 16
SHAPES = [(length, 2) for length in range(1, 9)]


class PerLength(ToyKernel):
    """One entry per length, slow to build."""

    @classmethod
    def entry_for(cls, call: ToyCall) -> Any:
        return call.length, lambda: cls(call)


class PerLengthFwdOp(TripleFwdOp, entry=TripleFwdOp._plan.entry):
    """Builds one entry per length."""

    kernel_types = {"toy": PerLength}  # noqa: RUF012

    def forward(self, x: Tensor) -> Any:
        call = ToyCall(device=x.device, dtype=x.dtype, compute="triple", length=x.shape[0])
        return self.kernel_for(TOY, call)(x.contiguous())


def together(work: Callable[[int], Any]) -> list[Any]:
    """Run `work` on 16 threads that start at once."""
    barrier = threading.Barrier(THREADS)

    def run(index: int) -> Any:
        barrier.wait()
        return work(index)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_threads_build_each_entry_once_and_get_right_values() -> None:
    """16 threads, 8 shapes each in another order, one new instance: 8 builds."""
    op = PerLengthFwdOp()
    Hooks.on_build = lambda _: time.sleep(0.005)

    def work(index: int) -> bool:
        shapes = SHAPES[index % 8 :] + SHAPES[: index % 8]
        tensors = [torch.full(shape, float(index + 1)) for shape in shapes]
        return all(torch.equal(op(x), x * 3) for x in tensors)

    assert together(work) == [True] * THREADS
    assert Counter(kernel.call.length for kernel in Hooks.built) == {length: 1 for length, _ in SHAPES}
    assert len(op.built_entries("toy")) == len(SHAPES)


def test_a_target_builds_each_kernel_once(registry: BackendRegistry) -> None:
    """The same for the kernels of a target."""
    built: list[Any] = []

    def build(*specs: Any, **_: Any) -> Callable[..., Tensor]:
        time.sleep(0.005)
        built.append(specs)
        return lambda x, bias: x * 10

    registry.register_kernel_builder("DoubleFwdOp", "acme", build)
    op = DoubleFwdOp(target="acme")

    assert together(lambda index: op(torch.ones(SHAPES[index % 8])).sum().item())[:8] == [
        20.0 * length for length, _ in SHAPES
    ]
    assert len(built) == len(SHAPES)


def test_failing_builds_leave_other_threads_entries() -> None:
    """Half the threads ask for entries whose build fails: the others' results and entries are untouched."""
    op = PerLengthFwdOp()
    op(torch.ones(100, 2))

    def fail(call: ToyCall) -> None:
        time.sleep(0.002)
        if call.length % 2:
            raise RuntimeError(f"length {call.length} does not build")

    Hooks.on_build = fail

    def work(index: int) -> str:
        x = torch.ones(SHAPES[index % 8])
        try:
            return "right" if torch.equal(op(x), x * 3) else "wrong"
        except RuntimeError as error:
            return str(error)

    expected = ["right" if length % 2 == 0 else f"length {length} does not build" for length, _ in SHAPES]
    assert together(work) == expected * 2
    assert sorted(kernel.call.length for kernel in op.iter_kernels()) == [2, 4, 6, 8, 100]
    Hooks.on_build = None
    assert op(torch.ones(3, 2)).shape == (3, 2)


def test_a_failed_build_wakes_those_that_wait_for_it() -> None:
    """A build that fails once is tried by the next thread that wants it, and then serves all."""
    op, attempts = PerLengthFwdOp(), []
    op(torch.ones(100, 2))

    def fail_first(call: ToyCall) -> None:
        attempts.append(call.length)
        time.sleep(0.01)
        if len(attempts) == 1:
            raise RuntimeError("once")

    Hooks.on_build = fail_first

    def work(_: int) -> str:
        try:
            op(torch.ones(5, 2))
        except RuntimeError as error:
            return str(error)
        return "right"

    assert Counter(together(work)) == {"right": 15, "once": 1}
    assert len(attempts) == 2


def test_an_entry_that_a_failed_call_built_is_forgotten_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that found the entry before the failing call dropped it does not bring it back under its call alone."""
    op, found, failed = PerLengthFwdOp(), threading.Event(), threading.Event()
    table = op.kernel_table("toy")
    call = ToyCall(device=CPU, dtype=torch.float32, compute="triple", length=3)
    entry = table.entry(call)
    built = next(iter(table._built_entries))
    real = table._build_once

    def held(*args: Any) -> Any:
        result = real(*args)
        found.set()
        assert failed.wait(10)
        return result

    table._entries_by_call.clear()
    monkeypatch.setattr(table, "_build_once", held)
    thread = threading.Thread(target=table.entry, args=(call,))
    thread.start()
    assert found.wait(10)
    table.discard((entry,))
    failed.set()
    thread.join()

    assert (built in table._built_entries, table._entries_by_call) == (False, {})


def test_threads_call_one_composite() -> None:
    """Each thread's sub-calls are filed in its own call."""
    op = ChainFwdOp(twice=True)

    def work(index: int) -> tuple[float, list[int]]:
        y = op(torch.full((index + 1,), 1.0))
        return y[0].item(), [len(calls) for calls in op.last_call.stages.values()]

    assert together(work) == [(6.0, [1, 1])] * THREADS


def test_compiled_and_eager_calls_start_together() -> None:
    """Half of the threads call a compiled function of the instance, half the instance: one build, right values."""
    op = DoubleFwdOp()
    compiled: Any = torch.compile(op, fullgraph=True, backend="aot_eager")
    Hooks.on_build = lambda _: time.sleep(0.005)

    def work(index: int) -> list[float]:
        x = torch.full((2,), float(index))
        result: Tensor = (compiled if index % 2 else op)(x)
        return result.tolist()

    assert together(work) == [[2.0 * index] * 2 for index in range(THREADS)]
    assert len(Hooks.built) == 1


def test_threads_that_construct_load_backends_once() -> None:
    """Every thread finds what backends registered, also those that asked while another loaded."""
    loads: list[int] = []

    def find() -> tuple[()]:
        time.sleep(0.02)
        loads.append(1)
        registry.register_kernel_type("DoubleFwdOp", "fast", type("Fast", (ToyKernel,), {"general": False}))
        return ()

    registry = BackendRegistry(names)
    discovery = Discovery(registry, find=find)
    previous = ToyOp._backends
    ToyOp._backends = discovery
    try:
        tables = together(lambda _: sorted(DoubleFwdOp().kernel_table("toy").types))
    finally:
        ToyOp._backends = previous

    assert (loads, tables) == ([1], [["fast", "toy"]] * THREADS)


@pytest.mark.parametrize("make", [DoubleFwdOp, lambda: ChainFwdOp(twice=True), NestedFwdOp])
def test_a_dropped_instance_is_collected(make: Callable[[], Any]) -> None:
    """Nothing in the library holds an instance, its sub-ops or its kernels."""
    op = make()
    op(ones(2))
    alive = [weakref.ref(op), *map(weakref.ref, op.held_delegates()), *map(weakref.ref, op.iter_kernels())]
    Hooks.reset()
    del op
    gc.collect()

    assert [reference() for reference in alive] == [None] * len(alive)


def test_a_call_spec_keeps_no_tensor() -> None:
    """What keys the caches is facts: no field of a call spec, and no target's key, is a tensor."""
    op = DoubleFwdOp()
    op(ones(2))
    specs = list(op.kernel_table("toy")._entries_by_call)

    assert all(isinstance(spec, CallSpec) for spec in specs)
    assert not any(isinstance(getattr(spec, name), Tensor) for spec in specs for name in spec.__dataclass_fields__)


def through_pickle(op: Any) -> Any:
    """The op, through bytes."""
    return pickle.loads(pickle.dumps(op))  # noqa: S301


COPIES = pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, through_pickle])


@COPIES
def test_a_copy_is_a_new_instance(duplicate: Callable[[Any], Any]) -> None:
    """Parameters and later attributes survive; key, binding, kernels and record are its own."""
    op = TableFwdOp(torch.tensor([1.0, 2.0]), target=BUILTIN)
    op.note = "mine"
    op(torch.ones(2))
    twin = duplicate(op)

    assert (twin.table.tolist(), twin.note, twin._construction.target) == ([1.0, 2.0], "mine", BUILTIN)
    assert twin._instance_key != op._instance_key
    assert (twin.serving_target, twin._running.last_call, list(twin.iter_kernels())) == (None, None, [])
    assert twin(torch.ones(2)).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, through_pickle])
def test_a_copied_composite_has_sub_ops_of_its_own(duplicate: Callable[[Any], Any]) -> None:
    """Held sub-ops are copied under their stages; an attribute that is a sub-op is the copy that is held."""
    op = NestedFwdOp()
    op(ones(2))
    twin = duplicate(op)
    (chain,), (copied,) = op.held_delegates(), twin.held_delegates()

    assert copied is not chain
    assert [type(item) for item in copied.held_delegates()] == [DoubleFwdOp, TripleFwdOp]
    assert copied.first is copied.held_delegates()[0]
    assert copied.first._instance_key != chain.held_delegates()[0]._instance_key
    assert (twin.serving_target, copied.serving_target, list(twin.iter_kernels())) == (None, None, [])
    assert twin(ones(2)).tolist() == [6.0, 6.0]
    assert len(twin.held_delegates()) == 1


def test_a_copy_of_an_injected_sub_op_is_held() -> None:
    """The copy calls its own copy of what was injected."""
    op = ChainFwdOp(first=DoubleFwdOp(target=BUILTIN))
    twin = copy.deepcopy(op)

    assert twin(ones(2)).tolist() == [2.0, 2.0]
    assert twin.first._construction.target == BUILTIN
    assert op._running.last_call is None


def in_child(work: Callable[[], bool]) -> str:
    """What `work` gives in a forked child: right, wrong, or nothing when it does not end in time."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"wrong"
        try:
            signal.alarm(20)
            if work():
                answer = b"right"
        finally:
            os.write(write, answer)
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer.decode()


FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@FORKS
def test_a_forked_child_constructs_and_calls() -> None:
    """Registries and keys are usable after a fork, for instances of the parent and new ones."""
    op = DoubleFwdOp()

    assert in_child(lambda: op(ones(2)).tolist() == ChainFwdOp()(ones(2)).tolist() == [2.0, 2.0]) == "right"


@FORKS
def test_a_child_forked_during_a_build_builds_itself() -> None:
    """Locks that a thread of the parent held at the fork are free in the child."""
    op, building, forked = PerLengthFwdOp(), threading.Event(), threading.Event()
    parent = os.getpid()

    def build(_: ToyCall) -> None:
        if os.getpid() == parent:
            building.set()
            assert forked.wait(30)

    Hooks.on_build = build
    thread = threading.Thread(target=op, args=(torch.ones(3, 2),))
    thread.start()
    assert building.wait(10)
    answer = in_child(lambda: bool(op(torch.ones(3, 2))[0, 0] == 3 and op.serving_target == BUILTIN))
    forked.set()
    thread.join()

    assert answer == "right"
