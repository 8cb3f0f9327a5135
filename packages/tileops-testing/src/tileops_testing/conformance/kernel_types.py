"""Checking a kernel type: its contract, its refusals and identities, and what it computes on every case it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from tileops.backend import BUILTIN
from tileops.op import Op
from tileops_kernels.calls import CallSpec
from tileops_kernels.contracts import check_contracts
from tileops_kernels.devices import device_facts
from tileops_kernels.errors import ContractTypeError, ContractValueError, NoImplementationError, OpNotAvailableError
from tileops_kernels.kernel import KernelType
from tileops_testing.cases import Case
from tileops_testing.catalog import op_class
from tileops_testing.conformance.findings import Finding, finish
from tileops_testing.errors import CheckFailedError
from tileops_testing.suites import EagerSuite
from tileops_testing.workload_cases import cases_of

__all__ = ["check_kernel_type"]


def check_kernel_type(
    op: str, key: str, kernel_type: KernelType, *, device: str | torch.device = "cpu", cases: Sequence[Case] = ()
) -> tuple[Finding, ...]:
    """Check a kernel type of ``op`` alone, without registering it, on every case of the op that it serves.

    Its contract is checked beside the kernel types that the op has. On each case its refusal must be None or a reason,
    its build identity must be able to key a cache and be equal for equal calls, and the call must pass the eager suite
    with this kernel type as the only one. A case that it refuses does not apply.

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
    findings = [contract]
    findings += [
        _on_case(_alone(case, interface, key, kernel_type), interface, kernel_type, where)
        for case in cases or cases_of(served_op, small=where.type == "cpu")
    ]
    if all(finding.outcome != "passed" for finding in findings[1:]) and not any(
        finding.outcome == "failed" for finding in findings
    ):
        reasons = "; ".join(dict.fromkeys(finding.reason for finding in findings[1:]))
        raise CheckFailedError(
            f"{title}: expected it to serve one of {len(findings) - 1} cases, it serves none: {reasons}"
        )
    return finish(title, findings)


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


def _alone(case: Case, interface: str, key: str, kernel_type: KernelType) -> Case:
    """The case with an op whose interface has this kernel type alone."""
    construct = case.op

    def constructed(**parameters: Any) -> Any:
        op: Any = construct(**{**parameters, "target": BUILTIN})
        op.kernel_table(interface).types = {key: kernel_type}
        return op

    constructed.__name__ = case.op_name
    return replace(case, op=constructed)


def _on_case(case: Case, interface: str, kernel_type: KernelType, device: torch.device) -> Finding:
    calls: list[CallSpec] = []
    try:
        op: Any = case.construct()
        _watch(op.kernel_table(interface), kernel_type, calls)
        op(*case.tensors(device))
        EagerSuite().run(case, device=device)
    except (NoImplementationError, OpNotAvailableError) as error:
        return Finding(case.id, "not applicable", str(error))
    except CheckFailedError as error:
        return Finding(case.id, "failed", str(error))
    except Exception as error:
        error.add_note(f"while {kernel_type.__name__} was checked on {case.id}")
        raise
    if not calls:
        return Finding(case.id, "not applicable", "the case asks for no kernel")
    return Finding(case.id, "passed")


def _watch(table: Any, kernel_type: KernelType, calls: list[CallSpec]) -> None:
    """Check the declarations of a kernel type on every call spec that its table is asked about, and keep these."""
    entry: Callable[[CallSpec], Any] = table.entry

    def watched(call: CallSpec) -> Any:
        calls.append(call)
        _assert_declarations(kernel_type, call)
        return entry(call)

    table.entry = watched


def _assert_declarations(kernel_type: KernelType, call: CallSpec) -> None:
    """Refusal and identity, as the selection and the entry cache use them."""
    known = call if call.device is None else replace(call, facts=device_facts(call.device))
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
