"""Tuning: measuring the launch settings that a kernel type offers, and remembering the best on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tileops_kernels.build.cache import CacheFolder, cache_folder
from tileops_kernels.devices import device_name
from tileops_kernels.errors import BuildError
from tileops_kernels.kernel import Kernel

SUBFOLDER = "tuned"
_LOG = logging.getLogger(__name__)
"""Tuning takes minutes: at level INFO it says which configuration it builds, and what each one takes."""
_RUNS = 20
"""Timed runs of a configuration; the best counts, since noise only adds time."""

Measure = Callable[[Callable[[], object], torch.device], float]
"""Seconds that one run of a function takes on a device."""


def tune(
    kernel: Kernel[Any],
    identity: Hashable,
    *,
    folder: Callable[[], CacheFolder] = cache_folder,
    measure: Measure | None = None,
) -> int | None:
    """Give `kernel` the fastest of the configurations that its type offers, and return that one's place.

    A choice made before, by any process, for the same kernel type, identity, device model and package version is taken
    as it is. A configuration that does not build is passed over. None, and the kernel is left as it is, for a kernel
    type that offers no configurations, and where nothing is remembered while a CUDA graph is being captured, which
    must not be timed. Raises the last BuildError when no configuration builds.
    """
    configs = kernel.autotune_configs(kernel.call)
    if not configs:
        return None
    path = folder().folder(SUBFOLDER) / f"{_key(kernel, identity, configs)}.json"
    chosen = _remembered(path, len(configs))
    if chosen is None:
        if _capturing(kernel.call.device):
            return None
        chosen = _fastest(kernel, configs, measure or seconds_per_run)
        _remember(path, chosen)
    kernel.configure(configs[chosen])
    return chosen


def _capturing(device: torch.device | None) -> bool:
    return device is not None and device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def seconds_per_run(run: Callable[[], object], device: torch.device) -> float:
    """The best of several runs: device time from events on CUDA, wall time on a CPU."""
    run()
    if device.type != "cuda":
        return min(_wall(run) for _ in range(_RUNS))
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(_RUNS)]
    for before, after in pairs:
        before.record()
        run()
        after.record()
    torch.cuda.synchronize(device)
    return float(min(before.elapsed_time(after) for before, after in pairs)) / 1e3


def _wall(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _fastest(kernel: Kernel[Any], configs: Sequence[object], measure: Measure) -> int:
    device = kernel.call.device
    run = kernel.trial()
    times: dict[int, float] = {}
    failure: BuildError | None = None
    for place, config in enumerate(configs):
        progress = type(kernel).__name__, place + 1, len(configs), config
        _LOG.info("tuning %s: building configuration %d of %d: %s", *progress)
        try:
            kernel.configure(config)
            times[place] = measure(run, device)
        except BuildError as error:
            failure = error
            _LOG.info("tuning %s: configuration %d of %d, %s, does not build", *progress)
        else:
            _LOG.info("tuning %s: configuration %d of %d, %s, takes %.1f us", *progress, times[place] * 1e6)
    if not times and failure is not None:
        raise failure
    return min(times, key=times.__getitem__)


def _key(kernel: Kernel[Any], identity: Hashable, configs: Sequence[object]) -> str:
    kind = type(kernel)
    facts = {
        "kernel": f"{kind.__module__}.{kind.__qualname__}",
        "identity": repr(identity),
        "device": device_name(kernel.call.device),
        "version": version("tileops-kernels"),
        "configs": [repr(config) for config in configs],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _remembered(path: Path, count: int) -> int | None:
    """The stored choice; None when there is none, or when the file is damaged."""
    try:
        chosen = json.loads(path.read_text(encoding="utf-8"))["chosen"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return chosen if type(chosen) is int and 0 <= chosen < count else None


def _remember(path: Path, chosen: int) -> None:
    """Write the choice for later processes; where the folder cannot be written, only this process has it."""
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(prefix=".tuned-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"chosen": chosen}, file)
        Path(name).replace(path)
