"""Checking a kernel type: its contract, its refusals and identities, and what it computes on every case it serves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tileops.backend import BUILTIN
from tileops.errors import SignatureError
from tileops.op import Op
from tileops_kernels.calls import CallSpec
from tileops_kernels.contracts import check_contracts
from tileops_kernels.devices import device_facts
from tileops_kernels.errors import ContractTypeError, ContractValueError, NoImplementationError, OpNotAvailableError
from tileops_kernels.kernel import KernelType
from tileops_kernels.table import KernelTable
from tileops_testing.cases import Case
from tileops_testing.catalog import op_class
from tileops_testing.conformance.findings import Finding, finish
from tileops_testing.errors import CheckFailedError
from tileops_testing.fakes import fake_outputs
from tileops_testing.inputs import poisoned_allocations
from tileops_testing.subject import outputs_of
from tileops_testing.suites import EagerSuite
from tileops_testing.suites.suite import assert_outputs
from tileops_testing.workload_cases import cases_of

__all__ = ["check_kernel_type"]


def check_kernel_type(
    op: str, key: str, kernel_type: KernelType, *, device: str | torch.device = "cpu", cases: Sequence[Case] = ()
) -> tuple[Finding, ...]:
    """Check a kernel type of ``op`` alone, without registering it, on every case of the op that it serves.

    Its contract is checked beside the kernel types that the op has. On each case its refusal must be None or a reason,
    its build identity must be able to key a cache and be equal for equal calls, and the call must pass the eager suite
    with this kernel type as the only one. A case that it refuses does not apply. Where two cases have one identity, the
    entry that was built for the first must serve the second.

    Args:
        op: The op class's name.
        key: The key that it is to be registered under.
        kernel_type: The class.
        device: Where the inputs lie.
        cases: The cases to check on; by default those of the op's workload rows and the kit's further shapes.

    Raises:
        CheckFailedError: A finding failed, or the kernel type serves none of the cases. What a kernel itself raises
            comes through as it is, with a note that names the case.
    """
    where, served_op = torch.device(device), op_class(op)
    title = f"kernel type {key} of {op} on {where}"
    interface, contract = _contract(served_op, key, kernel_type, cases)
    if contract.outcome == "failed":
        return finish(title, [contract])
    findings, subject, served = [contract], _Subject(interface, key, kernel_type, where), []
    for case in cases or cases_of(served_op, small=where.type == "cpu"):
        finding, calls = _on_case(subject, case)
        findings.append(finding)
        served += [(case, call) for call in dict.fromkeys(calls) if finding.outcome == "passed"]
    findings += _on_shared_entries(subject, served)
    if all(finding.outcome != "passed" for finding in findings[1:]) and not any(
        finding.outcome == "failed" for finding in findings
    ):
        reasons = "; ".join(dict.fromkeys(finding.reason for finding in findings[1:]))
        raise CheckFailedError(
            f"{title}: expected it to serve one of {len(findings) - 1} cases, it serves none: {reasons}"
        )
    return finish(title, findings)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is checked: a kernel type under its key, as the only one of an interface, on a device."""

    interface: str
    key: str
    kernel_type: KernelType
    device: torch.device

    def alone(self, case: Case) -> Case:
        """The case on this device, with an op whose interface has this kernel type alone."""
        construct = case.op

        def constructed(**parameters: Any) -> Any:
            op: Any = construct(**{**parameters, "target": BUILTIN})
            self.table(op).types = {self.key: self.kernel_type}
            return op

        constructed.__name__ = case.op_name
        return replace(case, op=constructed).on(self.device)

    def table(self, op: Any) -> KernelTable[Any, Any]:
        """The table of an op's interface."""
        found: KernelTable[Any, Any] = op.kernel_table(self.interface)
        return found

    def identity(self, call: CallSpec) -> Hashable:
        """The build identity of a call that it serves."""
        return self.kernel_type.entry_for(_known(call))[0]


def _contract(op: type[Op], key: str, kernel_type: KernelType, cases: Sequence[Case]) -> tuple[str, Finding]:
    """The interface that the kernel type stands under, and whether it may stand there."""
    homes = [name for name, found in op.interfaces.items() if found in getattr(kernel_type, "__mro__", ())]
    if len(homes) != 1:
        expected = [found.__name__ for found in op.interfaces.values()]
        return "", Finding("contract", "failed", f"expected exactly one of {expected} among its bases, found {homes}")
    instance: Any = (cases or cases_of(op, small=True))[0].construct(BUILTIN)
    table = instance.kernel_table(homes[0])
    try:
        check_contracts(op.__name__, table.key, {**table.types, key: kernel_type})
    except (ContractTypeError, ContractValueError) as error:
        return homes[0], Finding("contract", "failed", str(error))
    return homes[0], Finding("contract", "passed")


def _on_case(subject: _Subject, case: Case) -> tuple[Finding, list[CallSpec]]:
    """What the eager suite finds, and the calls that the op made of this kernel type."""
    calls: list[CallSpec] = []
    alone = subject.alone(case)
    try:
        op: Any = alone.construct()
        _watch(subject.table(op), subject.kernel_type, calls)
        op(*alone.tensors(subject.device))
        EagerSuite().run(alone, device=subject.device)
    except (NoImplementationError, OpNotAvailableError) as error:
        if calls and _claims(subject.table(op), calls[-1]):
            reason = f"refusal: expected a reason for a call that is not served, received None: {error}"
            return Finding(case.id, "failed", reason), calls
        return Finding(case.id, "not applicable", str(error)), calls
    except (CheckFailedError, SignatureError) as error:
        return Finding(case.id, "failed", str(error)), calls
    except Exception as error:
        error.add_note(f"while {subject.kernel_type.__name__} was checked on {case.id}")
        raise
    if not calls:
        return Finding(case.id, "not applicable", "the case asks for no kernel"), calls
    return Finding(case.id, "passed"), calls


def _claims(table: KernelTable[Any, Any], call: CallSpec) -> bool:
    """Whether the kernel type says that it serves a call."""
    try:
        table.explain(call)
    except (NoImplementationError, OpNotAvailableError):
        return False
    return True


def _on_shared_entries(subject: _Subject, served: Sequence[tuple[Case, CallSpec]]) -> Iterator[Finding]:
    """Each case by an entry that was built for the first call of its identity, where that is another call."""
    first: dict[Hashable, tuple[Case, CallSpec]] = {}
    for case, call in served:
        home, built_for = first.setdefault(subject.identity(call), (case, call))
        if built_for == call:
            continue
        name, alone = f"{case.id} by the entry of {home.label}", subject.alone(case)
        op: Any = alone.construct()
        subject.table(op).entry(built_for)
        inputs = alone.tensors(subject.device)
        promised = fake_outputs(alone.construct(), inputs)
        expected = alone.expected(alone.copies(inputs))
        try:
            with poisoned_allocations():
                outputs = outputs_of(op(*inputs))
            assert_outputs(alone, outputs, expected, promised)
        except Exception as error:  # noqa: BLE001 - by an entry of its own the case passed: whatever is raised is a finding
            wrong = f"{type(error).__name__}: {error}"
            reason = f"entry_for: expected another identity than {subject.identity(call)!r} for {call}: "
            yield Finding(name, "failed", f"{reason}the entry of {built_for} does not serve it: {wrong}")
        else:
            yield Finding(name, "passed")


def _watch(table: KernelTable[Any, Any], kernel_type: KernelType, calls: list[CallSpec]) -> None:
    """Check the declarations of a kernel type on every call spec that its table is asked about, and keep these."""
    entry: Callable[[CallSpec], Any] = table.entry

    def watched(call: CallSpec) -> Any:
        calls.append(call)
        _assert_declarations(kernel_type, call)
        return entry(call)

    table.entry = watched  # type: ignore[method-assign]


def _known(call: CallSpec) -> CallSpec:
    """The call with the facts of its device, as a table gives it to a kernel type."""
    return call if call.device is None else replace(call, facts=device_facts(call.device))


def _assert_declarations(kernel_type: KernelType, call: CallSpec) -> None:
    """Refusal and identity, as the selection and the entry cache use them."""
    known = _known(call)
    reason: object = kernel_type.refusal(known)
    if not (reason is None or isinstance(reason, str)):
        raise CheckFailedError(f"refusal: expected None or a reason, received {reason!r}")
    if reason is not None or call.device is None or call.device.type not in kernel_type.devices:
        return
    identity, factory = kernel_type.entry_for(known)
    again, _ = kernel_type.entry_for(replace(known))
    try:
        hash(identity)
    except TypeError:
        raise CheckFailedError(f"entry_for: expected an identity that can key a cache, received {identity!r}") from None
    if identity != again:
        raise CheckFailedError(
            f"entry_for: expected equal identities for equal calls, received {identity!r}, {again!r}"
        )
    if not callable(factory):
        raise CheckFailedError(f"entry_for: expected a factory beside the identity, received {factory!r}")
