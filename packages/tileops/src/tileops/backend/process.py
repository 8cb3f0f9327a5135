"""The registry that serves this process, and the functions that act on it."""

from __future__ import annotations

from tileops.backend.discovery import Discovery
from tileops.backend.registry import BackendRegistry
from tileops.backend.specs import BuildKernel, DetectTarget
from tileops_kernels.kernel import KernelType

_REGISTRY = BackendRegistry()
PROCESS = Discovery(_REGISTRY)
"""Loads the installed backends into the process's registry when the first op is constructed."""


def register_kernel_type(op: str, key: str, kernel_type: KernelType) -> None:
    """Add `kernel_type` under `key` to the interface of `op` that it inherits, for instances constructed afterwards.

    Raises RegistrationError for an unknown op or a key registered twice; the contract of the kernel type is checked
    when an op that would use it is constructed.
    """
    _REGISTRY.register_kernel_type(op, key, kernel_type)


def register_detector(target: str, detect: DetectTarget) -> None:
    """Let `detect` say which devices the kernels of `target` are written for; it never raises."""
    _REGISTRY.register_detector(target, detect)


def register_kernel_builder(op: str, target: str, build_kernel: BuildKernel) -> None:
    """Let `build_kernel` serve `op` as a whole under `target`.

    It is called with one TensorSpec per input in `signature.inputs` order, None for an absent one, and the op's
    parameters by keyword; what it returns takes the tensors in that order, `out` by keyword, and returns what
    `signature.outputs` says. Raises RegistrationError for an unknown op or a second builder of the same op and target.
    """
    _REGISTRY.register_kernel_builder(op, target, build_kernel)


def set_default_target(target: str | None) -> None:
    """Select `target` for every op constructed without one; None leaves it to detection again.

    Raises UnknownTargetError, which lists the known targets.
    """
    PROCESS.load().set_default_target(target)


def default_target() -> str | None:
    """The process default target, None when the call's device decides."""
    return _REGISTRY.default_target


def registered_targets(op: str | None = None) -> tuple[str, ...]:
    """The targets that installed backends registered, or those that serve `op`; BUILTIN is not among them."""
    return PROCESS.load().registered_targets(op)


def load_failures() -> tuple[str, ...]:
    """The installed backends that failed to load, one line each."""
    return PROCESS.load().load_failures()
