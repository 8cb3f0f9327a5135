"""Repeats: calls that torch finds alike one that was checked, which need no other check before they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch._C._dynamo.guards import TensorGuards

from tileops.backend.registry import BUILTIN
from tileops.op.call import check_signature, run_call
from tileops.op.observers import PLAIN
from tileops.op.state import Repeat

if TYPE_CHECKING:
    from tileops.op.base import Op

_KEPT: Final = 8
"""Repeats that an instance keeps."""

_RENEWED: Final = 16
"""Of so many further calls one takes the place of the oldest: keeping a call takes as long as making it does."""


class _Absent(Tensor):
    """The class of what stands for a tensor that a call leaves out: no caller's tensor is alike."""


_COMPARABLE: Final = PLAIN | {_Absent}


def absent() -> Tensor:
    """A tensor of its own to stand for one that a call leaves out."""
    return torch.empty(0, device="cpu").as_subclass(_Absent)


def run_repeatable(op: Op, inputs: Sequence[Tensor | None], compared: Sequence[Tensor]) -> Any:
    """Run a call that writes nothing and returns all outputs, and keep what runs calls alike.

    `compared` are the inputs with the stand-ins of those that the call leaves out. Not kept is a call that a target or
    its signature answers, that may reach other ops, whose device no tensor says, or that is alike not even itself.
    """
    binding, running = op._binding, op._running
    result = run_call(op, inputs)
    running.unlike += 1
    if len(running.repeats) == _KEPT and running.unlike % _RENEWED:
        return result
    seen = check_signature(op, inputs)
    results = result if isinstance(result, tuple) else (result,)
    if (
        binding.target != BUILTIN
        or seen.answered
        or op.delegate_types
        or not op._plan.required_inputs
        or any(type(tensor) not in _COMPARABLE or tensor.is_nested for tensor in compared)
        or any(type(tensor) is not Tensor for tensor in results)
        or not (alike := _alike(compared))(*compared)
    ):
        return result
    computation = _computation(op, inputs) if all(tensor.is_contiguous() for tensor in compared) else None
    differentiable = any(tensor.requires_grad for tensor in compared)
    replaced = None if computation is None else type(op).forward
    repeat = Repeat(alike, _alike(results), computation, replaced, seen, binding, differentiable)
    with running.guard:
        running.repeats = (repeat, *running.repeats[: _KEPT - 1])
    return result


def _computation(op: Op, inputs: Sequence[Tensor | None]) -> Callable[..., Any] | None:
    """The op's own computation, unless another `forward` was put in place of the one that it was written for."""
    overridden = "forward" in vars(op) or type(op).forward is not type(op)._computed
    return None if overridden else op.computation(*inputs)


def _alike(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Whether as many tensors are alike `tensors` in all that torch keeps of them but their memory and their contents.

    It holds no tensor. Compared are class, dispatch keys with those that are active on this thread (devices, layouts,
    negated and conjugated views, inference, dispatch modes, transforms and traces), dtype, device, sizes, strides and
    `requires_grad`; where one object is passed twice, nothing is alike.
    """
    check: Callable[..., bool] = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    return check
