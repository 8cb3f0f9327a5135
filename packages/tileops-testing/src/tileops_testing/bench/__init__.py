"""Benchmarks: every implementation is checked against the reference, then all are timed in one run."""

from __future__ import annotations

from tileops_testing.bench.comparing import Comparison, compare_files
from tileops_testing.bench.overhead import Overhead, measure_overhead
from tileops_testing.bench.report import BenchResult, Measurement
from tileops_testing.bench.runner import Runner
from tileops_testing.bench.timing import DeviceTimer, HostTimer, Timer, Timing, timer_for

__all__ = [
    "BenchResult",
    "Comparison",
    "DeviceTimer",
    "HostTimer",
    "Measurement",
    "Overhead",
    "Runner",
    "Timer",
    "Timing",
    "compare_files",
    "measure_overhead",
    "timer_for",
]
