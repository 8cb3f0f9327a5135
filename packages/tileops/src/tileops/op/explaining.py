"""What would serve a call: its target, the kernel that it asks for, and why each other kernel type would not."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.backend.registry import BUILTIN
from tileops.backend.targets import require_builder, select_target
from tileops.manifest.record import SignatureCall
from tileops.op.base import Op
from tileops.op.state import BindingState, RunningState
from tileops.op.target_call import composes
from tileops_kernels.calls import CallSpec
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.kernel import KernelType
from tileops_kernels.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """What a call asks its kernel table for, the kernel types there, and the selection among them."""

    interface: str
    call: CallSpec
    types: Mapping[str, KernelType]
    selection: Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What would serve one call.

    op: the instance, as its constructor is called. target: `BUILTIN`, or the backend's target whose builder serves the
    op as a whole. record: what the signature says of the call. kernel: the choice among kernel types; None where a
    target serves, for a composite, and for a call that needs no kernel. stages: of a composite, the last call of each
    sub-op that it made.
    """

    op: str
    target: str
    record: SignatureCall
    kernel: KernelChoice | None = None
    stages: Mapping[str, tuple[Explanation, ...]] = field(default_factory=dict)


class _AskedForKernel(BaseException):
    """Ends `forward` once it has asked for a kernel, with what it asked for."""

    def __init__(self, interface: str, call: CallSpec) -> None:
        super().__init__(interface)
        self.interface = interface
        self.call = call


def kernel_request(
    op: Op,
    inputs: Sequence[Tensor | None],
    out: Tensor | None = None,
    *,
    mode: AbstractContextManager[object] = nullcontext(),  # noqa: B008 - holds nothing
) -> tuple[str, CallSpec] | None:
    """The interface and the call spec of the first kernel that a call asks for; None for one that needs no kernel.

    `op` itself stays as it is. The tensors may be those of the fake mode `mode`: no kernel is built or run.
    """

    def ask(interface: str, call: CallSpec) -> None:
        raise _AskedForKernel(interface, call)

    asking: Op = object.__new__(type(op))  # shares what construction settled, and nothing that a call changes
    delegates, stages = dict(op._running.delegates), dict(op._running.stages)
    fresh = {"_binding": BindingState(), "_running": RunningState(delegates=delegates, stages=stages)}
    asking.__dict__.update({**op.__dict__, **fresh, "kernel_for": ask})
    try:
        with mode:
            asking._forward_by_name(*inputs, **_buffer(out))
    except _AskedForKernel as asked:
        return asked.interface, asked.call
    return None


def explain_call(
    op: Op,
    inputs: Sequence[Tensor | None],
    out: Tensor | None = None,
    *,
    mode: FakeTensorMode,
    facts: DeviceFacts | None = None,
) -> Explanation:
    """What would serve a call of `op` on `inputs`, in signature order: tensors of the fake mode `mode`, on any device.

    `facts` states those of the call's CUDA device; without them they are read from it. Nothing is built, and `op` stays
    as it is.

    Raises what the call would raise before it builds: SignatureError, UnknownTargetError, OpNotAvailableError,
    NoImplementationError or AmbiguousDispatchError.
    """
    state, name = op._construction, type(op).__name__
    record = op._plan.check_call(state.values, *inputs, **_buffer(out))
    if record.is_empty_write:
        return Explanation(op=repr(op), target=BUILTIN, record=record)
    target = select_target(state.backends, name, state.target, record.device) or BUILTIN
    explained = Explanation(op=repr(op), target=target, record=record)
    if target != BUILTIN and not composes(op, target):
        require_builder(state.backends, name, target)
        return explained
    if op.delegate_types and not op.kernel_types:
        return replace(explained, stages=_stages(op, inputs, record, mode, facts))
    request = kernel_request(op, inputs, out, mode=mode)
    if request is None:
        return explained
    interface, call = request
    table = op.kernel_table(interface)
    stated = facts if call.device is not None and call.device.type == "cuda" else None
    selection = table.explain(replace(call, facts=stated))
    choice = KernelChoice(interface=interface, call=call, types=table.types, selection=selection)
    return replace(explained, kernel=choice)


def _stages(
    op: Op, inputs: Sequence[Tensor | None], record: SignatureCall, mode: FakeTensorMode, facts: DeviceFacts | None
) -> dict[str, tuple[Explanation, ...]]:
    """What would serve each sub-op: a call of meta tensors says what the sub-ops are called with."""
    composite = copy.deepcopy(op)
    declared = op._plan.entry.signature.inputs
    composite(
        *[
            None
            if tensor is None
            else torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device=item.device or "meta")
            for item, tensor in zip(declared, inputs, strict=True)
        ]
    )
    device = record.device
    if device is None:
        return {}
    found: dict[str, tuple[Explanation, ...]] = {}
    for (stage, _), sub_op in composite._running.delegates.items():
        last = sub_op._running.last_call
        if last is not None:
            placed = [
                _placed(last, item.name, item.device, device, mode) for item in sub_op._plan.entry.signature.inputs
            ]
            found[stage] = (*found.get(stage, ()), explain_call(sub_op, placed, mode=mode, facts=facts))
    return found


def _placed(
    record: SignatureCall, name: str, declared: str | None, device: torch.device, mode: FakeTensorMode
) -> Tensor | None:
    """A tensor like the one that a record has under `name`, on the device of the whole call."""
    facts = record.tensors.get(name)
    if facts is None:
        return None
    with mode:
        return torch.empty(facts.shape, dtype=facts.dtype, device=declared or device)


def _buffer(out: Tensor | None) -> dict[str, Any]:
    return {} if out is None else {"out": out}
