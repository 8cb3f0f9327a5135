"""Timing several functions in one run, A B C C B A: on a CUDA device by CUPTI, on the host by a monotonic clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from tileops_testing.bench.flush import CacheFlush
from tileops_testing.errors import KitError

__all__ = [
    "DeviceActivity",
    "DeviceTimer",
    "HostTimer",
    "Timer",
    "Timing",
    "palindrome",
    "seconds_per_call",
    "timer_for",
]

Function = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """The samples of one function, and the time that stands for them, all in seconds."""

    seconds: float
    samples: tuple[float, ...]

    @property
    def spread(self) -> float:
        """How far the two halves of the run (A B C and C B A) disagree, as a share of the time: noise below that."""
        half = len(self.samples) // 2
        if half == 0:
            return 0.0
        first, second = statistics.median(self.samples[:half]), statistics.median(self.samples[half:])
        return abs(first - second) / self.seconds


class Timer(Protocol):
    """Times functions side by side."""

    def time(self, functions: Mapping[str, Function]) -> dict[str, Timing]:
        """Return each function's time; all are warm when they are first timed."""


def timer_for(device: torch.device) -> Timer:
    """Return the timer of a device: CUPTI on CUDA, a clock elsewhere."""
    return DeviceTimer(device) if device.type == "cuda" else HostTimer()


def palindrome(names: list[str]) -> list[str]:
    """Return the names forwards and then backwards, so that a drift of the clock rate falls on all alike."""
    return [*names, *reversed(names)]


@dataclass(frozen=True)
class HostTimer:
    """Times functions that have finished when they return; the best sample stands for a function.

    Attributes:
        sample_seconds: A sample repeats the function until it lasts this long.
        samples: Taken in each of the two passes.
    """

    sample_seconds: float = 5e-3
    samples: int = 5

    def time(self, functions: Mapping[str, Function]) -> dict[str, Timing]:
        """Return each function's best time per call."""
        repeats = {name: self._repeats(function) for name, function in functions.items()}
        taken: dict[str, list[float]] = {name: [] for name in functions}
        for name in palindrome(list(functions)):
            for _ in range(self.samples):
                taken[name].append(_per_call(functions[name], repeats[name]))
        return {name: Timing(min(samples), tuple(samples)) for name, samples in taken.items()}

    def _repeats(self, function: Function) -> int:
        function()
        once = min(_per_call(function, 1) for _ in range(3))
        return max(1, round(self.sample_seconds / max(once, 1e-9)))


def _per_call(function: Function, repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - started) / repeats


class DeviceActivity(NamedTuple):
    """Something that the device ran: its name, when it started, and how many seconds it took."""

    name: str
    start: float
    seconds: float


def seconds_per_call(ran: Sequence[DeviceActivity], flush_names: frozenset[str]) -> list[float]:
    """Return the device time of each call: what ran between one flush and the next, the flush itself left out."""
    samples: list[float] = []
    for activity in ran:
        if activity.name in flush_names:
            samples.append(0.0)
        elif samples:
            samples[-1] += activity.seconds
    return samples


class DeviceTimer:
    """Times what functions run on a CUDA device, by CUPTI, after `CacheFlush` before each call.

    The median over calls stands for a function. What the flush itself runs is left out by the names of its kernels.
    """

    def __init__(self, device: torch.device, *, calls: int = 20, warm_calls: int = 3) -> None:
        self._device = device
        self._calls, self._warm_calls = calls, warm_calls
        self._flush = CacheFlush(device)
        self._trace(self._flush, 1)
        self._flush_names = frozenset(activity.name for activity in self._trace(self._flush, 3))
        if not self._flush_names:
            raise KitError("CUPTI reports no kernel: expected the profiler to have access to the device's counters")

    def time(self, functions: Mapping[str, Function]) -> dict[str, Timing]:
        """Return each function's median device time per call."""
        for function in functions.values():
            for _ in range(self._warm_calls):
                function()
        taken: dict[str, list[float]] = {name: [] for name in functions}
        for name in palindrome(list(functions)):
            taken[name] += self._samples(name, functions[name])
        return {name: Timing(statistics.median(samples), tuple(samples)) for name, samples in taken.items()}

    def _samples(self, name: str, function: Function) -> list[float]:
        def flush_and_call() -> None:
            self._flush()
            function()

        samples = seconds_per_call(self._trace(flush_and_call, self._calls), self._flush_names)
        if len(samples) != self._calls or 0.0 in samples:
            raise KitError(
                f"{name}: expected {self._calls} calls with device work between flushes, CUPTI reports {len(samples)}, "
                f"of which {samples.count(0.0)} are empty; does it run on {self._device}?"
            )
        return samples

    def _trace(self, function: Function, calls: int) -> list[DeviceActivity]:
        """Run ``function`` and return everything the device ran, in order."""
        torch.cuda.synchronize(self._device)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(calls):
                function()
            torch.cuda.synchronize(self._device)
        ran = [
            DeviceActivity(event.name, event.time_range.start, event.time_range.elapsed_us() * 1e-6)
            for event in profiler.events() or ()
            if event.device_type == DeviceType.CUDA
        ]
        return sorted(ran, key=lambda activity: activity.start)
