"""Tuning an op: its kernels built and to be built, its sub-ops, and the one warning where a target serves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from tileops.backend import BackendRegistry
from tileops.errors import TuningWarning
from tileops_kernels.build.cache import ENVIRONMENT_VARIABLE
from tileops_kernels.kernel import KernelType

from .acme import Acme, tenfold
from .composites import ChainFwdOp, ones
from .toys import DoubleFwdOp, ToyCall, ToyKernel, Watched


class TunedKernel(ToyKernel):
    """Has two configurations, the second of which is the only one that is quick."""

    forward = Watched.forward

    def __init__(self, call: ToyCall) -> None:
        super().__init__(call)
        self.chosen = "default"

    @classmethod
    def autotune_configs(cls, call: ToyCall) -> Sequence[str]:
        return ("slow", "quick")

    def configure(self, config: object) -> None:
        self.chosen = str(config)

    def trial(self) -> Callable[[], object]:
        return lambda: sum(range(100_000 if self.chosen == "slow" else 1))

    def config(self) -> Mapping[str, object]:
        return {"chosen": self.chosen}


class TunedFwdOp(DoubleFwdOp, entry=DoubleFwdOp._plan.entry):
    """Has a kernel that can be tuned."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = {"toy": TunedKernel}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices are kept in a folder of the test's own."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))


def chosen(op: DoubleFwdOp | ChainFwdOp) -> list[object]:
    """What the kernels of an op were given."""
    return [kernel.config()["chosen"] for kernel in op.iter_kernels()]


def test_a_built_kernel_is_tuned_at_once() -> None:
    """The request measures what is there."""
    op = TunedFwdOp()
    op(ones(2))
    assert chosen(op) == ["default"]
    op.request_tune()

    assert (chosen(op), op.kernel_config()) == (["quick"], {"chosen": "quick"})


def test_a_kernel_built_later_is_tuned_when_it_is_built() -> None:
    """The request is kept."""
    op = TunedFwdOp()
    op.request_tune()
    op(ones(2))
    op(ones(2, dtype=torch.float16))

    assert chosen(op) == ["quick", "quick"]


@pytest.mark.parametrize("built_before", [False, True])
def test_a_composite_tunes_its_sub_ops(built_before: bool) -> None:
    """Those held, those held later, and injected ones."""
    op = ChainFwdOp(first=TunedFwdOp())
    if built_before:
        op(ones(2))
    op.request_tune()
    op(ones(2))

    assert chosen(op) == ["quick"]
    assert op.delegate_for("second", "new")._running.tuned


def test_a_kernel_without_configurations_is_left_as_it_is() -> None:
    """Asking is no error."""
    op = DoubleFwdOp()
    op.request_tune()

    assert op(ones(2)).tolist() == [2.0, 2.0]


MESSAGE = (
    "TunedFwdOp: request_tune: target 'acme' serves this instance and decides its own launch settings: nothing is "
    "tuned; construct the op with target='builtin' to tune the in-tree kernels"
)


def test_a_serving_target_is_warned_about_once_per_instance(registry: BackendRegistry) -> None:
    """A target's kernels are not tuned from here; the warning says how to tune, and is not repeated."""
    Acme(registry, "TunedFwdOp", tenfold)
    op, other = TunedFwdOp(target="acme"), TunedFwdOp(target="acme")
    op(ones(2))
    with pytest.warns(TuningWarning) as caught:
        op.request_tune()
    assert [str(item.message) for item in caught] == [MESSAGE]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op.request_tune()
        op(ones(2))
    other(ones(2))
    with pytest.warns(TuningWarning, match="TunedFwdOp: request_tune"):
        other.request_tune()


def test_a_request_before_the_target_is_known_is_answered_by_the_call(registry: BackendRegistry) -> None:
    """The warning comes with the first call that the target serves."""
    Acme(registry, "TunedFwdOp", tenfold)
    op = TunedFwdOp(target="acme")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op.request_tune()
    with pytest.warns(TuningWarning) as caught:
        op(ones(2))

    assert [str(item.message) for item in caught] == [MESSAGE]


def test_a_composite_without_a_builder_tunes_its_sub_ops(registry: BackendRegistry) -> None:
    """It runs its composition, so it has nothing to warn about: its sub-ops are tuned."""
    Acme(registry, "TripleFwdOp", tenfold)
    op = ChainFwdOp(first=TunedFwdOp(target="builtin"), target="acme")
    op(ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op.request_tune()

    assert chosen(op) == ["quick"]
