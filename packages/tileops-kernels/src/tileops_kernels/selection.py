"""The rule that finds the kernel type of a call: availability, then applicability, then precedence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tileops_kernels.calls import CallSpec
from tileops_kernels.errors import AmbiguousDispatchError, NoImplementationError, OpNotAvailableError
from tileops_kernels.kernel import KernelType


@dataclass(frozen=True, slots=True)
class Selection:
    """What the rule found: the winner's key and, for every other key, the reason it did not serve."""

    key: str
    passed_over: Mapping[str, str]


def select(owner: str, types: Mapping[str, KernelType], call: CallSpec) -> Selection:
    """The one kernel type of `types` that serves `call`, whose device facts are settled.

    `owner` names the op and interface in errors. The result does not depend on the order of `types`.
    Raises OpNotAvailableError when none runs on the device, NoImplementationError when all that do refuse the call, and
    AmbiguousDispatchError when several serve it and none is preferred.
    """
    reasons: dict[str, str] = {}
    for key, kernel_type in types.items():
        if (reason := _unavailable(kernel_type, call)) is not None:
            reasons[key] = reason
    if len(reasons) == len(types):
        raise OpNotAvailableError(_none_runs(owner, types, call))
    refused = {key: reason for key in types if key not in reasons and (reason := types[key].refusal(call)) is not None}
    reasons |= refused
    serving = {key: types[key] for key in types if key not in reasons}
    if not serving:
        listed = "; ".join(f"{key}: {refused[key]}" for key in sorted(refused))
        raise NoImplementationError(
            f"{owner}: no implementation serves this call; expected a call that one of {sorted(refused)} serves, "
            f"received {call}; refused by {listed}; change the call, or register a kernel type that serves it"
        )
    winners = sorted(key for key in serving if not any(_beats(other, key, serving) for other in serving))
    if len(winners) != 1:
        raise AmbiguousDispatchError(
            f"{owner}: dispatch is ambiguous between {winners}; expected one of them to be preferred, received {call}; "
            "name the others in the preferred_over of the one that should win"
        )
    winner = winners[0]
    for key in serving:
        if key != winner:
            reasons[key] = (
                f"{winner} is preferred" if key in serving[winner].preferred_over else f"ranks below {winner}"
            )
    return Selection(winner, reasons)


def _beats(challenger: str, key: str, serving: Mapping[str, KernelType]) -> bool:
    if challenger == key:
        return False
    if serving[key].general:
        return not serving[challenger].general
    return key in serving[challenger].preferred_over


def _unavailable(kernel_type: KernelType, call: CallSpec) -> str | None:
    if call.device is None or call.device.type not in kernel_type.devices:
        return f"runs on {', '.join(sorted(kernel_type.devices))}"
    archs = kernel_type.supported_archs
    if call.device.type == "cuda" and archs is not None and call.arch not in archs:
        return f"runs on CUDA architectures {sorted(archs)}, this device is {call.arch}"
    return None


def _none_runs(owner: str, types: Mapping[str, KernelType], call: CallSpec) -> str:
    device = "an unknown device" if call.device is None else str(call.device)
    if not types:
        return (
            f"{owner}: in-tree kernels do not run on {device}; "
            "expected a kernel type under this interface, received none; "
            "register one, or pass target= of a backend that serves this op"
        )
    offers = sorted({device_type for kernel_type in types.values() for device_type in kernel_type.devices})
    reasons = "; ".join(f"{key}: {_unavailable(types[key], call)}" for key in sorted(types))
    mend = (
        "this process has no accelerator to run on: pass device= to the op, or state the call spec's device"
        if call.device is None
        else "move the tensors, or pass target= of a backend that serves this device"
    )
    return (
        f"{owner}: in-tree kernels do not run on {device}; expected a device among {offers}, received {device} "
        f"({reasons}); {mend}"
    )
