"""The CUDA-graph suite: after one warm call, a captured call replays right on new data and on any stream."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tileops_testing.cases import Case, Inputs
from tileops_testing.errors import CheckFailedError
from tileops_testing.fakes import TensorFacts, fake_outputs
from tileops_testing.graphs import CudaGraphRecorder, GraphRecorder, copy_into
from tileops_testing.inputs import poison
from tileops_testing.references import Expected
from tileops_testing.subject import SubjectOp, outputs_of
from tileops_testing.suites.suite import Check, Checks, assert_outputs, assert_written, kernels_of, written_by

__all__ = ["CudaGraphSuite"]


@dataclass(frozen=True)
class CudaGraphSuite:
    """Calls captured into a CUDA graph. Another ``recorder`` than CUDA's lets the suite itself be tested anywhere."""

    name: str = "cuda_graph"
    recorder: Callable[[], GraphRecorder] = CudaGraphRecorder
    device_type: str = "cuda"

    def unavailable(self, case: Case, device: torch.device) -> str | None:
        """Return the reason when ``device`` cannot capture graphs."""
        del case
        if device.type == self.device_type:
            return None
        return f"CUDA graphs need a CUDA device, the device is {device}"

    def run(self, case: Case, *, device: torch.device, target: str | None = None) -> tuple[Check, ...]:
        """Check one case: a cold capture, capture after a warm call, replay on new data and on a side stream."""
        checks = Checks(self.name, case, device)
        case = case.on(device)
        op = case.construct(target)
        inputs = case.tensors(device)
        promised = fake_outputs(case.construct(target), inputs)
        with checks.check("cold capture") as notes:
            notes.append(_cold_capture(_Captured(op, case, inputs, promised, self.recorder(), device)))
        with checks.check("warm call"):
            expected = case.expected(case.copies(inputs))
            assert_outputs(case, outputs_of(op(*inputs)), expected, promised)
        captured = _Captured(op, case, inputs, promised, self.recorder(), device)
        with checks.check("capture builds and waits for nothing"):
            captured.capture()
        if not captured.recorded:
            return checks.finish()
        with checks.check("replay on new data"):
            captured.assert_replays(fresh=1)
        with checks.check("replay on a side stream"), _side_stream(device):
            captured.assert_replays(fresh=2)
        with checks.check("twice in one graph"):
            _assert_twice(op, case, inputs, promised, self.recorder(), device)
        return checks.finish()


class _Captured:
    """One call of an op captured over fixed storage."""

    def __init__(
        self,
        op: SubjectOp,
        case: Case,
        inputs: Inputs,
        promised: tuple[TensorFacts | None, ...],
        recorder: GraphRecorder,
        device: torch.device,
    ) -> None:
        self._op, self._case, self._inputs = op, case, inputs
        self._promised, self._recorder, self._device = promised, recorder, device
        self._outputs: tuple[Tensor | None, ...] = ()
        self.recorded = False

    def capture(self) -> None:
        """Capture the call; building a kernel or synchronising meanwhile is an error."""
        built = kernels_of(self._op)
        self.record()
        after = kernels_of(self._op)
        if [id(kernel) for kernel in built] != [id(kernel) for kernel in after]:
            raise CheckFailedError(f"capturing went from {len(built)} kernels to {len(after)}")

    def record(self) -> None:
        """Capture the call, in which an operation that waits for the device raises."""

        def call() -> tuple[Tensor | None, ...]:
            with _synchronising_raises(self._device):
                return outputs_of(self._op(*self._inputs))

        self._outputs = self._recorder.capture(call)
        self.recorded = True

    def assert_replays(self, *, fresh: int) -> None:
        """Poison the outputs, put new data into the inputs' storage, replay, and compare."""
        _poison_new(self._outputs, self._inputs)
        values = self._case.tensors(self._device, fresh=fresh)
        copy_into(self._inputs, values)
        copies = self._case.copies(values)
        expected = self._case.expected(copies)
        self._recorder.replay()
        assert_outputs(self._case, self._outputs, expected, self._promised)
        _assert_effect(self._op, self._case, self._inputs, values, copies, expected)


def _poison_new(outputs: tuple[Tensor | None, ...], inputs: Inputs) -> None:
    """Fill every output that is no input with what no right result holds."""
    for output in outputs:
        if output is not None and not any(output is tensor for tensor in inputs):
            poison(output)


def _assert_effect(
    op: SubjectOp, case: Case, inputs: Inputs, values: Inputs, copies: Inputs, expected: Expected
) -> None:
    """A written input holds what the reference wrote into its copy, every other one what was put there."""
    written = written_by(op)
    for name, tensor, value, copy in zip(case.names(), inputs, values, copies, strict=True):
        if tensor is None or value is None or copy is None:
            continue
        if name in written:
            assert_written(case, name, tensor, copy, value, expected)
        elif not torch.equal(tensor, value):
            raise CheckFailedError(f"input {name}: the replay changed it, the call must not write it")


def _assert_twice(
    op: SubjectOp,
    case: Case,
    inputs: Inputs,
    promised: tuple[TensorFacts | None, ...],
    recorder: GraphRecorder,
    device: torch.device,
) -> None:
    """Two calls on the same tensors in one graph are two calls: neither loses its outputs or what it wrote."""
    first, second = recorder.capture(lambda: (outputs_of(op(*inputs)), outputs_of(op(*inputs))))
    for outputs in (first, second):
        _poison_new(outputs, inputs)
    values = case.tensors(device, fresh=5)
    copy_into(inputs, values)
    copies = case.copies(values)
    once, twice = case.expected(copies), case.expected(copies)
    recorder.replay()
    if not any(output is tensor for output in first for tensor in inputs if tensor is not None):
        assert_outputs(case, first, once, promised)  # else the second call has written the same tensor since
    assert_outputs(case, second, twice, promised)
    _assert_effect(op, case, inputs, values, copies, twice)


def _cold_capture(captured: _Captured) -> str:
    """Capture a call that was never made, and return what happened.

    Either it is refused in one line that asks for a warm-up call, or nothing was left to build (other instances in
    this process built it all) and the captured call is right.
    """
    try:
        captured.record()
    except RuntimeError as error:
        message = str(error)
        if "\n" in message or "warm" not in message or "captur" not in message:
            raise CheckFailedError(
                f"expected one line that asks for a warm-up call before capturing, received: {message}"
            ) from error
        return f"refused: {message}"
    captured.assert_replays(fresh=3)
    return "captured: nothing was left to build"


@contextlib.contextmanager
def _synchronising_raises(device: torch.device) -> Iterator[None]:
    """While active on a CUDA device, an operation that waits for the device raises."""
    if device.type != "cuda":
        yield
        return
    mode = torch.cuda.get_sync_debug_mode()
    try:
        with warnings.catch_warnings():
            # What torch does not detect is left to the capture itself, which nothing that waits survives.
            warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype feature")
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@contextlib.contextmanager
def _side_stream(device: torch.device) -> Iterator[None]:
    """Make a stream of its own current, ordered after and before the work of the present one."""
    if device.type != "cuda":
        yield
        return
    present, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    side.wait_stream(present)
    with torch.cuda.stream(side):
        yield
    present.wait_stream(side)
