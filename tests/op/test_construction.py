"""Construction: parameters checked, tables installed, a key given; nothing selected, built or probed."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import ClassVar

import pytest
import torch

from tileops.errors import ArgumentError, NoCallError, ParameterTypeError
from tileops.op import Op, keys
from tileops_kernels.errors import ContractTypeError, OpNotAvailableError
from tileops_kernels.kernel import Kernel

from .toys import DOUBLE_ENTRY, ScaledCall, ScaledFwdOp, ScaledInterface, ScaledKernel


def test_parameters_are_checked_at_construction() -> None:
    """A parameter of the wrong type is refused by the constructor, naming op, parameter, expected and received."""
    with pytest.raises(
        ParameterTypeError, match=r"ScaledFwdOp: factor: expected float, received 'two'; pass factor as float"
    ):
        ScaledFwdOp("two")  # type: ignore[arg-type]


def test_an_unknown_parameter_is_named_with_the_nearest() -> None:
    """A typo in a parameter's name is one error that says which was meant."""
    with pytest.raises(ArgumentError) as caught:
        ScaledFwdOp(factr=2.0)  # type: ignore[call-arg]

    assert isinstance(caught.value, TypeError)
    assert str(caught.value) == (
        "ScaledFwdOp: factr: expected parameters (factor=2.0, *, target=None), received the keyword 'factr'; did you "
        "mean "
        "factor?"
    )


def test_too_many_arguments_are_counted() -> None:
    """Surplus positional arguments are refused with what the constructor takes."""
    with pytest.raises(
        ArgumentError, match=r"ScaledFwdOp: .* expected parameters \(factor=2\.0, \*, target=None\), received 3"
    ):
        ScaledFwdOp(1.0, 2.0, 3.0)  # type: ignore[misc]


def test_construction_builds_and_selects_nothing() -> None:
    """A new instance has no target, no entries and no record."""
    op = ScaledFwdOp()

    assert op.serving_target is None
    assert op.built_entries("scaled") == ()
    assert list(op.iter_kernels()) == []
    assert op.kernel_config() == {}
    assert ScaledKernel.builds == 0
    with pytest.raises(
        NoCallError, match="ScaledFwdOp: last_call: expected a completed call, received none; call the op"
    ):
        _ = op.last_call


def test_construction_probes_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither device properties nor the accelerator are read."""

    def forbidden(*_: object) -> None:
        raise AssertionError("construction must not probe a device")

    for owner, name in (
        (torch.cuda, "get_device_properties"),
        (torch.cuda, "is_available"),
        (torch.accelerator, "is_available"),
    ):
        monkeypatch.setattr(owner, name, forbidden)

    assert ScaledFwdOp(3.0).factor == 3.0


def test_the_contract_of_kernel_types_is_checked_at_construction() -> None:
    """A kernel type under no interface of the op is refused when an instance is made, not when the class is."""

    class Stranger(Kernel[ScaledCall]):
        pass

    class StrangeFwdOp(ScaledFwdOp, entry=DOUBLE_ENTRY):
        kernel_types: ClassVar = {"stranger": Stranger}

    with pytest.raises(
        ContractTypeError, match=r"StrangeFwdOp\.stranger: expected Stranger to inherit one of \['ScaledInterface'\]"
    ):
        StrangeFwdOp()


def test_the_table_holds_the_types_of_its_interface() -> None:
    """Kernel types are filed under the interface that they inherit."""
    table = ScaledFwdOp().kernel_table("scaled")

    assert table.types == {"scaled": ScaledKernel}
    assert table.key.interface is ScaledInterface


def test_an_unknown_interface_is_not_available() -> None:
    """Asking for an interface that the class does not declare names those it does."""
    with pytest.raises(
        OpNotAvailableError, match=r"ScaledFwdOp: interface: expected one of \['scaled'\], received 'sclaed'"
    ):
        ScaledFwdOp().built_entries("sclaed")


def test_keys_are_never_shared_or_reused() -> None:
    """Equal instances have keys of their own, also after one is dropped."""
    first = ScaledFwdOp()
    taken = {first._instance_key}
    del first
    gc.collect()
    again = [ScaledFwdOp() for _ in range(3)]

    assert len(taken | {op._instance_key for op in again}) == 4


def test_keys_say_what_the_fake_depends_on() -> None:
    """Instances with other parameters have another digest in their keys, equal ones the same."""
    digests = [op._instance_key.split("-")[1] for op in (ScaledFwdOp(2.0), ScaledFwdOp(2.0), ScaledFwdOp(3.0))]

    assert digests[0] == digests[1] != digests[2]


def test_a_dropped_instance_is_collected() -> None:
    """The key table holds instances weakly, and a dead key gives an error that names the op and the mend."""
    op = ScaledFwdOp()
    op(torch.ones(2))
    key, alive = op._instance_key, weakref.ref(op)
    del op
    gc.collect()

    assert alive() is None
    with pytest.raises(
        LookupError, match=rf"ScaledFwdOp: the compiled or exported graph calls instance {key}, .*construct ScaledFwdOp"
    ):
        keys.instance(key)


def test_a_constructor_has_its_own_signature() -> None:
    """Tools that read a class's signature see the op's parameters."""
    import inspect

    assert list(inspect.signature(ScaledFwdOp).parameters) == ["factor", "target"]


def through_pickle(op: ScaledFwdOp) -> ScaledFwdOp:
    return pickle.loads(pickle.dumps(op))  # type: ignore[no-any-return]  # noqa: S301


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, through_pickle])
def test_a_copy_is_a_new_instance(duplicate: object) -> None:
    """Parameters and attributes survive; the copy has its own key, nothing built and no record."""
    op = ScaledFwdOp(3.0)
    op(torch.ones(2))
    twin = duplicate(op)  # type: ignore[operator]

    assert (twin.factor, twin.derived, twin.serving_target) == (3.0, "by 3.0", None)
    assert twin._instance_key != op._instance_key
    assert twin.built_entries("scaled") == ()
    assert torch.equal(twin(torch.ones(2)), torch.full((2,), 3.0))


def test_redefining_a_class_replaces_its_operators() -> None:
    """A notebook cell run twice leaves the newer class working."""

    def define() -> type[ScaledFwdOp]:
        class AgainFwdOp(ScaledFwdOp, entry=DOUBLE_ENTRY):
            pass

        return AgainFwdOp

    define()
    newer = define()

    assert newer.compile_op_names == ("tileops::toy_again_fwd",)
    assert torch.equal(newer()(torch.ones(2)), torch.full((2,), 2.0))


def test_a_family_base_without_an_entry_has_no_operator() -> None:
    """A class between Op and the op classes registers nothing."""

    class Base(Op):
        pass

    assert Base.compile_op_names == ()
