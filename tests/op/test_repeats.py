"""Calls whose tensors are alike those of a call before: what they skip, and what they never miss."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.architecture.sources import ROOT
from tileops.errors import DTypeError, GradientError, LayoutError, ResultError, ShapeError
from tileops.norm import FusedAddLayerNormFwdOp, LayerNormFwdOp
from tileops.op import repeats
from tileops.op.call import check_signature, run_call

from .toys import SCALED, ScaledCall, ScaledFwdOp, ScaledInterface, ScaledKernel


class DirectFwdOp(ScaledFwdOp, entry=ScaledFwdOp._plan.entry):
    """An op that says what computes its calls."""

    asked: int = 0

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute on checked inputs."""
        self.asked += 1
        return self.computation(x, bias)(x.contiguous(), None if bias is None else bias.contiguous())

    def computation(self, x: Tensor, bias: Tensor | None = None) -> ScaledInterface:
        """The kernel of calls like this one."""
        return self.kernel_for(SCALED, ScaledCall(device=x.device, dtype=x.dtype, factor=self.factor))


@pytest.fixture
def op() -> DirectFwdOp:
    """An instance that keeps a call of two elements."""
    op = DirectFwdOp()
    op(torch.ones(2))
    op(torch.ones(2))
    return op


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each call that is checked by its metadata."""
    found: list[int] = []
    run = run_call

    def watched(*arguments: Any) -> Any:
        found.append(len(found))
        return run(*arguments)

    monkeypatch.setattr(repeats, "run_call", watched)
    return found


def test_a_call_alike_runs_its_computation_alone(op: DirectFwdOp, checked: list[int]) -> None:
    """`forward` is left out, and the record is that of the call that was checked."""
    asked, record = op.asked, op.last_call
    assert [op(torch.full((2,), value)).tolist() for value in (3.0, 4.0)] == [[6.0, 6.0], [8.0, 8.0]]
    assert (op.asked, checked) == (asked, [])
    assert op.last_call is record


def test_inputs_that_are_not_contiguous_pass_through_forward(op: DirectFwdOp) -> None:
    """A computation is given contiguous tensors; a call alike is not checked again either way."""
    x = torch.arange(4.0)[::2]
    op(x)
    asked = op.asked
    assert op(x).tolist() == [0.0, 4.0]
    assert op.asked == asked + 1


CHANGES: dict[str, tuple[Callable[[Tensor], Any], type[Exception]]] = {
    "resized": (lambda x: x.resize_(3), ShapeError),
    "of another dtype": (lambda x: setattr(x, "data", torch.ones(2, dtype=torch.float64)), DTypeError),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_tensor_that_was_changed_in_place_is_checked(change: str) -> None:
    """The object that an earlier call was given says nothing: what is compared is what it is by then."""
    op, x, bias = DirectFwdOp(), torch.ones(2), torch.ones(2)
    for _ in range(3):
        op(x, bias)
    change_it, error = CHANGES[change]
    change_it(bias)
    with pytest.raises(error, match="bias: expected"):
        op(x, bias)


def test_gradients_are_refused_after_calls_without_them() -> None:
    """A call that was kept where gradients are off is none where they are on."""
    op, x = DirectFwdOp(), torch.nn.Parameter(torch.ones(2))
    with torch.no_grad():
        for _ in range(3):
            assert not op(x).requires_grad
    y = op(x)
    assert y.requires_grad
    with pytest.raises(GradientError):
        y.sum().backward()


def test_a_tensor_that_comes_to_require_a_gradient_is_seen(op: DirectFwdOp) -> None:
    """Calls alike have inputs that require gradients alike."""
    assert op(torch.ones(2).requires_grad_()).requires_grad
    assert not op(torch.ones(2)).requires_grad


def test_a_tensor_left_out_is_alike_none(op: DirectFwdOp, checked: list[int]) -> None:
    """Neither an empty one nor any other is taken for the stand-in of one that a call leaves out."""
    bias = torch.ones(2)
    assert [op(torch.ones(2), bias).tolist() for _ in range(2)] == [[3.0, 3.0]] * 2
    assert op(torch.ones(2)).tolist() == [2.0, 2.0]
    assert len(checked) == 1
    with pytest.raises(ShapeError, match="bias"):
        op(torch.ones(2), torch.empty(0))


def test_a_tensor_passed_twice_is_checked_each_time(op: DirectFwdOp) -> None:
    """Such calls are right, and none of them is kept."""
    kept, x = len(op._running.repeats), torch.ones(2)
    assert [op(x, x).tolist() for _ in range(3)] == [[3.0, 3.0]] * 3
    assert len(op._running.repeats) == kept


def test_a_wrong_result_of_a_call_alike_is_an_error(op: DirectFwdOp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are checked by every call, and a failed one leaves the record."""
    record = op.last_call
    monkeypatch.setattr(ScaledKernel, "result", lambda y: y.double())
    with pytest.raises(ResultError, match="y: expected"):
        op(torch.ones(2))
    assert op.last_call is record
    monkeypatch.setattr(ScaledKernel, "result", lambda y: y.as_strided((2,), (0,)))
    with pytest.raises(ResultError, match="y: expected"):
        op(torch.ones(2))


def test_a_forward_of_a_subclass_is_what_runs() -> None:
    """A computation that was written for another `forward` is not taken for an overriding one's."""

    class OffsetFwdOp(DirectFwdOp, entry=DirectFwdOp._plan.entry):
        def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
            """Add one."""
            return super().forward(x, bias) + 1

    op = OffsetFwdOp()
    assert [op(torch.ones(2)).tolist() for _ in range(3)] == [[3.0, 3.0]] * 3


def test_a_forward_put_in_place_later_is_what_runs(op: DirectFwdOp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether on the instance or on its class, before the first call or after calls alike; taken back, it is gone."""
    op.forward = lambda x, bias=None: x.clone()  # type: ignore[method-assign]
    assert [op(torch.ones(2)).tolist() for _ in range(3)] == [[1.0, 1.0]] * 3
    del op.forward
    other, fresh = DirectFwdOp(), DirectFwdOp()
    assert [other(torch.ones(2)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    with monkeypatch.context() as patch:
        patch.setattr(DirectFwdOp, "forward", lambda self, x, bias=None: x + 6)
        for each in (other, fresh):
            assert [each(torch.ones(2)).tolist() for _ in range(3)] == [[7.0, 7.0]] * 3
    for each in (op, other, fresh):
        assert [each(torch.ones(2)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3


def test_calls_are_kept_within_bounds() -> None:
    """Lengths that grow with every call do not pile up, and every call is right."""
    op = DirectFwdOp()
    for length in range(1, 100):
        assert op(torch.ones(length)).tolist() == [2.0] * length
    assert len(op._running.repeats) == repeats._KEPT
    assert max(repeat.seen.record.shapes[0] for repeat in op._running.repeats) > (80,)


def test_a_kept_call_holds_no_tensor_and_no_op() -> None:
    """Inputs and results are free once the caller drops them, and the op without a garbage collection."""
    op = LayerNormFwdOp([4])
    x, weight = torch.ones(2, 4), torch.ones(4)
    found = [weakref.ref(tensor) for tensor in (x, weight, op(x, weight), op(x, weight), op(x, weight))]
    held = weakref.ref(op)
    del x, weight
    assert len(op._running.repeats) == 1
    assert [reference() for reference in found] == [None] * 5
    gc.disable()
    try:
        del op
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of layouts that may change
@pytest.mark.parametrize("layout", ["sparse", "csr", "mkldnn"])
def test_tensors_that_cannot_be_compared_are_refused(layout: str, op: DirectFwdOp) -> None:
    """They are named before torch is asked whether they are alike, by an instance that keeps calls and by another."""
    made: dict[str, Callable[[], Tensor]] = {
        "sparse": lambda: torch.ones(2).to_sparse(),
        "csr": lambda: torch.ones(2, 2).to_sparse_csr(),
        "mkldnn": lambda: torch.ones(2, 2).to_mkldnn(),
    }
    x = made[layout]()
    for each in (op, DirectFwdOp()):
        with pytest.raises(LayoutError, match="DirectFwdOp: x: expected a strided tensor, received layout"):
            each(x)


def test_batches_of_nested_tensors_are_not_compared() -> None:
    """Within a transform torch has no sizes of them: comparing would end the process."""
    program = (
        "import torch\n"
        "from tests.op.toys import ScaledFwdOp\n"
        "op = ScaledFwdOp()\n"
        "for _ in range(3): op(torch.ones(4))\n"
        "nested = torch.nested.nested_tensor([torch.ones(1, 4), torch.ones(2, 4)], layout=torch.strided)\n"
        "print(torch.func.vmap(op)(nested)[1].tolist())\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ran.returncode, ran.stdout) == (0, f"{[[2.0] * 4] * 2}\n")


def test_threads_share_what_is_kept() -> None:
    """Threads that call one instance with tensors of several lengths each get their own results."""
    op, wrong = DirectFwdOp(), []

    def call(length: int) -> None:
        for step in range(200):
            x = torch.full((length + step % 3,), float(length))
            if not torch.equal(op(x), x * 2):
                wrong.append((length, step))

    threads = [threading.Thread(target=call, args=(4 * place + 1,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_several_results_of_calls_alike() -> None:
    """Each is checked, and they come in a tuple, as from the call that was kept."""
    op, weight, bias = FusedAddLayerNormFwdOp(), torch.ones(8), torch.zeros(8)
    x, residual = torch.randn(3, 8), torch.randn(3, 8)
    first, *others = [op(x, residual, weight, bias) for _ in range(4)]
    assert all(type(found) is tuple and all(map(torch.equal, found, first)) for found in others)


def test_an_operator_runs_a_call_alike_without_its_checks(op: DirectFwdOp, checked: list[int]) -> None:
    """Compiled code calls operators, which keep calls as the eager call does."""
    compiled = torch.compile(lambda x: op(x + 1) + 1, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [5.0, 5.0]
    count = len(checked)
    assert [compiled(torch.ones(2)).tolist() for _ in range(3)] == [[5.0, 5.0]] * 3
    assert len(checked) == count
    assert check_signature(op, (torch.ones(2), None)).record is op.last_call
