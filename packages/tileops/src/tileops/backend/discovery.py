"""Discovery: the entry points `tileops.backends`, loaded once, each as a whole or not at all."""

from __future__ import annotations

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
    that raises is undone as a whole, warned about once and listed by `registry.load_failures()`; the others load.
    """

    def __init__(
        self, registry: BackendRegistry, find: Callable[[], Iterable[EntryPoint]] = lambda: entry_points(group=GROUP)
    ) -> None:
        self._registry = registry
        self._find = find
        self._guard = threading.RLock()
        self._begun = False

    def load(self) -> BackendRegistry:
        """The registry with every backend loaded; a backend that constructs an op while it loads sees it as it is."""
        if not self._begun:
            with self._guard:
                if not self._begun:
                    self._begun = True
                    for point in sorted(self._find(), key=lambda point: point.name):
                        self._load(point)
        return self._registry

    def _load(self, point: EntryPoint) -> None:
        owner = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
        try:
            with self._registry.registering(owner):
                loaded = point.load()
                if point.attr:
                    loaded(self._registry)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises must not stop the others
            self._registry.note_failure(f"{point.name} ({owner})", error)
            warnings.warn(
                f"backend {point.name} of {owner} failed to load and was left out: {type(error).__name__}: {error}; "
                "mend or "
                "uninstall the distribution",
                BackendLoadWarning,
                stacklevel=2,
            )
