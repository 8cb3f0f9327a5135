"""Calls that pass no operator, since nothing of torch would see it, and those that something sees."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tileops.backend import BUILTIN
from tileops.elementwise import ReluFwdOp
from tileops.errors import LayoutError, ShapeError
from tileops.op import Op
from tileops.reduction import AnyFwdOp

from .toys import ScaledFwdOp, ScaledKernel


class SeeingDispatch(TorchDispatchMode):
    """Sees every operator that torch dispatches."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class SeeingFunction(TorchFunctionMode):
    """Sees every function of torch that is called."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Marked(Tensor):
    """A tensor of a class of its own."""


def watch(monkeypatch: pytest.MonkeyPatch, op: type[Op]) -> list[str]:
    """A list that grows by the class of the first tensor of each call of `op` that passes an operator."""
    found: list[str] = []
    scope = op._call_boundary.__globals__

    def watched(operator: Any, *arguments: Any) -> Any:
        found.append(type(arguments[0]).__name__)
        return operator(*arguments)

    for number in range(len(op.compile_op_names)):
        monkeypatch.setitem(scope, f"operator_{number}", partial(watched, scope[f"operator_{number}"]))
    return found


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of ScaledFwdOp that pass its operator, by the class of their first tensor."""
    return watch(monkeypatch, ScaledFwdOp)


@pytest.fixture
def served() -> ScaledFwdOp:
    """An instance that in-tree kernels serve already."""
    op = ScaledFwdOp()
    op(torch.ones(2))
    return op


def test_the_call_that_selects_passes_the_operator_and_later_ones_do_not(passed: list[str]) -> None:
    """With the in-tree kernels selected nothing is left that the operator would add; the record is the same."""
    op = ScaledFwdOp()
    values = [op(torch.ones(2), torch.ones(2)) for _ in range(3)]

    assert passed == ["Tensor"]
    assert all(torch.equal(y, torch.full((2,), 3.0)) for y in values)
    assert (op.serving_target, ScaledKernel.builds) == (BUILTIN, 1)
    assert op.last_call.tensors["bias"].shape == (2,)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu"), nullcontext])
def test_modes_that_change_no_operator_are_none_that_see_it(
    mode: Callable[[], AbstractContextManager[object]], served: ScaledFwdOp, passed: list[str]
) -> None:
    """Gradients off, inference and autocast leave the call as it is; a result is as torch makes it in that mode."""
    x = torch.nn.Parameter(torch.ones(2), requires_grad=mode in (torch.no_grad, torch.inference_mode))
    with mode():
        y, expected = served(x), x * 2
    assert torch.equal(y, expected)
    assert (y.requires_grad, y.is_inference()) == (expected.requires_grad, expected.is_inference())
    assert passed == []


OBSERVERS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "dispatch mode": SeeingDispatch,
    "function mode": SeeingFunction,
    "default device": lambda: torch.device("cpu"),
    "forward mode": forward_ad.dual_level,
    "profiler": torch.profiler.profile,
    "autograd profiler": torch.autograd.profiler.profile,
}


@pytest.mark.parametrize("observer", OBSERVERS.values(), ids=OBSERVERS)
def test_what_would_see_an_operator_is_shown_one(
    observer: Callable[[], AbstractContextManager[object]], served: ScaledFwdOp, passed: list[str]
) -> None:
    """Within modes and profilers a call passes its operator, and no longer after them."""
    with observer():
        y = served(torch.ones(2))
    assert passed == ["Tensor"]
    assert torch.equal(y, torch.full((2,), 2.0))
    served(torch.ones(2))
    assert passed == ["Tensor"]


def test_a_profile_names_the_operator(served: ScaledFwdOp) -> None:
    """A profile of a program shows each call under the operator's name."""
    with torch.profiler.profile() as profile:
        served(torch.ones(2))
        served(torch.ones(2))
    assert {each.key: each.count for each in profile.key_averages()}["tileops::toy_scaled_fwd"] == 2


def test_function_transforms_and_traces_are_shown_one(served: ScaledFwdOp, passed: list[str]) -> None:
    """Within `torch.func` and `torch.jit.trace` tensors stand for others, whatever their class."""

    def doubled(x: Tensor) -> Tensor:
        y: Tensor = served(x)
        return y

    torch.func.functionalize(doubled)(torch.ones(2))
    assert passed == ["Tensor"]
    torch.jit.trace(doubled, torch.ones(2), check_trace=False)
    assert passed == ["Tensor"] * 2


def test_tensors_that_operators_are_given_otherwise(served: ScaledFwdOp, passed: list[str]) -> None:
    """Subclasses, fakes and views that torch has yet to negate pass the operator, the second input's as well."""
    marked = torch.ones(2).as_subclass(Marked)
    served(marked)
    served(torch.ones(2), marked)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2))
    served(fake)
    negated = torch._neg_view(torch.ones(2))

    assert served(negated).tolist() == [-2.0, -2.0]
    assert served(torch.ones(2), negated).tolist() == [1.0, 1.0]
    assert passed == ["Marked", "Tensor", "FakeTensor", "Tensor", "Tensor"]


def test_a_conjugated_view_passes_the_operator_of_an_op_that_takes_complex_tensors() -> None:
    """What torch has yet to conjugate is conjugated before a kernel reads it."""
    op, x = AnyFwdOp(-1), torch.tensor([[1j, 0], [0, 0]])
    assert op(x).tolist() == [True, False]
    assert op(x.conj()).tolist() == [True, False]
    assert "not x.is_conj()" in inspect.getsource(AnyFwdOp._call_boundary)
    assert "is_conj" not in inspect.getsource(ScaledFwdOp._call_boundary)


def test_meta_tensors_are_answered_after_real_ones(served: ScaledFwdOp, passed: list[str]) -> None:
    """An instance that in-tree kernels serve takes a meta call as any other does: checked, recorded, not computed."""
    y = served(torch.ones(2, 3, device="meta").t())

    assert (y.device.type, y.shape, y.stride()) == ("meta", (3, 2), (2, 1))
    assert served.last_call.device == torch.device("meta")
    assert (ScaledKernel.builds, passed) == (1, [])


def test_a_nested_tensor_is_refused(served: ScaledFwdOp) -> None:
    """One that torch counts as strided has no shape that could be checked."""
    with pytest.warns(UserWarning, match="nested"):
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.strided)
    for op in (served, ScaledFwdOp()):
        with pytest.raises(LayoutError) as caught:
            op(nested)
        assert str(caught.value) == (
            "ScaledFwdOp: x: expected a strided tensor, received layout nested; pass x as a dense tensor, with "
            "to_dense() where it is sparse and to_padded_tensor() where it is nested"
        )


def test_a_failed_call_leaves_the_record_and_the_selection(served: ScaledFwdOp, passed: list[str]) -> None:
    """Checks come before a kernel as ever, and a kernel's failure undoes nothing that an earlier call settled."""
    record = served.last_call
    with pytest.raises(ShapeError, match="ScaledFwdOp: bias: expected shape"):
        served(torch.ones(2), torch.ones(3))
    ScaledKernel.failure = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        served(torch.ones(2))
    assert served.last_call is record
    assert (served.serving_target, passed) == (BUILTIN, [])


@pytest.mark.parametrize("inplace", [False, True])
def test_a_call_that_writes_its_input_passes_the_operator(inplace: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator tells autograd of what was written; the branch that writes nothing has none to tell."""
    op: Op = ReluFwdOp(inplace=inplace)
    op(torch.ones(2))
    found = watch(monkeypatch, ReluFwdOp)
    x = torch.tensor([-1.0, 1.0])
    version = x._version

    assert op(x).tolist() == [0.0, 1.0]
    assert (len(found), x._version - version) == ((1, 1) if inplace else (0, 0))
