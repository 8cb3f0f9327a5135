"""The registry: which kernel types, detectors and builders the installed backends brought."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Generic, TypeVar

import torch

from tileops.backend.specs import BuildKernel, DetectTarget
from tileops.errors import AmbiguousTargetError, RegistrationError, UnknownTargetError
from tileops.manifest import registry as manifest
from tileops_kernels.kernel import KernelType

BUILTIN: Final = "builtin"
"""The in-tree kernels, whatever else is installed."""

NameT = TypeVar("NameT")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Registered(Generic[ValueT]):
    """Something registered, and who brought it."""

    value: ValueT
    owner: str


@dataclass(slots=True)
class _Contents:
    """Everything registered; copied before a backend loads, so that a broken one leaves nothing behind."""

    kernel_types: dict[tuple[str, str], Registered[KernelType]] = field(default_factory=dict)
    detectors: dict[str, Registered[DetectTarget]] = field(default_factory=dict)
    builders: dict[tuple[str, str], Registered[BuildKernel]] = field(default_factory=dict)

    def copy(self) -> _Contents:
        return _Contents(dict(self.kernel_types), dict(self.detectors), dict(self.builders))


class BackendRegistry:
    """What backends registered; one instance serves the process, and tests make their own.

    `op_names` gives the names that an op may have. A registration is checked at once and takes effect for op instances
    constructed afterwards. Every method may be called from any thread.
    """

    def __init__(self, op_names: Callable[[], Collection[str]] = manifest.names) -> None:
        self._op_names = op_names
        self._contents = _Contents()
        self._guard = threading.RLock()
        self._owner: str | None = None
        self._failures: dict[str, Exception] = {}
        self._default_target: str | None = None

    def register_kernel_type(self, op: str, key: str, kernel_type: KernelType) -> None:
        """Add `kernel_type` under `key` to the interface of `op` that it inherits.

        Raises RegistrationError for an unknown op, and for a key that another owner registered.
        """
        self._add(self._contents.kernel_types, (self._known_op(op), key), kernel_type, f"kernel type {key!r} of {op}")

    def register_detector(self, target: str, detect: DetectTarget) -> None:
        """Let `detect` say which devices the kernels of `target` are written for."""
        self._add(self._contents.detectors, _target_name(target), detect, f"detector of target {target!r}")

    def register_kernel_builder(self, op: str, target: str, build_kernel: BuildKernel) -> None:
        """Let `build_kernel` serve `op` as a whole under `target`."""
        name = (self._known_op(op), _target_name(target))
        self._add(self._contents.builders, name, build_kernel, f"builder of {op} for target {target!r}")

    def kernel_types_of(self, op: str) -> Mapping[str, KernelType]:
        """The kernel types that backends added to `op`, under their keys."""
        return {key: found.value for (name, key), found in self._contents.kernel_types.items() if name == op}

    def owner_of_kernel_type(self, op: str, key: str) -> str:
        """Who registered the kernel type `key` of `op`."""
        return self._contents.kernel_types[op, key].owner

    def builder_of(self, op: str, target: str) -> BuildKernel | None:
        """The builder of `op` for `target`, None when the target does not serve the op."""
        found = self._contents.builders.get((op, target))
        return None if found is None else found.value

    def registered_targets(self, op: str | None = None) -> tuple[str, ...]:
        """The targets that backends registered, or those that serve `op`, sorted; BUILTIN is not among them."""
        if op is not None:
            return tuple(sorted(target for name, target in self._contents.builders if name == self._known_op(op)))
        return tuple(sorted({*self._contents.detectors, *(target for _, target in self._contents.builders)}))

    def set_default_target(self, target: str | None) -> None:
        """Select `target` for every op constructed without one; None leaves it to detection again.

        Raises UnknownTargetError, which lists the known targets.
        """
        if target is not None:
            self.require_target("set_default_target", target)
        self._default_target = target

    @property
    def default_target(self) -> str | None:
        """The process default, None when detection decides."""
        return self._default_target

    def require_target(self, asker: str, target: str) -> None:
        """Raise UnknownTargetError unless `target` is known; the error chains the failure of a backend that broke."""
        if target == BUILTIN or target in self.registered_targets():
            return
        failed = f"; failed to load: {', '.join(self.load_failures())}" if self._failures else ""
        error = UnknownTargetError(
            f"{asker}: target: expected one of {[BUILTIN, *self.registered_targets()]}, received {target!r}{failed}; "
            "install "
            "the distribution that brings it, or leave target out to let the device decide"
        )
        raise error from next(reversed(self._failures.values()), None)

    def detect(self, op: str, device: torch.device) -> str:
        """The target whose detector claims `device`, BUILTIN when none does.

        Raises AmbiguousTargetError when several claim it.
        """
        claiming = sorted(name for name, found in self._contents.detectors.items() if found.value(device))
        if len(claiming) > 1:
            owners = ", ".join(f"{name} ({self._contents.detectors[name].owner})" for name in claiming)
            raise AmbiguousTargetError(
                f"{op}: target: expected one target to claim {device}, received {owners}; pass target= to the "
                "constructor, or "
                "call set_default_target"
            )
        return claiming[0] if claiming else BUILTIN

    def load_failures(self) -> tuple[str, ...]:
        """The backends that failed to load, one line each."""
        return tuple(f"{name}: {type(error).__name__}: {error}" for name, error in self._failures.items())

    def note_failure(self, name: str, error: Exception) -> None:
        """Remember that the backend `name` failed to load."""
        self._failures[name] = error

    @contextmanager
    def registering(self, owner: str) -> Iterator[None]:
        """All that is registered inside belongs to `owner`, and none of it stays when the block raises."""
        with self._guard:
            before, previous = self._contents.copy(), self._owner
            self._owner = owner
            try:
                yield
            except BaseException:
                self._contents = before
                raise
            finally:
                self._owner = previous

    def _add(self, shelf: dict[NameT, Registered[ValueT]], name: NameT, value: ValueT, what: str) -> None:
        owner = self._owner or f"module {getattr(value, '__module__', '?')}"
        with self._guard:
            taken = shelf.get(name)
            if taken is not None:
                raise RegistrationError(
                    f"{what}: expected one registration, received a second from {owner} after that of {taken.owner}; "
                    "remove "
                    "one of the two, or choose another name"
                )
            shelf[name] = Registered(value, owner)

    def _known_op(self, op: str) -> str:
        names = self._op_names()
        if op not in names:
            near = get_close_matches(op, names, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "see tileops.manifest.registry.names()"
            raise RegistrationError(
                f"register: op: expected the name of an op in the manifest, received {op!r}; {hint}"
            )
        return op


def _target_name(target: str) -> str:
    if target == BUILTIN or not target:
        raise RegistrationError(
            f"register: target: expected a name of your own, received {target!r}; {BUILTIN!r} means the in-tree kernels"
        )
    return target
