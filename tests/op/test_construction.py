"""Argument lists of constructors, instance keys, and op classes defined anew; the steps are in tests/spec."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from tileops.errors import ArgumentError
from tileops.manifest.plan import build_plan
from tileops.op import Op, keys
from tileops.rope import LongRoPEFwdOp

from .toys import DOUBLE_ENTRY, ScaledFwdOp


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
    with pytest.raises(ArgumentError) as caught:
        ScaledFwdOp(1.0, 2.0, 3.0, target="builtin")  # type: ignore[arg-type, call-arg, misc]

    assert str(caught.value) == (
        "ScaledFwdOp: too many positional arguments; expected parameters (factor=2.0, *, target=None), received 3 "
        "positional and the keywords ['target']; construct it as ScaledFwdOp(factor=2.0, *, target=None)"
    )


def test_keys_say_what_the_fake_depends_on() -> None:
    """Instances with other parameters have another digest in their keys, equal ones the same."""
    digests = [digest(op) for op in (ScaledFwdOp(2.0), ScaledFwdOp(2.0), ScaledFwdOp(3.0))]

    assert digests[0] == digests[1] != digests[2]


def digest(op: Op) -> str:
    """The part of an instance's key that torch's caches on disk depend on."""
    return op._instance_key.split("-")[1]


def test_keys_follow_the_entry_the_generated_code_and_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fake gives follows from these, so that a change in one of them finds no graph cached before."""
    assert ScaledFwdOp._contract == DOUBLE_ENTRY.digest + build_plan(DOUBLE_ENTRY).source
    before = digest(ScaledFwdOp())
    with monkeypatch.context() as changed:
        changed.setattr(ScaledFwdOp, "_contract", ScaledFwdOp._contract + "\n")
        assert digest(ScaledFwdOp()) != before
    with monkeypatch.context() as changed:
        changed.setattr("tileops.op.base.__version__", "0.0.0")
        assert digest(ScaledFwdOp()) != before
    assert digest(ScaledFwdOp()) == before


def test_keys_follow_what_construction_time_tensors_look_like() -> None:
    """Their shapes and dtypes are part of the digest, their contents are not: no graph holds them."""
    before = digest(LongRoPEFwdOp(rescale_factors=torch.ones(32)))

    assert digest(LongRoPEFwdOp(rescale_factors=torch.full((32,), 2.0))) == before
    assert digest(LongRoPEFwdOp(rescale_factors=torch.ones(16))) != before


def test_keys_hold_the_parameters_for_readers() -> None:
    """Whoever reads a graph sees the parameters, cut where they are long, and nothing that a literal would escape."""
    assert ScaledFwdOp(3.0)._instance_key.endswith(" (factor=3.0)")
    values = {"kind": "it's", "many": tuple(range(200))}
    op = SimpleNamespace(_construction=SimpleNamespace(values=SimpleNamespace(parameters=values)))
    text = keys._parameters(cast("Op", op))
    assert text.startswith("(kind=its, many=(0, 1, 2, ")
    assert text.endswith("...)")
    assert len(text) < 250


def test_a_dropped_instance_is_collected() -> None:
    """The key table holds instances weakly, and a dead key gives an error that names the op and the mend."""
    op = ScaledFwdOp()
    op(torch.ones(2))
    key, alive = op._instance_key, weakref.ref(op)
    stem, parameters = key.split(" ", 1)
    del op
    gc.collect()

    assert alive() is None
    with pytest.raises(LookupError) as caught:
        keys.instance(key)
    assert str(caught.value) == (
        f"ScaledFwdOp: the compiled or exported graph calls instance {stem}, expected it alive in this process, "
        f"received none; construct ScaledFwdOp{parameters} before running the graph and keep it alive, as number "
        f"{stem.rpartition('-')[2]} (from 0) of those with these parameters that the process constructs, "
        "with this version of tileops; in a fresh process where more have been constructed"
    )


def test_a_constructor_has_its_own_signature() -> None:
    """Tools that read a class's signature see the op's parameters."""
    import inspect

    assert list(inspect.signature(ScaledFwdOp).parameters) == ["factor", "target"]


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
