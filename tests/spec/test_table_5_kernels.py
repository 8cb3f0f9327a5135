"""Kernels of an op: the four steps of `kernel_for`, and the difference between a kernel type and an entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch

from tileops_kernels import table as table_module
from tileops_kernels.calls import CallSpec
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import BuildError, CallSpecError, NoImplementationError, OpNotAvailableError, TileOPsError

from .composites import ChainFwdOp, ones
from .toys import CPU, TOY, CentreFwdOp, DoubleFwdOp, Hooks, ToyCall, ToyKernel

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)


def call(**changes: Any) -> ToyCall:
    """A call spec of the toys."""
    return ToyCall(**{"device": CPU, "dtype": torch.float32, "compute": "double", **changes})


def test_row_1_a_kernel_type_is_a_class_and_an_entry_what_it_built() -> None:
    """`entry_for` of the class builds the object that `kernel_for` returns."""
    entry = DoubleFwdOp().kernel_for(TOY, call())

    assert isinstance(ToyKernel, type)
    assert isinstance(entry, ToyKernel)


def test_row_2_a_kernel_type_is_there_at_import_and_an_entry_at_the_first_call() -> None:
    """Construction builds none; the first call that needs one does."""
    op = DoubleFwdOp()
    assert (op.kernel_table("toy").types, op.built_entries("toy")) == ({"toy": ToyKernel}, ())
    op(ones(1))

    assert len(op.built_entries("toy")) == 1


def test_row_3_an_entry_carries_what_its_identity_settled() -> None:
    """It is built from the call spec of the call that needed it, with its device's facts settled."""
    op = DoubleFwdOp()
    op(ones(1))
    kernel = next(op.iter_kernels())

    assert (kernel.call.compute, kernel.call.dtype, kernel.call.device) == ("double", torch.float32, CPU)
    assert (kernel.call.arch, kernel.call.smem_budget) == (0, 0)


def test_row_4_there_is_one_entry_per_kernel_type_and_identity() -> None:
    """Calls of one identity share it, and a new identity builds a new one and keeps the old."""
    op = DoubleFwdOp()
    first, again, other = (op.kernel_for(TOY, call(length=n, dtype=d)) for n, d in HALVES)

    assert first is again is not other
    assert op.built_entries("toy") == (first, other)


HALVES = [(8, torch.float32), (9, torch.float32), (8, torch.float16)]


def test_row_5_entries_are_kept_under_their_interface() -> None:
    """Each interface has entries of its own."""
    op = CentreFwdOp(training=True)
    op(ones(1), ones(1), torch.tensor(0))

    assert (len(op.built_entries("toy")), op.built_entries("other")) == (1, ())


def test_row_6_the_subclass_calls_the_entry() -> None:
    """An entry runs `forward` of its kernel type."""
    assert DoubleFwdOp().kernel_for(TOY, call())(ones(2), None).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("ask", ["kernel_for", "key_for"])
def test_step_1_an_unknown_interface_is_not_available(ask: str) -> None:
    """Before anything else the interface is confirmed, and those of the class are listed."""
    with pytest.raises(OpNotAvailableError) as caught:
        getattr(CentreFwdOp(), ask)("toys", call())

    assert str(caught.value) == (
        "CentreFwdOp: interface: expected one of ['other', 'toy'], received 'toys'; name an interface that the op "
        "class declares in interfaces"
    )


def test_step_1_a_composite_without_kernels_has_no_interface() -> None:
    """It asks its sub-ops."""
    with pytest.raises(OpNotAvailableError, match=r"ChainFwdOp: interface: expected one of \[\], received 'toy'"):
        ChainFwdOp().built_entries("toy")


def test_step_1_a_plain_string_finds_the_same_entry() -> None:
    """The typed key is an ordinary string."""
    op = DoubleFwdOp()

    assert op.kernel_for("toy", call()) is op.kernel_for(TOY, call())


def test_step_1_a_missing_device_is_the_accelerators_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache key names a device, so a change of the current one is another call."""
    current = [torch.device("cuda", 0)]
    monkeypatch.setattr(table_module, "current_accelerator_device", lambda: current[0])
    monkeypatch.setattr(table_module, "device_facts", lambda _: HOPPER)
    monkeypatch.setattr(table_module, "_current", lambda _: nullcontext())
    op = DoubleFwdOp()
    first: Any = op.kernel_for(TOY, call(device=None))
    current[0] = torch.device("cuda", 1)
    second: Any = op.kernel_for(TOY, call(device=None))

    assert (first.call.device, second.call.device) == (torch.device("cuda", 0), torch.device("cuda", 1))
    assert op.kernel_for(TOY, call(device=torch.device("cuda", 0))) is first


def test_step_2_a_hit_reads_no_device_and_asks_no_kernel_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """An equal call spec is one lookup."""
    op = DoubleFwdOp()
    entry = op.kernel_for(TOY, call())

    def forbidden(*_: object) -> None:
        raise AssertionError("a hit must not come here")

    for name in ("device_facts", "select", "current_accelerator_device"):
        monkeypatch.setattr(table_module, name, forbidden)
    monkeypatch.setattr(ToyKernel, "entry_for", forbidden)

    assert op.kernel_for(TOY, call()) is entry


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCall(CallSpec):
    """A call spec of another interface."""

    dtype: torch.dtype
    compute: str
    length: int = 0


WRONG_CALLS: list[tuple[Callable[[], CallSpec], str]] = [
    (
        lambda: OtherCall(device=CPU, dtype=torch.float32, compute="double"),
        (
            "DoubleFwdOp.toy: expected a call spec of type ToyCall, received OtherCall(device=device(type='cpu'), "
            "facts=None, dtype=torch.float32, compute='double', length=0); state the call as ToyCall(...)"
        ),
    ),
    (
        lambda: call(length=cast("int", [8])),
        (
            "DoubleFwdOp.toy: expected a call spec whose every field can key a cache, received "
            "ToyCall(device=device(type='cpu'), facts=None, dtype=torch.float32, compute='double', length=[8]); use "
            "numbers, strings, dtypes and tuples"
        ),
    ),
    (
        lambda: call(facts=HOPPER),
        (
            "DoubleFwdOp.toy: expected a call spec without device facts, received facts=DeviceFacts(arch=90, "
            "sm_count=132, smem_budget=232448); leave facts out: they are read from the call's device (only key_for "
            "and explain take them stated)"
        ),
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_CALLS)
def test_step_3_a_wrong_call_spec_is_a_type_error(wrong: Callable[[], CallSpec], message: str) -> None:
    """Another type, a field that cannot key a cache, and stated device facts are refused on a miss."""
    op = DoubleFwdOp()
    with pytest.raises(CallSpecError) as caught:
        op.kernel_for(TOY, cast("ToyCall", wrong()))

    assert isinstance(caught.value, TypeError)
    assert str(caught.value) == message
    assert op.built_entries("toy") == ()


def test_step_3_facts_may_be_stated_to_ask_which_key_serves() -> None:
    """`key_for` answers for a machine that is not here."""
    assert DoubleFwdOp().key_for("toy", call(device=torch.device("cuda", 0), facts=HOPPER)) == "toy"


def test_step_4_key_for_names_what_is_selected() -> None:
    """The key that `key_for` returns is that of the class that was built."""
    op = DoubleFwdOp()

    assert op.key_for("toy", call()) == "toy"
    assert [type(kernel) for kernel in (op.kernel_for("toy", call()),)] == [op.kernel_table("toy").types["toy"]]


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The device indices that are made current, on a machine whose accelerator is CUDA."""
    entered: list[int | None] = []

    @contextmanager
    def device_index(index: int | None) -> Iterator[None]:
        entered.append(index)
        yield
        entered.append(None)

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_index", device_index)
    monkeypatch.setattr(table_module, "device_facts", lambda _: HOPPER)
    return entered


def test_step_4_building_runs_with_the_calls_device_current(current: list[int | None]) -> None:
    """The factory runs while the device is current, which is restored after."""
    seen: list[list[int | None]] = []
    Hooks.on_build = lambda _: seen.append(list(current))
    DoubleFwdOp().kernel_for(TOY, call(device=torch.device("cuda", 1)))

    assert (seen, current) == ([[1]], [1, None])


def test_step_4_tuning_runs_with_the_calls_device_current(
    current: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuning request for a built entry, and tuning a later one, make its device current too."""
    seen: list[list[int | None]] = []
    monkeypatch.setattr(table_module, "tune", lambda *_: seen.append(list(current)))
    op = DoubleFwdOp()
    op.kernel_for(TOY, call(device=torch.device("cuda", 1)))
    op.request_tune()
    op.kernel_for(TOY, call(device=torch.device("cuda", 2)))

    assert [inside[-1] for inside in seen] == [1, 2]


def test_step_4_a_device_of_another_type_is_left_alone(current: list[int | None]) -> None:
    """Building for the CPU makes no accelerator device current."""
    DoubleFwdOp().kernel_for(TOY, call())

    assert current == []


def test_a_failed_build_is_not_kept() -> None:
    """The error comes through as it is, nothing is kept, and the next call builds."""

    def fail(_: ToyCall) -> None:
        raise BuildError("no compiler")

    Hooks.on_build = fail
    op = DoubleFwdOp()
    with pytest.raises(BuildError, match="no compiler") as caught:
        op(ones(1))
    assert isinstance(caught.value, TileOPsError)
    Hooks.on_build = None

    assert op(ones(1)).item() == 2.0


def test_dtypes_are_dispatched_apart() -> None:
    """Each dtype is a call of its own; whether it shares an entry is the identity's matter."""
    op = DoubleFwdOp()
    op(ones(1))
    op(ones(1, dtype=torch.float16))

    assert [kernel.call.dtype for kernel in op.iter_kernels()] == [torch.float32, torch.float16]


def test_an_op_without_kernel_types_has_an_empty_interface() -> None:
    """Nothing stands under the interface: the error says how to bring something."""

    class BareFwdOp(DoubleFwdOp, entry=DoubleFwdOp._plan.entry):
        kernel_types = {}  # noqa: RUF012

    with pytest.raises(OpNotAvailableError) as caught:
        BareFwdOp()(ones(1))
    assert str(caught.value) == (
        "BareFwdOp.toy: in-tree kernels do not run on cpu; expected a kernel type under this interface, received none; "
        "register one, or pass target= of a backend that serves this op"
    )


def test_every_refusal_is_listed() -> None:
    """When all refuse, each reason stands in the error, and it is a ValueError."""

    class Picky(ToyKernel):
        @classmethod
        def refusal(cls, call: ToyCall) -> str | None:
            return "serves nothing today"

    class PickyFwdOp(DoubleFwdOp, entry=DoubleFwdOp._plan.entry):
        kernel_types = {"picky": Picky}  # noqa: RUF012

    with pytest.raises(NoImplementationError) as caught:
        PickyFwdOp()(ones(1))

    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        "PickyFwdOp.toy: no implementation serves this call; expected a call that one of ['picky'] serves, received "
        f"{call(facts=DeviceFacts(0, torch.get_num_threads(), 0))}; refused by picky: serves nothing today; change the "
        "call, or register a kernel type that serves it"
    )


def test_the_base_alone_holds_entries() -> None:
    """After a call an instance's own attributes hold no kernel; the tables do, and the next call finds it."""
    op = DoubleFwdOp()
    op(ones(1))
    op(ones(1))
    held = [name for name, value in vars(op).items() if isinstance(value, ToyKernel)]

    assert (held, len(Hooks.built)) == ([], 1)


def test_kernels_can_be_enumerated() -> None:
    """Built entries by interface, every kernel of the instance and its sub-ops, and the first one's settings."""
    op = ChainFwdOp(twice=True)
    assert (list(op.iter_kernels()), op.kernel_config()) == ([], {})
    op(ones(1))

    assert [kernel.call.compute for kernel in op.iter_kernels()] == ["double", "triple"]
    assert op.kernel_config() == {"threads": 64}
