"""The eager suite: values, record, effect, strides and layouts of plain calls, and what a second call builds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tileops_testing.cases import Case, Inputs
from tileops_testing.errors import CheckFailedError
from tileops_testing.fakes import TensorFacts, assert_facts, fake_outputs
from tileops_testing.inputs import LAYOUTS, poisoned_allocations
from tileops_testing.numerics import assert_identical
from tileops_testing.references import Expected
from tileops_testing.subject import SubjectOp, outputs_of
from tileops_testing.suites.suite import Check, Checks, assert_outputs, assert_written, kernels_of, written_by

__all__ = ["EagerSuite"]


@dataclass(frozen=True)
class EagerSuite:
    """Plain calls on real tensors."""

    name: str = "eager"

    def unavailable(self, case: Case, device: torch.device) -> str | None:
        """Eager calls run on every device that torch has."""
        del case, device
        return None

    def run(self, case: Case, *, device: torch.device, target: str | None = None) -> tuple[Check, ...]:
        """Check one case: output, record, effect, strides, second call, layouts, zero size."""
        checks = Checks(self.name, case, device)
        case = case.on(device)
        op = case.construct(target)
        inputs = case.tensors(device)
        promised = fake_outputs(case.construct(target), inputs)
        copies = case.copies(inputs)
        expected = case.expected(copies)
        outputs = _call(op, inputs)
        with checks.check("output"):
            assert_outputs(case, outputs, expected, promised)
        with checks.check("record"):
            _assert_recorded(op, case, inputs)
        with checks.check("effect"):
            _assert_effect(op, case, inputs, copies, case.tensors(device), expected)
            _assert_own_storage(op, case, inputs, outputs)
        with checks.check("strides"):
            assert_facts(promised, outputs)
        del inputs, copies  # of the largest cases a device holds few sets
        with checks.check("second call"):
            _assert_builds_nothing(op, case, device, target, outputs)
        with checks.check("layouts"):
            _assert_layouts(op, case, device, target)
        empty = case.emptied()
        if empty is None:
            checks.not_applicable("zero size", "the op has no free axis")
        else:
            with checks.check("zero size"):
                _assert_zero_size(empty, device, target)
        return checks.finish()


def _call(op: SubjectOp, inputs: Inputs) -> tuple[Tensor | None, ...]:
    with poisoned_allocations():
        return outputs_of(op(*inputs))


def _assert_recorded(op: SubjectOp, case: Case, inputs: Inputs) -> None:
    tensors = op.last_call.tensors
    for name, tensor in zip(case.names(), inputs, strict=True):
        recorded = tensors.get(name)
        if tensor is None:
            if recorded is not None:
                raise CheckFailedError(f"{name}: was not passed, the record holds {recorded}")
            continue
        if recorded is None:
            raise CheckFailedError(f"{name}: was passed, the record lacks it; it holds {', '.join(tensors)}")
        if tuple(recorded.shape) != tuple(tensor.shape) or recorded.dtype != tensor.dtype:
            raise CheckFailedError(
                f"{name}: {tuple(tensor.shape)} {tensor.dtype} was passed, the record holds {recorded}"
            )


def _assert_effect(
    op: SubjectOp, case: Case, inputs: Inputs, copies: Inputs, untouched: Inputs, expected: Expected
) -> None:
    """A written input holds what the reference wrote into its copy; every other input is as it was."""
    written = written_by(op)
    for name, tensor, copy, before in zip(case.names(), inputs, copies, untouched, strict=True):
        if tensor is None or copy is None or before is None:
            continue
        if name in written:
            assert_written(case, name, tensor, copy, before, expected)
        else:
            assert_identical(tensor, before, what=f"input {name}, which the call must not write")


def _assert_own_storage(op: SubjectOp, case: Case, inputs: Inputs, outputs: tuple[Tensor | None, ...]) -> None:
    """An output shares storage with a written input by being that very object, and with no other tensor."""
    passed = {name: tensor for name, tensor in zip(case.names(), inputs, strict=True) if tensor is not None}
    taken = {tensor.untyped_storage().data_ptr(): name for name, tensor in passed.items() if tensor.numel()}
    written = [passed[name] for name in written_by(op) if name in passed]
    for position, output in enumerate(outputs):
        if output is None or output.numel() == 0 or any(output is tensor for tensor in written):
            continue
        place = output.untyped_storage().data_ptr()
        if place in taken:
            raise CheckFailedError(f"output {position} shares storage with {taken[place]}")
        taken[place] = f"output {position}"


def _assert_builds_nothing(
    op: SubjectOp, case: Case, device: torch.device, target: str | None, first: tuple[Tensor | None, ...]
) -> None:
    """A second call with equal metadata uses the kernels that are there, and leaves what the first one gave alone."""
    built = kernels_of(op)
    if target is None and not built and not _is_empty(case):
        raise CheckFailedError("the first call left no kernel in iter_kernels()")
    again = case.tensors(device, fresh=1)
    expected = case.expected(case.copies(again))
    promised = fake_outputs(case.construct(target), again)
    outputs = _call(op, again)
    assert_outputs(case, outputs, expected, promised)
    for position, (before, now) in enumerate(zip(first, outputs, strict=True)):
        if _share_storage(before, now):
            raise CheckFailedError(f"output {position} of the second call lies in the storage of the first call's")
    after = kernels_of(op)
    if [id(kernel) for kernel in built] != [id(kernel) for kernel in after]:
        raise CheckFailedError(f"a call with equal shapes and dtypes went from {len(built)} kernels to {len(after)}")


def _share_storage(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None or not (first.numel() and second.numel()):
        return False
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def _is_empty(case: Case) -> bool:
    return any(spec is not None and 0 in spec.shape for spec in case.inputs(case.sizes).values())


def _assert_layouts(op: SubjectOp, case: Case, device: torch.device, target: str | None) -> None:
    """In every layout the call gives, bit for bit, what it gives on dense copies, with the promised strides.

    Small free sizes do: layouts differ by strides, not by how many rows there are.
    """
    case = case.capped()
    if _is_empty(case):
        return
    if written_by(op):
        _assert_written_layouts(op, case, device)
        return
    for layout in LAYOUTS[1:]:
        inputs = case.tensors(device, layout=layout)
        dense = tuple(
            None if tensor is None else tensor.clone(memory_format=torch.contiguous_format) for tensor in inputs
        )
        promised = fake_outputs(case.construct(target), inputs)
        outputs = _call(op, inputs)
        assert_facts(promised, outputs, situation=f"{layout} inputs")
        for position, (output, value) in enumerate(zip(outputs, _call(op, dense), strict=True)):
            if output is not None and value is not None:
                assert_identical(output, value, what=f"{layout} inputs: output {position} against dense inputs")


def _assert_written_layouts(op: SubjectOp, case: Case, device: torch.device) -> None:
    """Of a call that writes inputs: it writes them where their elements lie, and gives what it gives on dense ones."""
    for layout in ("transposed", "sliced", "offset"):
        inputs = case.tensors(device, layout=layout)
        dense = tuple(
            None if tensor is None else tensor.clone(memory_format=torch.contiguous_format) for tensor in inputs
        )
        outputs, values = _call(op, inputs), _call(op, dense)
        for name, tensor, copy in zip(case.names(), inputs, dense, strict=True):
            if tensor is not None and copy is not None:
                assert_identical(tensor, copy, what=f"{layout} inputs: {name} against dense inputs")
        for position, (output, value) in enumerate(zip(outputs, values, strict=True)):
            if output is not None and value is not None:
                assert_identical(output, value, what=f"{layout} inputs: output {position} against dense inputs")


def _assert_zero_size(case: Case, device: torch.device, target: str | None) -> None:
    """A call without elements gives what the signature says and builds no kernel unless it has something to write."""
    op = case.construct(target)
    inputs = case.tensors(device)
    promised: tuple[TensorFacts | None, ...] = fake_outputs(case.construct(target), inputs)
    outputs = _call(op, inputs)
    assert_facts(promised, outputs, situation="zero size")
    assert_outputs(case, outputs, case.expected(case.copies(inputs)), promised)
    if all(output is None or output.numel() == 0 for output in outputs) and kernels_of(op):
        raise CheckFailedError("a call that writes no element built a kernel")
