"""KernelTable: the kernel types of one interface, and the entries that they have built."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Generic, cast
from weakref import WeakSet

import torch

from tileops_kernels.contracts import check_contracts
from tileops_kernels.devices import current_accelerator_device, device_facts
from tileops_kernels.errors import CallSpecError, ContractTypeError
from tileops_kernels.interface import CallT, InterfaceKey, InterfaceT
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.selection import Selection, select
from tileops_kernels.tuning import tune


class KernelTable(Generic[CallT, InterfaceT]):
    """Finds the entry of a call: one lookup for a call met before, else selection and at most one build.

    `key` is the interface, `types` its kernel types under their keys, `owner` the op's name for errors. `on_build` is
    told of each entry built, on the thread that built it. Contracts are checked here, so a wrong set of kernel types
    raises when the table is made. A table may be used from any thread: an
    entry is built once per (kernel type, identity), and a build that fails leaves nothing behind.
    """

    def __init__(
        self,
        key: InterfaceKey[CallT, InterfaceT],
        types: Mapping[str, KernelType],
        *,
        owner: str = "",
        on_build: Callable[[InterfaceT], None] | None = None,
    ) -> None:
        self.key = key
        self.types = dict(types)
        self._owner = f"{owner}.{key}" if owner else str(key)
        self._entries_by_call: dict[CallT, InterfaceT] = {}
        self._built_entries: dict[tuple[KernelType, Hashable], InterfaceT] = {}
        self._on_build = on_build
        self._tuned = False
        self._guard = threading.Lock()
        self._builds: dict[tuple[KernelType, Hashable], threading.Lock] = {}
        check_contracts(owner or str(key), key, self.types)
        _TABLES.add(self)

    def entry(self, call: CallT) -> InterfaceT:
        """The entry that serves `call`, built when no equal call or identity was met before.

        Raises CallSpecError, OpNotAvailableError, NoImplementationError, AmbiguousDispatchError or BuildError.
        """
        try:
            found = self._entries_by_call.get(call)
        except TypeError:
            raise self._cannot_key(call) from None
        return found if found is not None else self._settle(call)

    def key_for(self, call: CallT) -> str:
        """The key of the kernel type that serves `call`; its `facts` may be stated, to ask about another machine."""
        return self.explain(call).key

    def explain(self, call: CallT) -> Selection:
        """The key that serves `call`, and for each other kernel type the reason it does not."""
        self._check(call)
        return select(self._owner, self.types, _with_facts(_with_device(call)))

    def built_entries(self) -> tuple[InterfaceT, ...]:
        """The entries built so far, oldest first."""
        return tuple(self._built_entries.values())

    def request_tune(self) -> None:
        """Tune every entry that is built, and every one built from now on."""
        self._tuned = True
        for (_, identity), entry in list(self._built_entries.items()):
            self._tune(identity, entry)

    def discard(self, entries: Sequence[object]) -> None:
        """Forget `entries`, so that the next call that needs one builds it again."""
        dropped = set(map(id, entries))
        with self._guard:
            for identity in [known for known, entry in self._built_entries.items() if id(entry) in dropped]:
                del self._built_entries[identity]
            for call in [known for known, entry in self._entries_by_call.items() if id(entry) in dropped]:
                del self._entries_by_call[call]

    def forget_unfinished(self) -> None:
        """Forget builds under way in other threads; only for a forked child, where those threads do not exist."""
        self._guard = threading.Lock()
        self._builds = {}

    def _settle(self, call: CallT) -> InterfaceT:
        self._check(call)
        if call.facts is not None:
            raise CallSpecError(
                f"{self._owner}: expected a call spec without device facts, received facts={call.facts}; "
                "leave facts out: they are read from the call's device (only key_for and explain take them stated)"
            )
        placed = _with_device(call)
        if placed is not call:
            return self.entry(placed)
        known = _with_facts(call)
        kernel_type = self.types[select(self._owner, self.types, known).key]
        identity, factory = kernel_type.entry_for(known)
        built_as = (kernel_type, identity)
        try:
            hash(identity)
        except TypeError:
            raise ContractTypeError(
                f"{self._owner}: expected {kernel_type.__name__}.entry_for to give an identity that can key a cache, "
                f"received {identity!r}; use numbers, strings, dtypes and tuples"
            ) from None
        entry = self._build_once(built_as, factory, call)
        with self._guard:
            if self._built_entries.get(built_as) is entry:  # else another thread has discarded it meanwhile
                self._entries_by_call[call] = entry
        return entry

    def _build_once(
        self, identity: tuple[KernelType, Hashable], factory: Callable[[], object], call: CallT
    ) -> InterfaceT:
        with self._guard:
            building = self._builds.setdefault(identity, threading.Lock())
        with building:
            entry = self._built_entries.get(identity)
            if entry is None:
                with _current(call.device):
                    entry = cast("InterfaceT", factory())
                tuned = self._tuned
                if tuned:
                    self._tune(identity[1], entry)
                with self._guard:
                    self._built_entries[identity] = entry
                if self._tuned and not tuned:  # asked for while the entry was being built
                    self._tune(identity[1], entry)
                if self._on_build is not None:
                    self._on_build(entry)
        return entry

    def _tune(self, identity: Hashable, entry: InterfaceT) -> None:
        if isinstance(entry, Kernel):
            with _current(entry.call.device):
                tune(entry, identity)

    def _check(self, call: CallT) -> None:
        if type(call) is not self.key.request:
            raise CallSpecError(
                f"{self._owner}: expected a call spec of type {self.key.request.__name__}, received {call!r}; "
                f"state the call as {self.key.request.__name__}(...)"
            )
        try:
            hash(call)
        except TypeError:
            raise self._cannot_key(call) from None

    def _cannot_key(self, call: CallT) -> CallSpecError:
        return CallSpecError(
            f"{self._owner}: expected a call spec whose every field can key a cache, received {call!r}; "
            "use numbers, strings, dtypes and tuples"
        )


def _with_device(call: CallT) -> CallT:
    if call.device is not None:
        return call
    device = current_accelerator_device()
    return call if device is None else replace(call, device=device)


def _with_facts(call: CallT) -> CallT:
    if call.facts is not None or call.device is None:
        return call
    return replace(call, facts=device_facts(call.device))


def _current(device: torch.device | None) -> AbstractContextManager[object]:
    """Makes `device` current while an entry is built; a device of another kind than the accelerator is left alone."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device is None or accelerator is None or accelerator.type != device.type:
        return nullcontext()
    return torch.accelerator.device_index(device.index)


_TABLES: WeakSet[KernelTable[Any, Any]] = WeakSet()
"""Every table, so that a forked child can free the locks that threads of its parent held."""


def _after_fork() -> None:
    for table in tuple(_TABLES):
        table.forget_unfinished()


os.register_at_fork(after_in_child=_after_fork)
