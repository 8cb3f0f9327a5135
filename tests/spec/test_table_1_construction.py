"""Construction: the five steps, their order, and what a constructor is given."""

from __future__ import annotations

import gc
import re
from typing import Any, ClassVar

import msgspec
import pytest
import torch
from torch import Tensor

from tileops.backend import BackendRegistry, Discovery, OpNotAvailableError
from tileops.errors import ArgumentError, DTypeError, ParameterError, ParameterTypeError, ShapeError
from tileops.op import Op, base, keys
from tileops_kernels.errors import ContractTypeError

from .capture import noting
from .composites import ChainFwdOp
from .toys import CPU, DoubleFwdOp, Hooks, NegateFwdOp, OtherKernel, RampFwdOp, TableFwdOp, ToyKernel, ToyOp, entry


def test_the_five_steps_run_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load backends, check parameters, install tables, give a key, make the empty state: in this order."""
    steps: list[int] = []
    for number, owner, name in [
        (1, Discovery, "load"),
        (3, base, "kernel_tables"),
        (4, keys, "register"),
        (5, base, "BindingState"),
        (5, base, "RunningState"),
    ]:
        monkeypatch.setattr(owner, name, noting(steps, number, getattr(owner, name)))
    plan = DoubleFwdOp._plan
    watched = msgspec.structs.replace(plan, check_construction=noting(steps, 2, plan.check_construction))
    monkeypatch.setattr(DoubleFwdOp, "_plan", watched)
    DoubleFwdOp()

    assert steps == [1, 2, 3, 4, 5, 5]


def test_row_1_backends_are_loaded_by_the_first_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry asks for installed backends when the first op is constructed, and not again."""
    asked: list[str] = []
    discovery = Discovery(BackendRegistry(lambda: ()), find=noting(asked, "asked", lambda: ()))
    monkeypatch.setattr(ToyOp, "_backends", discovery)
    assert asked == []
    DoubleFwdOp()
    DoubleFwdOp()

    assert asked == ["asked"]


def test_row_2_parameters_are_checked_and_the_solved_values_kept() -> None:
    """A wrong parameter is refused by the constructor; what was solved is what every call reads."""
    with pytest.raises(
        ParameterTypeError, match=r"NegateFwdOp: inplace: expected bool, received 'yes'; pass inplace as bool"
    ):
        NegateFwdOp("yes")  # type: ignore[arg-type]
    op = TableFwdOp(torch.ones(3, dtype=torch.float16))

    assert dict(op._construction.values.indices) == {"T": torch.float16, "N": 3}


def test_row_2_a_refinement_over_parameters_fails_at_construction() -> None:
    """A refinement that reads parameters alone is checked once, by the constructor."""
    with pytest.raises(ParameterError, match=r"RampFwdOp: n: expected at least 0, received -1; pass n of at least 0"):
        RampFwdOp(-1, torch.float32)


def test_row_3_the_tables_hold_resolved_classes_and_no_entries() -> None:
    """Each interface has its kernel types under their keys; both caches are empty."""
    from .toys import CentreFwdOp

    op = CentreFwdOp()

    assert op.kernel_table("toy").types == {"update": ToyKernel}
    assert op.kernel_table("other").types == {"centre": OtherKernel}
    assert (op.built_entries("toy"), op.built_entries("other"), Hooks.built) == ((), (), [])


def test_row_3_a_composite_without_kernels_has_no_table() -> None:
    """Its sub-ops each install their own."""
    op = ChainFwdOp()

    assert op._construction.tables == {}
    assert [list(sub_op._construction.tables) for sub_op in op.held_delegates()] == [["toy"]]


def test_row_4_the_key_finds_the_instance_and_is_never_given_again() -> None:
    """The key names the living instance; after it is gone, no other instance gets it."""
    op = DoubleFwdOp()
    key = op._instance_key
    assert keys.instance(key) is op
    del op
    gc.collect()

    assert key not in {DoubleFwdOp()._instance_key for _ in range(5)}


def test_row_5_the_fields_of_a_call_are_there_and_empty() -> None:
    """No target, no target kernels, no sub-ops, no checked call and no record."""
    op = DoubleFwdOp()

    assert (op._binding.target, op._binding.target_kernels) == (None, {})
    assert (op._running.delegates, op._running.stages, op._running.seen, op._running.last_call) == ({}, {}, {}, None)
    assert op._effects == {(False,): 0, (True,): 0}


def test_construction_probes_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function that reads a device or asks for one is called."""

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("construction must not probe a device")

    for owner, name in [
        (torch.cuda, "get_device_properties"),
        (torch.cuda, "get_device_capability"),
        (torch.cuda, "is_available"),
        (torch.cuda, "current_device"),
        (torch.cuda, "device_count"),
        (torch.cuda, "get_device_name"),
        (torch.accelerator, "current_device_index"),
        (torch.accelerator, "device_count"),
        (torch.accelerator, "is_available"),
        (torch.accelerator, "current_accelerator"),
    ]:
        monkeypatch.setattr(owner, name, forbidden)

    assert ChainFwdOp(twice=True).twice
    assert RampFwdOp(3, torch.float32).n == 3
    assert RampFwdOp(3, torch.float32, torch.device("cuda", 5)).device == torch.device("cuda", 5)


def test_construction_asks_no_detector(registry: BackendRegistry) -> None:
    """Which target serves is a matter of the first call, also for a device that was passed to the constructor."""
    asked: list[torch.device] = []

    def detect(device: torch.device) -> bool:
        asked.append(device)
        return False

    registry.register_detector("acme", detect)
    op = RampFwdOp(2, torch.float32, CPU)
    assert (asked, op.serving_target) == ([], None)
    op()

    assert asked == [CPU]


def test_a_call_on_a_device_that_runs_nothing_is_refused() -> None:
    """An op whose kernels run elsewhere constructs; its call says where they run, and selects nothing."""

    class ElsewhereKernel(ToyKernel):
        devices = frozenset({"cuda"})

    class ElsewhereFwdOp(DoubleFwdOp, entry=DoubleFwdOp._plan.entry):
        kernel_types: ClassVar = {"toy": ElsewhereKernel}

    op = ElsewhereFwdOp()
    with pytest.raises(OpNotAvailableError) as caught:
        op(torch.ones(2))
    assert str(caught.value) == (
        "ElsewhereFwdOp.toy: in-tree kernels do not run on cpu; expected a device among ['cuda'], received cpu (toy: "
        "runs on cuda); move the tensors, or pass target= of a backend that serves this device"
    )
    assert op.serving_target is None


def test_a_device_that_runs_nothing_is_refused_when_a_kernel_is_selected() -> None:
    """A device without kernels constructs, and fails when a kernel is first selected."""
    op = RampFwdOp(3, torch.float32, torch.device("xpu"))

    with pytest.raises(OpNotAvailableError) as caught:
        op.key_for("toy", _ramp_call(torch.device("xpu")))
    assert str(caught.value) == (
        "RampFwdOp.toy: in-tree kernels do not run on xpu; expected a device among ['cpu', 'cuda'], received xpu "
        "(toy: runs on cpu, cuda); move the tensors, or pass target= of a backend that serves this device"
    )


def _ramp_call(device: torch.device) -> Any:
    from .toys import ToyCall

    return ToyCall(device=device, dtype=torch.float32, compute="ramp")


def test_parameters_are_settled_before_the_base_constructor() -> None:
    """The values checked are those that the attributes hold when the base constructor is called."""

    class LateFwdOp(NegateFwdOp, entry=NegateFwdOp._plan.entry):
        def __init__(self, *, target: str | None = None) -> None:
            Op.__init__(self, target=target)

    with pytest.raises(ParameterError) as caught:
        LateFwdOp()
    assert str(caught.value) == (
        "NegateFwdOp: inplace: expected bool, received nothing; assign self.inplace before super().__init__"
    )


def test_a_parameter_may_be_settled_from_an_injected_object() -> None:
    """A constructor reads a parameter's value off the injected object before it calls the base constructor."""

    class FromOther(NegateFwdOp, entry=NegateFwdOp._plan.entry):
        injected_parameters = ("other",)

        def __init__(self, other: NegateFwdOp, *, target: str | None = None) -> None:
            super().__init__(other.inplace, target=target)

    assert FromOther(NegateFwdOp(inplace=True))._construction.values.parameters == {"inplace": True}


def test_derived_attributes_may_follow_the_base_constructor() -> None:
    """Attributes that are no parameters are assigned afterwards and are part of no check."""

    class Derived(NegateFwdOp, entry=NegateFwdOp._plan.entry):
        def __init__(self, *, target: str | None = None) -> None:
            super().__init__(target=target)
            self.doubled = 2 * int(self.inplace)

    assert Derived().doubled == 0


def test_a_family_base_assigns_the_parameters_of_its_leaves() -> None:
    """A leaf passes arguments by its family base's signature, and the base ends in the base constructor."""

    class FamilyBase(ToyOp):
        def __init__(self, negated: bool, target: str | None) -> None:
            self.inplace = negated
            super().__init__(target=target)

    class LeafFwdOp(FamilyBase, entry=entry("LeafFwdOp", NegateFwdOp._plan.entry.source.text)):
        def __init__(self, *, target: str | None = None) -> None:
            super().__init__(negated=True, target=target)

    assert LeafFwdOp()._construction.values.parameters == {"inplace": True}
    assert LeafFwdOp.compile_op_names == ("tileops::toy_leaf_fwd", "tileops::toy_leaf_fwd_writes_x")


def test_a_class_without_an_entry_cannot_be_constructed() -> None:
    """A family base has no signature, and says which class to construct."""

    class FamilyBase(ToyOp):
        pass

    with pytest.raises(ContractTypeError) as caught:
        FamilyBase()
    assert str(caught.value) == (
        "FamilyBase: entry: expected a manifest entry of this name, received none; construct an op class that derives "
        "from it, or give the class an entry= of its own"
    )


def test_sub_ops_are_built_after_the_base_constructor() -> None:
    """Holding a sub-op needs the state that the base constructor makes."""

    class EagerChain(ChainFwdOp, entry=ChainFwdOp._plan.entry):
        def __init__(self, *, target: str | None = None) -> None:
            self.twice = False
            self.delegate_for("first", "only")
            super().__init__(target=target)

    with pytest.raises(AttributeError):
        EagerChain()


@pytest.mark.parametrize("name", ["shape", "dtype", "tune"])
def test_what_a_call_brings_is_no_constructor_argument(name: str) -> None:
    """Shapes, dtypes and tuning are refused by a constructor, which lists what it takes."""
    with pytest.raises(
        ArgumentError,
        match=re.escape(
            f"DoubleFwdOp: {name}: expected parameters (*, target=None), received the keyword {name!r}; construct it "
            "as DoubleFwdOp(*, target=None)"
        ),
    ):
        DoubleFwdOp(**{name: None})


def test_a_declared_dimension_and_dtype_are_constructor_arguments() -> None:
    """An op without tensor inputs takes its length and dtype at construction; they make its output."""
    op = RampFwdOp(3, torch.float16, CPU)

    assert (Op.dtype, op.dtype) == (None, torch.float16)
    assert torch.equal(op(), torch.arange(3).half())


def test_injected_parameters_only_allow_names() -> None:
    """The list changes nothing at run time: the family takes the parameter and uses it."""
    assert ChainFwdOp.injected_parameters == ("first",)
    assert DoubleFwdOp.injected_parameters == ()
    first = DoubleFwdOp()

    assert ChainFwdOp(first=first).held_delegates() == (first,)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (
            torch.ones(2, 3),
            ShapeError,
            "TableFwdOp: table: expected shape [N], received [2, 3]; pass table of shape [N]",
        ),
        (
            torch.ones(3, dtype=torch.int64),
            DTypeError,
            (
                "TableFwdOp: table: expected dtype float16 or float32, received int64; convert table with "
                ".to(torch.float32)"
            ),
        ),
        (None, ArgumentError, "TableFwdOp: table: expected a Tensor, received None; pass table"),
    ],
)
def test_a_construction_time_tensor_is_checked_there(
    table: Tensor | None, error: type[Exception], message: str
) -> None:
    """Its shape and dtype are read by the construction check."""
    with pytest.raises(error) as caught:
        TableFwdOp(table)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_a_construction_time_tensor_settles_indices_of_calls() -> None:
    """A call is held to the dtype and the length that the tensor settled."""
    op = TableFwdOp(torch.tensor([1.0, 2.0]))
    with pytest.raises(DTypeError) as caught:
        op(torch.ones(4, 2, dtype=torch.float16))

    assert str(caught.value) == (
        "TableFwdOp: x: expected dtype float32, as table has, received float16; convert x with .to(torch.float32)"
    )
    assert torch.equal(op(torch.ones(1, 2)), torch.tensor([[1.0, 2.0]]))


def test_a_construction_time_tensor_is_moved_once_per_device() -> None:
    """On a call's device it is a copy made once; the tensor passed stays what it was."""
    table = torch.ones(2)
    op = TableFwdOp(table)
    there = torch.device("meta")

    assert op.parameter_on("table", CPU) is table
    assert op.parameter_on("table", there) is op.parameter_on("table", there)
    assert op.parameter_on("table", there).device == there
    with pytest.raises(ArgumentError) as caught:
        op.parameter_on("tabel", CPU)
    assert str(caught.value) == (
        "TableFwdOp: parameter_on: expected one of ['table'], received 'tabel'; name a manifest parameter"
    )


class _KeepsNothing(DoubleFwdOp, entry=DoubleFwdOp._plan.entry):
    kernel_types: ClassVar = {"toy": ToyKernel, "other": OtherKernel}


def test_a_kernel_type_under_no_interface_is_found_at_construction() -> None:
    """Every key belongs to an interface of the op, or no instance can be made."""
    with pytest.raises(ContractTypeError) as caught:
        _KeepsNothing()
    assert str(caught.value) == (
        "_KeepsNothing.other: expected OtherKernel to inherit one of ['ToyInterface'], received 0 of them; inherit "
        "Kernel and exactly one interface of the op"
    )
