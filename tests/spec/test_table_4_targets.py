"""Targets: which one serves, what its builder is told, what its kernels are guaranteed, and no fall-back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tileops.backend import (
    BUILTIN,
    AmbiguousTargetError,
    BackendError,
    BackendRegistry,
    OpNotAvailableError,
    UnknownTargetError,
)
from tileops.errors import LayoutError, ResultError, ShapeError

from .acme import Acme, spec, tenfold
from .composites import ChainFwdOp, MixedFwdOp, ones
from .toys import CPU, CentreFwdOp, DoubleFwdOp, GatherFwdOp, Hooks, IntoFwdOp, NegateFwdOp, TableFwdOp


def test_row_1_a_target_takes_the_whole_op(registry: BackendRegistry) -> None:
    """The builder's kernel runs and the body does not; the target stays for the instance."""
    acme = Acme(registry, "DoubleFwdOp", tenfold)
    op = DoubleFwdOp(target="acme")
    before = op.serving_target

    assert op(ones(2)).tolist() == [10.0, 10.0]
    assert (before, op.serving_target, Hooks.runs, len(acme.told)) == (None, "acme", [], 1)


def test_row_2_a_kernel_type_joins_the_table_at_construction(registry: BackendRegistry) -> None:
    """It is merged when an instance is constructed: earlier instances do not know it."""
    from .toys import ToyKernel

    class Fast(ToyKernel):
        general = False

    before = DoubleFwdOp()
    registry.register_kernel_type("DoubleFwdOp", "fast", Fast)
    after = DoubleFwdOp()
    before(ones(1))
    after(ones(1))

    assert [type(entry) for op in (before, after) for entry in op.built_entries("toy")] == [ToyKernel, Fast]


def test_the_constructor_comes_before_the_default_and_detection(registry: BackendRegistry) -> None:
    """A target passed at construction is the one selected."""
    for name in ("asked", "default", "detected"):
        Acme(registry, "DoubleFwdOp", tenfold, name)
    registry.register_detector("detected", lambda device: device.type == "cpu")
    registry.set_default_target("default")
    op = DoubleFwdOp(target="asked")
    op(ones(1))

    assert op.serving_target == "asked"


def test_the_process_default_comes_before_detection(registry: BackendRegistry) -> None:
    """Without a constructor argument, the process default is selected, as it is at the first call."""
    for name in ("default", "detected"):
        Acme(registry, "DoubleFwdOp", tenfold, name)
    registry.register_detector("detected", lambda device: device.type == "cpu")
    op = DoubleFwdOp()
    registry.set_default_target("default")
    op(ones(1))
    registry.set_default_target(None)
    other = DoubleFwdOp()
    other(ones(1))

    assert (op.serving_target, other.serving_target) == ("default", "detected")


def test_detection_asks_for_the_device_of_the_call(registry: BackendRegistry) -> None:
    """The detector is given the call's device; one that claims it serves, and another device is left in tree."""
    asked: list[torch.device] = []

    def noting_device(device: torch.device) -> bool:
        asked.append(device)
        return device.type == "xpu"

    Acme(registry, "DoubleFwdOp", tenfold)
    registry.register_detector("acme", noting_device)
    op = DoubleFwdOp()
    op(ones(1))

    assert (asked, op.serving_target) == ([CPU], BUILTIN)


def test_builtin_asks_for_the_in_tree_kernels(registry: BackendRegistry) -> None:
    """`BUILTIN` passes over the default and detection."""
    Acme(registry, "DoubleFwdOp", tenfold)
    registry.register_detector("acme", lambda _: True)
    registry.set_default_target("acme")
    op = DoubleFwdOp(target=BUILTIN)

    assert (op(ones(1)).item(), op.serving_target) == (2.0, BUILTIN)


def test_a_selected_target_stays(registry: BackendRegistry) -> None:
    """Neither a new default nor calls from another device change what serves an instance."""
    Acme(registry, "DoubleFwdOp", tenfold)
    op = DoubleFwdOp()
    op(ones(1))
    registry.set_default_target("acme")
    op(ones(2))

    assert op.serving_target == BUILTIN


def test_an_unknown_target_lists_the_known_ones(registry: BackendRegistry) -> None:
    """Asked for at construction or as the default, a name that nobody registered is refused."""
    Acme(registry, "DoubleFwdOp", tenfold)
    for target, meant in (("acne", "did you mean 'acme'? Else "), ("cuda", "")):
        with pytest.raises(UnknownTargetError) as caught:
            DoubleFwdOp(target=target)
        assert str(caught.value) == (
            f"DoubleFwdOp: target: expected one of ['builtin', 'acme'], received {target!r}; {meant}install the "
            "distribution that brings it, or leave target out to let the device decide"
        )
    with pytest.raises(UnknownTargetError, match=r"set_default_target: target: expected one of \['builtin', 'acme'\]"):
        registry.set_default_target("acne")


def test_two_targets_that_claim_a_device_are_ambiguous(registry: BackendRegistry) -> None:
    """Both are named, with who brought them; a target passed to the constructor settles it."""
    for name in ("acme", "bolt"):
        Acme(registry, "DoubleFwdOp", tenfold, name)
        with registry.registering(f"{name}-backend 1.0"):
            registry.register_detector(name, lambda _: True)
    with pytest.raises(AmbiguousTargetError) as caught:
        DoubleFwdOp()(ones(1))
    assert str(caught.value) == (
        "DoubleFwdOp: target: expected one target to claim cpu, received acme (acme-backend 1.0), bolt (bolt-backend "
        "1.0); pass target= to the constructor, or call set_default_target"
    )

    assert DoubleFwdOp(target="bolt")(ones(1)).item() == 10.0


def test_a_detector_that_raises_is_named(registry: BackendRegistry) -> None:
    """A detector never raises; one that does is a BackendError with the target, its owner and the cause."""

    def broken(_: torch.device) -> bool:
        raise KeyError("no driver")

    with registry.registering("acme-backend 1.0"):
        registry.register_detector("acme", broken)
    with pytest.raises(BackendError) as caught:
        DoubleFwdOp()(ones(1))

    assert str(caught.value) == (
        "detector of target 'acme' (acme-backend 1.0): expected True or False for cpu, received KeyError: 'no driver'; "
        "let it return False for devices that are not its own"
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_builder_is_told_of_inputs_in_signature_order(registry: BackendRegistry) -> None:
    """One TensorSpec per input in the order of the signature, None for an absent one, whatever the call's order."""
    acme = Acme(registry, "DoubleFwdOp", tenfold)
    op = DoubleFwdOp(target="acme")
    op(ones(2))
    op(bias=ones(2), x=ones(2))

    assert acme.told == [(spec(2), None), (spec(2), spec(2))]
    assert [tuple(item is not None for item in given) for given in acme.given] == [(True, False), (True, True)]


def test_the_builder_gets_the_instances_parameters_by_keyword(registry: BackendRegistry) -> None:
    """Every manifest parameter on the instance, construction-time tensors on the call's device among them."""
    acme = Acme(registry, "NegateFwdOp", lambda x: x.neg_())
    NegateFwdOp(inplace=True, target="acme")(ones(2))
    table = torch.ones(2)
    other = Acme(registry, "TableFwdOp", tenfold)
    TableFwdOp(table, target="acme")(ones(2))

    assert acme.parameters == [{"inplace": True}]
    assert list(other.parameters[0]) == ["table"]
    assert other.parameters[0]["table"] is table


def test_a_target_without_a_builder_does_not_fall_back(registry: BackendRegistry) -> None:
    """An op with kernels of its own is not available; the message lists what serves it."""
    Acme(registry, "IntoFwdOp", tenfold)
    Acme(registry, "DoubleFwdOp", tenfold, "bolt")
    op = DoubleFwdOp(target="acme")
    with pytest.raises(OpNotAvailableError) as caught:
        op(ones(2))

    assert str(caught.value) == (
        "DoubleFwdOp: target: expected a target that serves this op, one of ['builtin', 'bolt'], received 'acme', "
        "which registered no builder for it; construct the op with target='builtin' to run the in-tree kernels"
    )
    assert (op.serving_target, Hooks.runs) == (None, [])


def test_a_composite_without_kernels_runs_its_composition(registry: BackendRegistry) -> None:
    """Under a target without a builder for it; its sub-ops are served by that target's builders."""
    acme = Acme(registry, "DoubleFwdOp", tenfold)
    op = ChainFwdOp(target="acme")

    assert op(ones(2)).tolist() == [10.0, 10.0]
    assert (op.serving_target, len(acme.told)) == ("acme", 1)
    assert [sub_op.serving_target for sub_op in op.held_delegates()] == ["acme"]


def test_a_composite_with_a_builder_is_served_whole(registry: BackendRegistry) -> None:
    """The composition does not run."""
    Acme(registry, "ChainFwdOp", tenfold)
    op = ChainFwdOp(target="acme")

    assert op(ones(2)).tolist() == [10.0, 10.0]
    assert (Hooks.runs, [sub_op.serving_target for sub_op in op.held_delegates()]) == ([], [None])


@pytest.mark.parametrize("x", [torch.ones(2, device="meta"), torch.ones(0)], ids=["meta", "empty"])
def test_a_composite_that_need_not_run_asks_no_target(x: Tensor, registry: BackendRegistry) -> None:
    """On meta tensors its sub-ops answer, and an empty write runs nothing: no target is selected or built for."""
    acme = Acme(registry, "ChainFwdOp", tenfold)
    op = ChainFwdOp(target="acme")

    assert (op(x).shape, op.serving_target, acme.told) == (x.shape, None, [])


def test_a_composite_with_kernels_of_its_own_does_not_fall_back(registry: BackendRegistry) -> None:
    """It declares a kernel, so a target without a builder does not serve it."""
    Acme(registry, "TripleFwdOp", tenfold)
    with pytest.raises(OpNotAvailableError, match=r"MixedFwdOp: target: expected a target that serves this op"):
        MixedFwdOp(target="acme")(ones(2))
    assert MixedFwdOp()(ones(2)).tolist() == [-3.0, -3.0]


def test_an_injected_sub_op_keeps_its_own_target(registry: BackendRegistry) -> None:
    """A built sub-op inherits the composite's target; a given one was constructed with its own."""
    Acme(registry, "DoubleFwdOp", tenfold)
    op = ChainFwdOp(first=DoubleFwdOp(target=BUILTIN), target="acme")

    assert op(ones(2)).tolist() == [2.0, 2.0]
    assert [sub_op.serving_target for sub_op in op.held_delegates()] == [BUILTIN]


def test_the_cache_of_target_kernels(registry: BackendRegistry) -> None:
    """One kernel per device, dtypes and shapes; an absent input holds its slot; layouts share."""
    acme = Acme(registry, "DoubleFwdOp", lambda x, bias: x * 10)
    op = DoubleFwdOp(target="acme")
    calls: list[tuple[Tensor, Tensor | None]] = [
        (ones(2, 2), None),
        (torch.zeros(2, 2).t(), None),
        (ones(2, 2), ones(2, 2)),
        (ones(4), None),
        (ones(2, 2, dtype=torch.float16), None),
    ]
    built = []
    for x, bias in calls:
        op(x, bias)
        built.append(len(acme.told))

    assert built == [1, 1, 2, 3, 4]
    assert next(iter(op._binding.target_kernels)) == (CPU, ((torch.float32, (2, 2)), None))


def test_the_buffer_is_not_part_of_the_cache_key(registry: BackendRegistry) -> None:
    """A call with `out` and one without use one kernel, which takes `out` by keyword."""

    def compute(x: Tensor, *, out: Tensor | None = None) -> Tensor:
        return x + 1 if out is None else out.copy_(x + 1)

    acme = Acme(registry, "IntoFwdOp", compute)
    op, out = IntoFwdOp(target="acme"), torch.zeros(2)

    assert op(ones(2)).tolist() == [2.0, 2.0]
    assert op(ones(2), out=out) is out
    assert (out.tolist(), len(acme.told)) == ([2.0, 2.0], 1)


def test_a_target_gets_contiguous_inputs(registry: BackendRegistry) -> None:
    """What the call does not write is contiguous; what it writes is the caller's own object, whatever its strides."""
    acme = Acme(registry, "DoubleFwdOp", tenfold)
    x = torch.randn(3, 2).t()
    DoubleFwdOp(target="acme")(x, torch.randn(1, 3).expand(2, 3))
    inplace = Acme(registry, "NegateFwdOp", lambda x: x.neg_())
    written = torch.ones(3, 2).t()
    assert NegateFwdOp(inplace=True, target="acme")(written) is written

    assert [item is not None and item.is_contiguous() for item in acme.given[0]] == [True, True]
    assert (inplace.given[0][0] is written, written.sum().item()) == (True, -6.0)


def test_a_declared_layout_holds_for_a_target_too(registry: BackendRegistry) -> None:
    """A written input that declares contiguous memory is contiguous, or the call is refused before the target."""
    acme = Acme(registry, "CentreFwdOp", lambda x, mean, count: x - mean)
    with pytest.raises(LayoutError, match="CentreFwdOp: mean: expected a contiguous tensor"):
        CentreFwdOp(training=True, target="acme")(ones(2, 3), torch.zeros(3, 2).t(), torch.tensor(0))

    assert acme.told == []


def test_a_target_gets_tensors_of_one_device(registry: BackendRegistry) -> None:
    """Every tensor is on the call's device; one that is declared for the CPU stays there."""
    acme = Acme(registry, "GatherFwdOp", lambda x, places: x[..., places].contiguous())
    GatherFwdOp(target="acme")(ones(2, 3), torch.tensor([0, 2]))

    assert acme.told == [(spec(2, 3), spec(2, dtype=torch.int64))]


def test_a_wrong_call_does_not_reach_a_target(registry: BackendRegistry) -> None:
    """The generated checks run first, on the caller's buffer too."""
    acme = Acme(registry, "IntoFwdOp", tenfold)
    with pytest.raises(ShapeError, match=r"IntoFwdOp: out: expected shape \[2\] of y"):
        IntoFwdOp(target="acme")(ones(2), out=ones(3))

    assert acme.told == []


def test_a_targets_result_is_checked(registry: BackendRegistry) -> None:
    """What a target's kernel returns is held to the signature like any result."""
    Acme(registry, "DoubleFwdOp", lambda x, bias: x.double())
    with pytest.raises(ResultError, match="DoubleFwdOp: y: expected float32"):
        DoubleFwdOp(target="acme")(ones(2))


def test_a_builder_that_returns_no_kernel_is_named(registry: BackendRegistry) -> None:
    """What a builder returns can be called, or the error says whose it is."""
    registry.register_kernel_builder("DoubleFwdOp", "acme", lambda *specs, **parameters: None)  # type: ignore[arg-type]
    with pytest.raises(BackendError) as caught:
        DoubleFwdOp(target="acme")(ones(2))
    assert str(caught.value) == (
        "DoubleFwdOp: target 'acme': expected its builder to return a callable, received None; return a function of "
        "the tensors in signature order"
    )
