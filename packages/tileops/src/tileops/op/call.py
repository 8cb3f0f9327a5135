"""One call of an op: the seven steps, the stack of calls under way, and what a failure undoes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tileops.backend.targets import select_target
from tileops.op.state import BindingState, SeenCall

if TYPE_CHECKING:
    from tileops.manifest.record import SignatureCall
    from tileops.op.base import Op

_SEEN_CALLS = 1024
"""Checked calls that an instance keeps; past it the oldest is forgotten, so that growing lengths do not pile up."""


class CallFrame:
    """One call under way on this thread: what it selected and built, to be undone if it fails."""

    __slots__ = ("built", "op", "selected")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.selected: BindingState | None = None
        self.built: list[object] = []


class _CallStack(threading.local):
    def __init__(self) -> None:
        self.frames: list[CallFrame] = []


_STACK = _CallStack()


def run_call(op: Op, inputs: Sequence[Tensor | None], body: Callable[..., Any]) -> Any:
    """Run `body(*inputs)`, or what stands for it, as one call of `op`.

    Each numbered step is one of the design's seven. A failed call leaves the last record as it was, and drops what it
    selected and built.
    """
    frames = _STACK.frames
    frame = CallFrame(op)  # 1: begin
    frames.append(frame)
    try:
        seen = check_signature(op, inputs)  # 2: check
        binding = op._binding
        if seen.writes_nothing:  # 3: nothing to write
            result = empty_result(seen.record)
        else:
            if binding.target is None:  # 4: select the target
                binding.target = select_target(type(op).__name__, op._construction.target)
                frame.selected = binding
            result = body(*inputs)  # 5: run
        op._plan.check_result(seen.record, result)  # 6: check the result
    except Exception:
        _undo(frame)
        raise
    finally:
        frames.pop()
    binding.confirmed = binding.target is not None
    op._running.last_call = seen.record  # 7: record
    return result


def check_signature(op: Op, inputs: Sequence[Tensor | None]) -> SeenCall:
    """The checked call for `inputs`, from the calls seen before when their metadata is equal."""
    plan = op._plan
    key = plan.metadata_key(*inputs)
    known = op._running.seen
    seen = known.get(key)
    if seen is None:
        record = plan.check_call(op._construction.values, *inputs)
        seen = SeenCall(record, record.is_empty_write)
        if len(known) >= _SEEN_CALLS:
            known.pop(next(iter(known)), None)
        known[key] = seen
    return seen


def empty_result(record: SignatureCall) -> Any:
    """The outputs that the record says, uninitialised and contiguous."""
    results = tuple(torch.empty(output.shape, dtype=output.dtype, device=record.device) for output in record.outputs)
    return results[0] if len(results) == 1 else results


def note_built(entry: object) -> None:
    """Remember that the call under way on this thread built `entry`."""
    if _STACK.frames:
        _STACK.frames[-1].built.append(entry)


def _undo(frame: CallFrame) -> None:
    selected = frame.selected
    if selected is None:
        return
    op = frame.op
    if not selected.confirmed and op._binding is selected:
        op._binding = BindingState()
    for table in op._construction.tables.values():
        table.discard(tuple(frame.built))
