"""Kernel types that may not stand under an interface are refused when the table is made."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tileops_kernels.errors import ContractTypeError, ContractValueError
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.table import KernelTable

from .toys import CPU, SCALE, TYPES, GeneralScale, ScaleCall, ScaleInterface, ShortScale


def table(**types: Any) -> KernelTable[ScaleCall, ScaleInterface]:
    return KernelTable(SCALE, cast("dict[str, KernelType]", types), owner="Toy")


def test_a_sound_set_is_accepted() -> None:
    """The toy types may stand together."""
    assert table(**TYPES).types == TYPES


def test_a_class_that_is_no_kernel_is_refused() -> None:
    """Every kernel type inherits Kernel."""
    with pytest.raises(
        ContractTypeError, match=r"Toy\.plain: expected a class that inherits Kernel, received <class 'int'>"
    ):
        table(plain=int)


def test_a_kernel_of_another_interface_is_refused() -> None:
    """Every kernel type inherits the interface that it stands under."""

    class Stranger(Kernel[ScaleCall]):
        def forward(self, x: int) -> str:
            return f"{x}"

    with pytest.raises(ContractTypeError) as caught:
        table(stranger=Stranger)
    assert str(caught.value) == (
        "Toy.stranger: expected Stranger to inherit ScaleInterface, received bases ['Kernel']; add the interface to "
        "its bases"
    )


def test_entry_for_must_be_a_classmethod() -> None:
    """`entry_for` is asked of the class, before there is an instance."""

    class Instance(GeneralScale):
        def entry_for(self, call: ScaleCall) -> Any:  # type: ignore[override]
            return call, lambda: self

    with pytest.raises(ContractTypeError, match=r"expected Instance\.entry_for to be a classmethod, received function"):
        table(instance=Instance)


def test_forward_takes_the_arguments_of_the_interface() -> None:
    """A `forward` with other arguments than the interface's is refused."""

    class Wrong(Kernel[ScaleCall], ScaleInterface):
        def forward(self, x: int, y: int) -> str:  # type: ignore[override]
            return f"{x}{y}"

    with pytest.raises(ContractTypeError, match=r"expected Wrong\.forward\(self, x\) as ScaleInterface declares it"):
        table(wrong=Wrong)


def test_forward_must_be_written() -> None:
    """A kernel type that leaves the interface's `forward` abstract is refused."""

    class Unwritten(Kernel[ScaleCall], ScaleInterface):
        pass

    with pytest.raises(ContractTypeError, match=r"Toy\.unwritten: expected Unwritten\.forward"):
        table(unwritten=Unwritten)


def test_an_entry_without_a_forward_says_so() -> None:
    """A kernel type that no table has checked is refused when its entry is called, with what to write."""

    class Unwritten(Kernel[ScaleCall]):
        pass

    with pytest.raises(ContractTypeError) as caught:
        Unwritten(ScaleCall(device=CPU, n=8))(1)
    assert str(caught.value) == (
        "Unwritten: forward is missing; expected a method with its interface's arguments, received none; define "
        "forward in the kernel type"
    )


def test_two_general_types_are_refused() -> None:
    """An interface has at most one fallback."""

    class Other(GeneralScale):
        pass

    with pytest.raises(ContractValueError, match=r"at most one general kernel type, received \['general', 'other'\]"):
        table(general=GeneralScale, other=Other)


def test_a_general_type_prefers_nothing() -> None:
    """The fallback ranks below all others and may not claim otherwise."""

    class Greedy(GeneralScale):
        preferred_over = frozenset({"short"})

    with pytest.raises(
        ContractValueError, match=r"the general kernel type to declare no preferred_over, received \['short'\]"
    ):
        table(greedy=Greedy, short=ShortScale)


@pytest.mark.parametrize("names", [{"absent"}, {"self"}])
def test_preferences_name_other_types_of_the_interface(names: set[str]) -> None:
    """`preferred_over` names neither an unknown key nor the type's own."""
    lost = type("Lost", (ShortScale,), {"preferred_over": frozenset(names), "forward": ShortScale.forward})

    with pytest.raises(
        ContractValueError,
        match=rf"Toy\.self: expected preferred_over to name other .* received {sorted(names)}".replace(
            "[", r"\["
        ).replace("]", r"\]"),
    ):
        table(self=lost)


def test_preferences_are_a_set() -> None:
    """A bare key, whose letters would pass for keys, is refused."""
    bare = type("Bare", (ShortScale,), {"preferred_over": "other", "forward": ShortScale.forward})

    with pytest.raises(ContractTypeError) as failure:
        table(bare=bare)
    assert str(failure.value) == (
        "Toy.bare: expected preferred_over to be a set of keys, received 'other'; write frozenset({...})"
    )


def test_preferences_form_no_cycle() -> None:
    """A cycle of preferences is refused, and shown."""
    first = type("First", (ShortScale,), {"preferred_over": frozenset({"second"})})
    second = type("Second", (ShortScale,), {"preferred_over": frozenset({"third"})})
    third = type("Third", (ShortScale,), {"preferred_over": frozenset({"first"})})

    with pytest.raises(ContractValueError, match="without a cycle, received first > second > third > first"):
        table(first=first, second=second, third=third)
