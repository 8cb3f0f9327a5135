"""Checking a target: what its detector answers, and what its kernels compute on every case of the ops it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from tileops.backend import BackendError, BackendRegistry, Discovery
from tileops.backend.process import PROCESS
from tileops.errors import SignatureError
from tileops.manifest import registry as manifest
from tileops_testing.cases import Case
from tileops_testing.catalog import implemented_ops, op_class
from tileops_testing.conformance.findings import Finding, finish
from tileops_testing.errors import CheckFailedError
from tileops_testing.inputs import poison
from tileops_testing.numerics import assert_close
from tileops_testing.suites import EagerSuite
from tileops_testing.workload_cases import cases_of

__all__ = ["check_target"]

DEVICES = ("cpu", "meta", "cuda", "mps", "xpu")
"""Devices that every detector must be able to answer for."""


def check_target(
    target: str,
    *,
    ops: Sequence[str] = (),
    device: str | torch.device = "cpu",
    cases: Callable[[str], Sequence[Case]] | None = None,
    backends: Discovery = PROCESS,
) -> tuple[Finding, ...]:
    """Check an installed target on every case of the ops it serves, or of those named, on ``device``.

    For each case: values against the reference, the record, effects, strides, layouts, equal calls, zero sizes, and a
    caller's buffer where the op takes one. A result that the op refuses fails the case, and so does a builder that
    refuses it. Detectors are asked about devices of every kind.

    Args:
        target: The target's name, as its distribution registers it.
        ops: Op class names; by default every implemented op for which the target registered a builder.
        device: Where the inputs lie.
        cases: The cases of an op; by default those of its workload rows and the kit's further shapes.
        backends: Where the target is registered; by default the backends of this process.

    Raises:
        CheckFailedError: A finding failed, the target is not registered, or it serves none of the ops. What a kernel
            itself raises comes through as it is, with a note that names the case.
    """
    where, registry = torch.device(device), backends.load()
    if target not in registry.registered_targets():
        failures = f"; failed to load: {', '.join(registry.load_failures())}" if registry.load_failures() else ""
        raise CheckFailedError(
            f"{target}: expected a registered target, one of {list(registry.registered_targets())}{failures}; install "
            "its distribution"
        )
    implemented = tuple(op.__name__ for op in implemented_ops())
    served = [op for op in ops or implemented if target in registry.registered_targets(op)]
    if not served or set(ops) - set(served):
        raise CheckFailedError(
            f"{target}: expected it to serve {', '.join(sorted(set(ops) - set(served))) or 'an implemented op'}, found "
            "no builder; register one with register_kernel_builder(op, target, build_kernel)"
        )
    findings = [_asked(registry, device_type) for device_type in DEVICES]
    for op in served:
        chosen = cases_of(op_class(op), small=where.type == "cpu") if cases is None else cases(op)
        findings += [_on_case(case, target, where) for case in chosen]
    return finish(f"target {target} on {where}", findings)


def _asked(registry: BackendRegistry, device_type: str) -> Finding:
    try:
        registry.detect("conformance", torch.device(device_type))
    except BackendError as error:
        return Finding(f"detection on {device_type}", "failed", str(error))
    return Finding(f"detection on {device_type}", "passed")


def _on_case(case: Case, target: str, device: torch.device) -> Finding:
    try:
        EagerSuite().run(case, device=device, target=target)
        for check in _buffer_checks(case):
            check(case, target, device)
    except (CheckFailedError, SignatureError, BackendError) as error:
        return Finding(case.id, "failed", str(error))
    except Exception as error:
        error.add_note(f"while target {target} was checked on {case.id}")
        raise
    return Finding(case.id, "passed")


def _buffer_checks(case: Case) -> Iterator[Callable[[Case, str, torch.device], None]]:
    entry = manifest.find(case.op_name)
    if entry is not None and any(output.buffer for output in entry.signature.outputs):
        yield _assert_buffer


def _assert_buffer(case: Case, target: str, device: torch.device) -> None:
    """The caller's buffer is written whole and returned itself; a kernel built without one takes one."""
    op, inputs = case.construct(target), case.tensors(device)
    made = op(*inputs)
    buffer = poison(torch.empty_like(made))
    expected = case.expected(case.copies(inputs))
    returned = _with_buffer(op, inputs, buffer)
    if returned is not buffer:
        raise CheckFailedError("out: the call must return the very tensor passed as out")
    if expected.values[0] is not None:
        terms = expected.terms[0]
        assert_close(buffer, expected.values[0], dtype=made.dtype, summed=case.summed, terms=terms, what="out")


def _with_buffer(op: Callable[..., Tensor], inputs: Sequence[Tensor | None], buffer: Tensor) -> Tensor:
    return op(*inputs, out=buffer)
