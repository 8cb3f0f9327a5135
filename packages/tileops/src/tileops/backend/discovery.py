"""Discovery: the entry points `tileops.backends`, loaded once, each as a whole or not at all."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points

from tileops.backend.registry import BackendRegistry
from tileops.errors import BackendLoadWarning

GROUP = "tileops.backends"


class Discovery:
    """Loads the installed backends into `registry` on the first request.

    An entry point names a module, whose import registers, or `module:function`, which is called with the registry. One
    that raises is undone as a whole, warned about once and listed by `registry.load_failures()`; the others load. A
    thread that asks while another loads waits for it.
    """

    def __init__(
        self, registry: BackendRegistry, find: Callable[[], Iterable[EntryPoint]] = lambda: entry_points(group=GROUP)
    ) -> None:
        self._registry = registry
        self._find = find
        self._guard = threading.RLock()
        self._waiting: list[EntryPoint] | None = None
        self._loading = False
        self._done = False

    def load(self) -> BackendRegistry:
        """The registry with every backend loaded; a backend that constructs an op while it loads sees it as it is.

        A backend whose module is still being imported, because that module constructs an op itself, is left for the
        next request.
        """
        if not self._done:
            with self._guard:
                if not (self._loading or self._done):
                    self._load_waiting()
        return self._registry

    def _load_waiting(self) -> None:
        self._loading = True
        try:
            if self._waiting is None:
                self._waiting = sorted(self._find(), key=lambda point: (point.name, point.value))
            ready = [point for point in self._waiting if not _being_imported(point.module)]
            for point in ready:
                self._waiting.remove(point)
                self._load(point)
            self._done = not self._waiting
        finally:
            self._loading = False

    def _load(self, point: EntryPoint) -> None:
        owner = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
        try:
            with self._registry.registering(owner):
                loaded = point.load()
                if point.attr:
                    loaded(self._registry)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises must not stop the others
            self._registry.note_failure(point.name, owner, error)
            warnings.warn(
                f"backend {point.name} of {owner} failed to load and was left out: {type(error).__name__}: "
                f"{' '.join(str(error).split())}; mend or uninstall the distribution",
                BackendLoadWarning,
                stacklevel=2,
            )


def _being_imported(module: str) -> bool:
    """Whether an import of `module` is under way, so that its names may not be there yet."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
