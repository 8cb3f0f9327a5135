"""The implementation table: kernel types of the class and of backends merged, and each contract checked."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tileops.backend import BackendRegistry
from tileops_kernels.errors import AmbiguousDispatchError, ContractTypeError, ContractValueError
from tileops_kernels.kernel import Kernel

from .composites import ones
from .toys import OTHER, TOY, DoubleFwdOp, OtherInterface, ToyCall, ToyInterface, ToyKernel, Watched


class Fast(ToyKernel):
    """A kernel type that is no fallback."""

    general = False


def with_types(**types: Any) -> type[DoubleFwdOp]:
    """An op class with these kernel types in tree."""
    return type("DoubleFwdOp", (DoubleFwdOp,), {"kernel_types": types}, entry=DoubleFwdOp._plan.entry)


def refused(error: type[Exception], **types: Any) -> str:
    """The message with which construction refuses these kernel types."""
    with pytest.raises(error) as caught:
        with_types(**types)()
    return str(caught.value)


def test_the_kernel_types_of_backends_are_merged(registry: BackendRegistry) -> None:
    """Those of the class and those registered for the op stand in one table, and take part in one selection."""
    registry.register_kernel_type("DoubleFwdOp", "fast", Fast)
    op = DoubleFwdOp()
    op(ones(1))

    assert op.kernel_table("toy").types == {"toy": ToyKernel, "fast": Fast}
    assert op.key_for("toy", next(op.iter_kernels()).call) == "fast"


def test_a_kernel_type_of_another_op_is_not_merged(registry: BackendRegistry) -> None:
    """A registration names its op."""
    registry.register_kernel_type("TripleFwdOp", "fast", Fast)

    assert DoubleFwdOp().kernel_table("toy").types == {"toy": ToyKernel}


def test_keys_do_not_repeat(registry: BackendRegistry) -> None:
    """A backend's key that the class has already is refused, naming who brought it."""
    with registry.registering("acme-backend 1.0"):
        registry.register_kernel_type("DoubleFwdOp", "toy", Fast)
    with pytest.raises(ContractValueError) as caught:
        DoubleFwdOp()

    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        "DoubleFwdOp.toy: expected a key of its own, received the in-tree key 'toy' from acme-backend 1.0; register "
        "the kernel type under another key"
    )


def test_each_inherits_kernel() -> None:
    """A class that implements the interface alone is refused."""

    class Plain(ToyInterface):
        def forward(self, *tensors: Any) -> Any:
            return tensors

    assert refused(ContractTypeError, plain=Plain) == (
        f"DoubleFwdOp.plain: expected a class that inherits Kernel, received {Plain!r}; inherit Kernel and ToyInterface"
    )


def test_each_inherits_an_interface_of_the_op() -> None:
    """A kernel type without one of the op's interfaces is refused."""

    class Stranger(Kernel[ToyCall]):
        def forward(self, *tensors: Any) -> Any:
            return tensors

    assert refused(ContractTypeError, stranger=Stranger) == (
        "DoubleFwdOp.stranger: expected Stranger to inherit one of ['ToyInterface'], received 0 of them; inherit "
        "Kernel and exactly one interface of the op"
    )


def test_each_stands_under_one_interface() -> None:
    """A kernel type that inherits two interfaces of the op belongs to neither alone."""

    class Both(Watched, ToyInterface, OtherInterface):
        forward = Watched.forward

    class TwoFwdOp(DoubleFwdOp, entry=DoubleFwdOp._plan.entry):
        kernel_types: ClassVar = {"both": Both}
        interfaces: ClassVar = {TOY: ToyInterface, OTHER: OtherInterface}

    with pytest.raises(ContractTypeError) as caught:
        TwoFwdOp()
    assert str(caught.value) == (
        "TwoFwdOp.both: expected Both to inherit one of ['ToyInterface', 'OtherInterface'], received 2 of them; "
        "inherit Kernel and exactly one interface of the op"
    )


def test_something_that_is_no_class_is_refused() -> None:
    """An instance where a class belongs is named as it was received."""
    assert refused(ContractTypeError, wrong=3) == (
        "DoubleFwdOp.wrong: expected 3 to inherit one of ['ToyInterface'], received 0 of them; inherit Kernel and "
        "exactly one interface of the op"
    )


def test_entry_for_is_a_classmethod() -> None:
    """It is asked before there is an instance."""

    class Instance(ToyKernel):
        def entry_for(self, call: ToyCall) -> Any:  # type: ignore[override]
            return call, lambda: self

    assert refused(ContractTypeError, instance=Instance) == (
        "DoubleFwdOp.instance: expected Instance.entry_for to be a classmethod, received function; decorate it with "
        "@classmethod"
    )


def test_forward_takes_the_interfaces_arguments() -> None:
    """A `forward` with others is refused, both lists shown."""

    class Wrong(Kernel[ToyCall], ToyInterface):
        def forward(self, x: Any, weight: Any) -> Any:  # type: ignore[override]
            return x, weight

    assert refused(ContractTypeError, wrong=Wrong) == (
        "DoubleFwdOp.wrong: expected Wrong.forward(self, tensors) as ToyInterface declares it, received another "
        "forward(self, x, weight); write forward with the interface's arguments"
    )


def test_forward_is_written() -> None:
    """A kernel type that leaves it abstract is refused."""

    class Unwritten(Kernel[ToyCall], ToyInterface):
        pass

    assert refused(ContractTypeError, unwritten=Unwritten) == (
        "DoubleFwdOp.unwritten: expected Unwritten.forward(self, tensors) as ToyInterface declares it, received "
        "none(self, tensors); write forward with the interface's arguments"
    )


def test_an_interface_has_one_general_type_at_most(registry: BackendRegistry) -> None:
    """Two fallbacks are refused, also when a backend brings the second."""

    class Other(ToyKernel):
        pass

    message = (
        "DoubleFwdOp.toy: expected at most one general kernel type, received ['other', 'toy']; leave general=True on "
        "one of them"
    )
    assert refused(ContractValueError, toy=ToyKernel, other=Other) == message
    registry.register_kernel_type("DoubleFwdOp", "other", Other)
    with pytest.raises(ContractValueError) as caught:
        DoubleFwdOp()
    assert str(caught.value) == message


def test_the_general_type_prefers_nothing() -> None:
    """It ranks below every other."""

    class Greedy(ToyKernel):
        preferred_over = frozenset({"fast"})

    assert refused(ContractValueError, greedy=Greedy, fast=Fast) == (
        "DoubleFwdOp.greedy: expected the general kernel type to declare no preferred_over, received ['fast']; it "
        "ranks below all others: remove the declaration"
    )


@pytest.mark.parametrize("name", ["absent", "fast"])
def test_preferences_name_other_types_of_the_interface(name: str) -> None:
    """Neither a key that nothing stands under nor the type's own."""
    lost = type("Lost", (Fast,), {"preferred_over": frozenset({name}), "forward": Watched.forward})

    assert refused(ContractValueError, fast=lost, toy=ToyKernel) == (
        f"DoubleFwdOp.fast: expected preferred_over to name other kernel types of toy, received ['{name}']; the keys "
        "are ['fast', 'toy']"
    )


def test_preferences_form_no_cycle() -> None:
    """A cycle is refused and shown."""
    first = type("First", (Fast,), {"preferred_over": frozenset({"second"}), "forward": Watched.forward})
    second = type("Second", (Fast,), {"preferred_over": frozenset({"first"}), "forward": Watched.forward})

    assert refused(ContractValueError, first=first, second=second) == (
        "DoubleFwdOp.toy: expected preferred_over without a cycle, received first > second > first; remove one of them"
    )


def test_contracts_of_types_and_of_sets_are_told_apart() -> None:
    """A class of the wrong shape is a TypeError, a set that contradicts itself a ValueError."""
    assert issubclass(ContractTypeError, TypeError)
    assert issubclass(ContractValueError, ValueError)


def test_two_backends_that_serve_alike_are_ambiguous(registry: BackendRegistry) -> None:
    """Registration order decides nothing: neither is preferred, so the call is refused, naming both."""

    class Rival(Fast):
        pass

    registry.register_kernel_type("DoubleFwdOp", "fast", Fast)
    registry.register_kernel_type("DoubleFwdOp", "rival", Rival)
    with pytest.raises(AmbiguousDispatchError) as caught:
        DoubleFwdOp()(ones(1))

    assert str(caught.value).startswith(
        "DoubleFwdOp.toy: dispatch is ambiguous between ['fast', 'rival']; expected one of them to be preferred, "
        "received ToyCall("
    )
    assert str(caught.value).endswith("name the others in the preferred_over of the one that should win")
