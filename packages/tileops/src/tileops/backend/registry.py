"""The registry: which kernel types, detectors and builders the installed backends brought."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Generic, NamedTuple, TypeVar

import torch

from tileops.backend.specs import BuildKernel, DetectTarget
from tileops.errors import AmbiguousTargetError, RegistrationError, UnknownTargetError
from tileops.manifest import registry as manifest
from tileops_kernels.errors import BackendError
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


class Registration(NamedTuple):
    """Who registered, and what, in words."""

    owner: str
    what: str


@dataclass(frozen=True, slots=True)
class _Failure:
    """A backend that failed to load: its entry point's name, its distribution, and what it raised."""

    name: str
    owner: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.name} ({self.owner}): {type(self.error).__name__}: {_one_line(self.error)}"


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
        self._failures: list[_Failure] = []
        self._default_target: str | None = None

    def register_kernel_type(self, op: str, key: str, kernel_type: KernelType) -> None:
        """Add `kernel_type` under `key` to the interface of `op` that it inherits.

        Raises RegistrationError for an unknown op, and for a key that another owner registered.
        """
        name = (self._known_op(op), key)
        self._add(lambda found: found.kernel_types, name, kernel_type, f"kernel type {key!r} of {op}")

    def register_detector(self, target: str, detect: DetectTarget) -> None:
        """Let `detect` say which devices the kernels of `target` are written for.

        Raises RegistrationError for a second detector of the target, and for something that cannot be called.
        """
        what = f"detector of target {target!r}"
        self._add(lambda found: found.detectors, _target_name(target), _callable(what, detect), what)

    def register_kernel_builder(self, op: str, target: str, build_kernel: BuildKernel) -> None:
        """Let `build_kernel` serve `op` as a whole under `target`.

        Raises RegistrationError for an unknown op, a second builder of the same op and target, and something that
        cannot be called.
        """
        name, what = (self._known_op(op), _target_name(target)), f"builder of {op} for target {target!r}"
        self._add(lambda found: found.builders, name, _callable(what, build_kernel), what)

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
            return self.targets_serving(self._known_op(op))
        return tuple(sorted({*self._contents.detectors, *(target for _, target in self._contents.builders)}))

    def targets_serving(self, op: str) -> tuple[str, ...]:
        """The targets that serve `op`, sorted; none for an op that the manifest does not have."""
        return tuple(sorted(target for name, target in self._contents.builders if name == op))

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
        """Raise UnknownTargetError unless `target` is known; the error chains the failure of a backend that broke.

        Of several broken backends that is the one whose entry point has the target's name, else the last.
        """
        if target == BUILTIN or target in self.registered_targets():
            return
        near = get_close_matches(target, [BUILTIN, *self.registered_targets()], n=1)
        meant = f"did you mean {near[0]!r}? Else " if near else ""
        failed = f"; failed to load: {', '.join(self.load_failures())}" if self._failures else ""
        error = UnknownTargetError(
            f"{asker}: target: expected one of {[BUILTIN, *self.registered_targets()]}, received {target!r}{failed}; "
            f"{meant}install the distribution that brings it, or leave target out to let the device decide"
        )
        causes = sorted(self._failures, key=lambda failure: failure.name == target)
        raise error from (causes[-1].error if causes else None)

    def detect(self, op: str, device: torch.device) -> str:
        """The target whose detector claims `device`, BUILTIN when none does.

        Raises AmbiguousTargetError when several claim it.
        """
        claiming = sorted(name for name, found in self._contents.detectors.items() if _claims(name, found, device))
        if len(claiming) > 1:
            owners = ", ".join(f"{name} ({self._contents.detectors[name].owner})" for name in claiming)
            raise AmbiguousTargetError(
                f"{op}: target: expected one target to claim {device}, received {owners}; pass target= to the "
                "constructor, or call set_default_target"
            )
        return claiming[0] if claiming else BUILTIN

    def registrations(self) -> tuple[Registration, ...]:
        """Everything that is registered, with who brought it, in the order of owners and names."""
        found = self._contents
        types = [(item.owner, f"kernel type {key} of {op}") for (op, key), item in found.kernel_types.items()]
        detectors = [(item.owner, f"detector of target {target}") for target, item in found.detectors.items()]
        builders = [(item.owner, f"target {target}, builder of {op}") for (op, target), item in found.builders.items()]
        return tuple(Registration(*item) for item in sorted([*types, *detectors, *builders]))

    def load_failures(self) -> tuple[str, ...]:
        """The backends that failed to load, one line each."""
        return tuple(str(failure) for failure in self._failures)

    def note_failure(self, name: str, owner: str, error: Exception) -> None:
        """Remember that the backend `name` of the distribution `owner` failed to load."""
        self._failures.append(_Failure(name, owner, error))

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

    def _add(
        self,
        shelf: Callable[[_Contents], dict[NameT, Registered[ValueT]]],
        name: NameT,
        value: ValueT,
        what: str,
    ) -> None:
        with self._guard:
            held = shelf(self._contents)
            owner = self._owner or f"module {getattr(value, '__module__', '?')}"
            taken = held.get(name)
            if taken is not None:
                raise RegistrationError(
                    f"{what}: expected one registration, received a second from {owner} after that of {taken.owner}; "
                    "remove one of the two, or choose another name"
                )
            held[name] = Registered(value, owner)

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


def _callable(what: str, value: ValueT) -> ValueT:
    if not callable(value):
        raise RegistrationError(f"{what}: expected a callable, received {value!r}; pass the function itself")
    return value


def _claims(target: str, found: Registered[DetectTarget], device: torch.device) -> bool:
    """Whether a detector claims the device; an exception that it should not have raised is named as the backend's."""
    try:
        return bool(found.value(device))
    except Exception as error:
        raise BackendError(
            f"detector of target {target!r} ({found.owner}): expected True or False for {device}, received "
            f"{type(error).__name__}: {_one_line(error)}; let it return False for devices that are not its own"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
