"""One call of an op: the seven steps, the stack of calls under way, and what a failure undoes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from tileops.backend.registry import BUILTIN
from tileops.backend.targets import select_target
from tileops.manifest.placement import call_device
from tileops.op.arguments import require_strided
from tileops.op.delegates import drop_built, file_stages, reset_delegates
from tileops.op.state import BindingState, SeenCall
from tileops.op.target_call import composes, run_target
from tileops.op.tuning import warn_untuned
from tileops_kernels.errors import OpNotAvailableError

if TYPE_CHECKING:
    from tileops.manifest.record import SignatureCall
    from tileops.op.base import Op

Body: TypeAlias = Callable[..., Any]
"""The computation of an op: takes the signature's inputs in order, and `out` by keyword where the caller passed it."""

_SEEN_CALLS = 1024
"""Checked calls that an instance keeps; past it the oldest is forgotten, so that growing lengths do not pile up."""


class CallFrame:
    """One call under way on this thread: what it selected and built, and the calls that sub-ops completed during it."""

    __slots__ = ("built", "completed", "op", "selected")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.selected: BindingState | None = None
        self.built: list[object] = []
        self.completed: list[tuple[Op, SignatureCall]] = []


class _CallStack(threading.local):
    def __init__(self) -> None:
        self.frames: list[CallFrame] = []


_STACK = _CallStack()


def run_call(op: Op, inputs: Sequence[Tensor | None], out: Tensor | None = None, *, body: Body | None = None) -> Any:
    """Run the op on `inputs`, in signature order, as one call; `out` is the caller's buffer.

    `body` computes in place of `forward`; a call that has one reaches here without a compile boundary, so that its
    meta tensors have met no fake. Each numbered step is one of the design's seven. A failed call leaves the last
    record as it was, and drops what it selected and built.
    """
    frames = _STACK.frames
    frame = CallFrame(op)  # 1: begin
    frames.append(frame)
    try:
        seen = check_signature(op, inputs, out)  # 2: check
        record = seen.record
        binding = op._binding
        if seen.answered:  # 3: nothing to write
            result = empty_result(record, inputs, out)
        elif body is not None:
            result = _run_body(op, frame, record, inputs, out, body)  # 4, 5 without a compile boundary
        else:
            target = binding.target
            if target is None:  # 4: select the target
                target = _select(op, binding, frame, record.device)
            if target == BUILTIN:  # 5: run
                result = op.forward(*inputs) if out is None else op.forward(*inputs, out=out)
            else:
                result = _run_target(op, binding, frame, record, inputs, out)
        op._plan.check_result(record, result)  # 6: check the result
        if frame.completed or op.delegate_types:
            record = file_stages(op, record, frame.completed)
    except Exception:  # undone and raised again; an interrupt is left alone, as the design's table of failures says
        _undo(frame)
        if len(frames) > 1:
            frames[-2].built.extend(frame.built)
        raise
    finally:
        frames.pop()
    binding.confirmed = binding.target is not None
    op._running.last_call = record  # 7: record
    if frames:
        report(op, record, frame.built)
    return result


def _run_body(
    op: Op,
    frame: CallFrame,
    record: SignatureCall,
    inputs: Sequence[Tensor | None],
    out: Tensor | None,
    body: Body,
) -> Any:
    """Select and run, for an op without a compile boundary.

    On meta tensors no target is selected: the sub-ops of a composite answer, and where the op declares kernels of its
    own, which run on no meta tensor, or computes together with other processes, the signature does.
    """
    binding, on_meta = op._binding, record.device is not None and record.device.type == "meta"
    if on_meta and (op.kernel_types or not op.delegate_types or op.collective):
        return empty_result(record, inputs, out)
    target = BUILTIN if on_meta else binding.target
    if target is None:
        target = _select(op, binding, frame, record.device)
    if target == BUILTIN or composes(op, target):
        return body(*inputs) if out is None else body(*inputs, out=out)
    return _run_target(op, binding, frame, record, inputs, out)


def _run_target(
    op: Op,
    binding: BindingState,
    frame: CallFrame,
    record: SignatureCall,
    inputs: Sequence[Tensor | None],
    out: Tensor | None,
) -> Any:
    if op._running.tuned:
        warn_untuned(op, str(binding.target))
    return run_target(op, binding, record, inputs, out, frame.built.append)


def check_signature(op: Op, inputs: Sequence[Tensor | None], out: Tensor | None = None) -> SeenCall:
    """The checked call for `inputs`, from the calls seen before when their metadata is equal.

    Where no tensor says on which device the call runs, the device is part of it: the accelerator's current one changes.
    """
    plan = op._plan
    key = plan.metadata_key(*inputs) if out is None else plan.metadata_key(*inputs, out=out)
    if not plan.required_inputs and key is not None:
        key = (*key, call_device(op._construction.values))
    seen = op._running.seen.get(key)
    if seen is None:
        return _check_anew(op, key, inputs, out)
    return observing(seen, inputs)


def _check_anew(op: Op, key: Hashable, inputs: Sequence[Tensor | None], out: Tensor | None) -> SeenCall:
    """The checked call for inputs of metadata `key` that is kept for no call, and kept from now on."""
    known, buffer = op._running.seen, {} if out is None else {"out": out}
    if key is None:
        for name, tensor in zip(op._plan.inputs, inputs, strict=True):
            if tensor is not None:
                require_strided(type(op).__name__, name, tensor)
    record = op._plan.check_call(op._construction.values, *inputs, **buffer)
    observed = tuple((name, op._plan.inputs.index(name)) for name in record.metadata)
    seen = SeenCall(record, _answered(op, record), observed)
    with op._running.guard:
        if len(known) >= _SEEN_CALLS:
            known.pop(next(iter(known)), None)
        known[key] = seen
    return seen


def observing(seen: SeenCall, inputs: Sequence[Tensor | None]) -> SeenCall:
    """The call seen before; a record that refers to inputs refers to these, whose contents may be others."""
    if not seen.observed:
        return seen
    tensors = {name: tensor for name, place in seen.observed if (tensor := inputs[place]) is not None}
    return SeenCall(seen.record.observing(tensors), seen.answered, seen.observed)


def _answered(op: Op, record: SignatureCall) -> bool:
    """Whether the signature gives the call's result: every write holds no elements, or a boundary meets meta tensors.

    A call that computes together with other processes runs also where it writes no element itself.
    """
    if record.device is not None and record.device.type == "meta" and op.compile_op_names:
        return True
    return record.is_empty_write and not op.collective


def empty_result(record: SignatureCall, inputs: Sequence[Tensor | None], out: Tensor | None = None) -> Any:
    """The outputs that the record says: written inputs and the caller's buffer as they are, the rest uninitialised."""
    branch = record.branch
    passed = dict(zip((tensor.name for tensor in branch.entry.signature.inputs), inputs, strict=True))
    promised = {output.name: output for output in record.outputs}
    results: list[Tensor | None] = []
    for output in branch.entry.signature.outputs:
        facts = promised.get(output.name)
        if facts is None:
            results.append(None)
        elif output.alias in branch.written:
            results.append(passed[output.alias])
        elif output.buffer and out is not None:
            results.append(out)
        else:
            results.append(torch.empty(facts.shape, dtype=facts.dtype, device=record.device))
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def fake_result(op: Op) -> Any:
    """What a call without tensor inputs gives where fakes are made: the outputs of its signature; nothing is kept.

    Raises OpNotAvailableError where a graph is recorded, which would keep the fakes' missing values for the real ones.
    """
    if torch.compiler.is_compiling() or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:
        name = type(op).__name__
        raise OpNotAvailableError(
            f"{name}: a call without tensor inputs is no node of a graph; expected a call outside, received one while "
            f"tracing; call {name} before and pass its result in"
        )
    return empty_result(op._plan.check_call(op._construction.values), ())


def note_built(entry: object) -> None:
    """Remember that the call under way on this thread built `entry`."""
    if _STACK.frames:
        _STACK.frames[-1].built.append(entry)


def report(op: Op, record: SignatureCall, built: Sequence[object] = ()) -> None:
    """Tell the call under way on this thread, if there is one, of a completed call of `op` and what it built."""
    if _STACK.frames:
        parent = _STACK.frames[-1]
        parent.completed.append((op, record))
        parent.built.extend(built)


def _select(op: Op, binding: BindingState, frame: CallFrame, device: torch.device | None) -> str:
    """Select the target; with nothing to select from, the in-tree body runs this once and none is kept."""
    state = op._construction
    with op._running.guard:
        if binding.target is not None:
            return binding.target
        target = select_target(state.backends, type(op).__name__, state.target, device)
        if target is None:
            return BUILTIN
        binding.target = target
    frame.selected = binding
    return target


def _undo(frame: CallFrame) -> None:
    """Drop what this call built, and undo the selection that it made, here and in every held sub-op.

    The selection stays when another thread's call has completed under it.
    """
    selected = frame.selected
    if selected is None:
        return
    op = frame.op
    drop_built(op, tuple(frame.built))
    if selected.confirmed:
        return
    if op._binding is selected:
        op._binding = BindingState()
    reset_delegates(op)
