"""KernelTable: the lookup, the checks of a call spec, and one build per kernel type and identity."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch

from tileops_kernels import devices
from tileops_kernels.calls import CallSpec
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import CallSpecError, ContractTypeError
from tileops_kernels.kernel import Kernel
from tileops_kernels.table import KernelTable, _with_device

from .toys import CPU, HOPPER, SCALE, TYPES, GeneralScale, ScaleCall, ScaleInterface


class CountedScale(Kernel[ScaleCall], ScaleInterface):
    """Counts its builds; `n` is compiled in by halves, so two lengths share an entry."""

    devices = frozenset({"cpu"})
    builds = 0
    failing = False

    def __init__(self, call: ScaleCall) -> None:
        super().__init__(call)
        type(self).builds += 1
        if self.failing:
            raise RuntimeError("the build failed")

    @classmethod
    def entry_for(cls, call: ScaleCall) -> tuple[Hashable, Callable[[], CountedScale]]:
        return call.n // 2, lambda: cls(call)

    def forward(self, x: int) -> str:
        return f"counted {self.call.n} {x}"


def counted() -> tuple[type[CountedScale], KernelTable[ScaleCall, ScaleInterface]]:
    kernel_type = type("Counted", (CountedScale,), {"builds": 0})
    return kernel_type, KernelTable(SCALE, {"counted": kernel_type}, owner="Toy")


def test_an_entry_is_called_like_its_forward() -> None:
    """The entry runs the kernel type that the call selects."""
    table = KernelTable(SCALE, TYPES)

    assert table.entry(ScaleCall(device=CPU, n=8))(3) == "short 3"
    assert table.entry(ScaleCall(device=CPU, n=80))(3) == "general 3"


def test_equal_calls_share_an_entry() -> None:
    """A second, equal call spec finds the entry of the first and builds nothing."""
    kernel_type, table = counted()

    assert table.entry(ScaleCall(device=CPU, n=8)) is table.entry(ScaleCall(device=CPU, n=8))
    assert kernel_type.builds == 1


def test_calls_of_one_identity_share_an_entry() -> None:
    """Different calls with the same build identity share the entry; another identity builds its own."""
    kernel_type, table = counted()

    assert table.entry(ScaleCall(device=CPU, n=8)) is table.entry(ScaleCall(device=CPU, n=9))
    assert table.entry(ScaleCall(device=CPU, n=10)) is not table.entry(ScaleCall(device=CPU, n=9))
    assert kernel_type.builds == 2
    assert len(table.built_entries()) == 2


def test_a_hit_reads_no_device_and_asks_no_kernel_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second equal call is one lookup."""
    _, table = counted()
    entry = table.entry(ScaleCall(device=CPU, n=8))

    def forbidden(*_: object) -> DeviceFacts:
        raise AssertionError("a hit must not come here")

    monkeypatch.setattr("tileops_kernels.table.device_facts", forbidden)
    monkeypatch.setattr("tileops_kernels.table.select", forbidden)

    assert table.entry(ScaleCall(device=CPU, n=8)) is entry


def test_threads_build_each_identity_once() -> None:
    """16 threads asking for 4 identities at once build 4 entries."""
    kernel_type, table = counted()
    barrier = threading.Barrier(16)

    def ask(index: int) -> ScaleInterface:
        barrier.wait()
        return table.entry(ScaleCall(device=CPU, n=2 * (index % 4)))

    with ThreadPoolExecutor(16) as pool:
        entries = list(pool.map(ask, range(16)))

    assert kernel_type.builds == 4
    assert len(set(map(id, entries))) == 4


def test_a_failed_build_is_not_kept() -> None:
    """After a build that raised, the next call builds again and the table is as before."""
    kernel_type, table = counted()
    kernel_type.failing = True
    with pytest.raises(RuntimeError, match="the build failed"):
        table.entry(ScaleCall(device=CPU, n=8))
    assert table.built_entries() == ()

    kernel_type.failing = False

    assert table.entry(ScaleCall(device=CPU, n=8))(1) == "counted 8 1"


def test_an_identity_that_cannot_key_a_cache_is_refused() -> None:
    """The kernel type that gives it is named, and nothing is built."""

    class Listed(CountedScale):
        @classmethod
        def entry_for(cls, call: ScaleCall) -> tuple[Any, Callable[[], CountedScale]]:
            return [call.n], lambda: cls(call)

        forward = CountedScale.forward

    table = KernelTable(SCALE, {"listed": Listed}, owner="Toy")
    with pytest.raises(ContractTypeError) as caught:
        table.entry(ScaleCall(device=CPU, n=8))

    assert str(caught.value) == (
        "Toy.scale: expected Listed.entry_for to give an identity that can key a cache, received [8]; use numbers, "
        "strings, dtypes and tuples"
    )
    assert table.built_entries() == ()


def test_discarded_entries_are_built_again() -> None:
    """Discarding forgets an entry under its identity and under every call."""
    kernel_type, table = counted()
    first = table.entry(ScaleCall(device=CPU, n=8))
    kept = table.entry(ScaleCall(device=CPU, n=20))
    table.discard((first,))

    assert table.entry(ScaleCall(device=CPU, n=8)) is not first
    assert table.entry(ScaleCall(device=CPU, n=20)) is kept
    assert kernel_type.builds == 3


def test_a_listener_hears_of_each_build() -> None:
    """`on_build` is told of entries built, not of entries found."""
    heard: list[object] = []
    table = KernelTable(SCALE, TYPES, on_build=heard.append)
    entry = table.entry(ScaleCall(device=CPU, n=8))
    table.entry(ScaleCall(device=CPU, n=8))

    assert heard == [entry]


def test_a_call_spec_of_another_type_is_refused() -> None:
    """The call spec is exactly the type that the interface asks for."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class OtherCall(CallSpec):
        n: int

    table = KernelTable(SCALE, TYPES, owner="Toy")
    with pytest.raises(
        CallSpecError, match=r"Toy\.scale: expected a call spec of type ScaleCall, received .*OtherCall"
    ) as caught:
        table.entry(cast("ScaleCall", OtherCall(device=CPU, n=8)))

    assert isinstance(caught.value, TypeError)


def test_a_call_spec_that_cannot_key_a_cache_is_refused() -> None:
    """An unhashable field is named as such."""
    table = KernelTable(SCALE, TYPES, owner="Toy")
    call = ScaleCall(device=CPU, n=cast("Any", [8]))

    with pytest.raises(CallSpecError, match=r"Toy\.scale: expected a call spec whose every field can key a cache"):
        table.entry(call)
    with pytest.raises(CallSpecError, match=r"Toy\.scale: expected a call spec whose every field can key a cache"):
        table.key_for(call)


def test_device_facts_may_be_stated_to_key_for_alone() -> None:
    """`key_for` answers for a machine that is not here; `entry` refuses stated facts."""
    table = KernelTable(SCALE, TYPES, owner="Toy")
    call = ScaleCall(device=torch.device("cuda", 0), facts=HOPPER, n=8)

    assert table.key_for(call) == "hopper"
    with pytest.raises(CallSpecError, match=r"Toy\.scale: expected a call spec without device facts, received facts="):
        table.entry(call)


def test_facts_are_read_only_once_settled() -> None:
    """Reading `arch` of a call spec that no table handed out is an error."""
    call = ScaleCall(device=CPU, n=8)
    for name in ("arch", "sm_count", "smem_budget"):
        with pytest.raises(CallSpecError) as caught:
            getattr(call, name)
        assert str(caught.value) == (
            "ScaleCall: device facts are read before they are settled; expected a call spec that a kernel table handed "
            f"out, received {call}; read them in refusal and entry_for, or state facts= yourself"
        )


def test_a_call_without_a_device_takes_the_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an accelerator, a call spec that names no device gets its current device."""
    monkeypatch.setattr("tileops_kernels.table.current_accelerator_device", lambda: CPU)
    table = KernelTable(SCALE, {"general": GeneralScale})

    assert table.entry(ScaleCall(n=8)) is table.entry(ScaleCall(device=CPU, n=8))


def test_a_device_without_an_index_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator without an index means the one that is current; another kind of device is left as it is."""
    monkeypatch.setattr("tileops_kernels.table.current_accelerator_device", lambda: torch.device("cuda", 1))
    asked = ("cuda", "cuda:0", "cpu", "xpu")
    placed = [_with_device(ScaleCall(n=4, device=torch.device(name))).device for name in asked]
    assert placed == [torch.device(name) for name in ("cuda:1", "cuda:0", "cpu", "xpu")]


def test_the_facts_of_a_cpu_hold_its_threads() -> None:
    """A CPU has no architecture number and no shared memory; its processors are the threads that torch uses."""
    assert devices.device_facts(CPU) == DeviceFacts(arch=0, sm_count=torch.get_num_threads(), smem_budget=0)
    assert devices.device_facts(torch.device("meta")) == DeviceFacts(arch=0, sm_count=0, smem_budget=0)


def test_the_facts_of_a_cuda_device_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capability, processors and shared memory come from the device asked about, not from device 0."""

    class Properties:
        def __init__(self, index: int) -> None:
            self.major, self.minor = (9, 0) if index == 0 else (8, 6)
            self.multi_processor_count = 132 if index == 0 else 84
            self.shared_memory_per_block_optin = 232448 if index == 0 else 101376

    devices._cuda_facts.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_properties", Properties)
    try:
        assert devices.device_facts(torch.device("cuda", 1)) == DeviceFacts(86, 84, 101376)
        assert devices.device_facts(torch.device("cuda", 0)) == DeviceFacts(90, 132, 232448)
    finally:
        devices._cuda_facts.cache_clear()
