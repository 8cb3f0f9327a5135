"""Reading files of results: every value is checked, and a wrong one is named with its place in the file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileops_testing.bench.report import COPY_NAME, OWN_NAME, BenchResult
from tileops_testing.errors import ResultsError

__all__ = ["TimedResults", "read_object", "read_times"]

_SHOWN = 60
"""Characters of a wrong value that an error shows."""


@dataclass(frozen=True, slots=True)
class TimedResults:
    """What a file of times says: the device that they were taken on, and a result per case, named by op and label."""

    device: str
    by_case: Mapping[str, BenchResult]


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a value must be, in words and as a check."""

    expected: str
    holds: Callable[[object], bool]


def _is_number(value: object) -> bool:
    """Whether a value is a number that float holds, NaN and infinities aside."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _number_from(value: object, least: float) -> bool:
    return isinstance(value, (int, float)) and _is_number(value) and value >= least


_TRUTH = _Rule("true or false", lambda value: isinstance(value, bool))
_TEXT = _Rule("a text of one line", lambda value: isinstance(value, str) and value.isprintable())
_NAME = _Rule("a name", lambda value: isinstance(value, str) and value != "" and value.isprintable())
_SECONDS = _Rule("a finite number above 0", lambda value: _number_from(value, 0) and value != 0)
_AMOUNT = _Rule("a finite number of at least 0", lambda value: _number_from(value, 0))
_RATIO = _Rule("null or a finite number above 0", lambda value: value is None or _SECONDS.holds(value))
_COUNT = _Rule("an integer of at least 0", lambda value: _number_from(value, 0) and isinstance(value, int))
_THREADS = _Rule("an integer of at least 1", lambda value: _number_from(value, 1) and isinstance(value, int))

_RESULT = {"op": _NAME, "case": _NAME, "device": _NAME, "threads": _THREADS, "traffic_bytes": _COUNT, "load": _AMOUNT}
_LATER = {"flops": _COUNT, "product_rate": _AMOUNT}
"""Fields that results of before they were kept lack; those of a measurement stand below."""

_MEASUREMENT = {
    "name": _NAME,
    "seconds": _SECONDS,
    "spread": _AMOUNT,
    "bytes_per_second": _AMOUNT,
    "share_of_copy": _AMOUNT,
    "ratio_to_best_peer": _RATIO,
    "worst_error": _TEXT,
}
_LATER_MEASUREMENT = {"agrees": _TRUTH}


def read_object(path: Path, command: str) -> dict[str, Any]:
    """Return the JSON object in a file of results that `command` reads.

    Raises:
        ResultsError: The file cannot be read, or holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(
            f"{command}: {path}: expected a file of results, received {type(error).__name__}: {error}; name one that "
            "the benchmark wrote"
        ) from None
    if not isinstance(found, dict):
        raise ResultsError(
            f"{command}: {path}: expected an object with results, received {_shown(found)}; name one that the "
            "benchmark wrote"
        )
    return found


def read_times(path: Path, command: str) -> TimedResults:
    """Return the times of calls in a file that ``python -m tileops_testing.bench`` wrote.

    Raises:
        ResultsError: The file cannot be read, holds no times, or a value in it cannot be one that was measured.
    """
    reader = _Reader(path, command)
    found = read_object(path, command)
    results = reader.objects("", found, "results") if "results" in found else ()
    if not any("measurements" in result for result in results):
        raise ResultsError(
            f"{command}: {path}: expected times of calls, received none; name a file that the benchmark wrote without "
            "--overhead and --builds"
        )
    facts = reader.fields("", found, {"device_name": _NAME, "device": _NAME})
    by_case: dict[str, BenchResult] = {}
    for number, result in enumerate(results):
        read = reader.result(f"results[{number}]", result)
        name = f"{read.op}-{read.case}"
        if name in by_case:
            raise reader.wrong(f"results[{number}]", "one result of each case", f"a second one of {name}")
        by_case[name] = read
    return TimedResults(f"{facts['device_name']} ({facts['device'].partition(':')[0]})", by_case)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the parts of one file; its errors name the file and the place."""

    path: Path
    command: str

    def wrong(self, place: str, expected: str, received: str) -> ResultsError:
        """Return the error of a place."""
        within = "[" in place
        mend = "measure again, or take the result out of the file" if within else "name one that the benchmark wrote"
        return ResultsError(f"{self.command}: {self.path}: {place}: expected {expected}, received {received}; {mend}")

    def objects(self, place: str, found: Mapping[str, object], name: str) -> Sequence[Mapping[str, object]]:
        """Return a field that is a list of objects."""
        held = found.get(name)
        if not isinstance(held, list):
            raise self.wrong(_joined(place, name), "a list", _shown(held) if name in found else "nothing")
        for number, each in enumerate(held):
            if not isinstance(each, dict):
                raise self.wrong(f"{_joined(place, name)}[{number}]", "an object", _shown(each))
        return held

    def fields(self, place: str, found: Mapping[str, object], rules: Mapping[str, _Rule]) -> dict[str, Any]:
        """Return the fields that `rules` name, each as its rule says."""
        for name, rule in rules.items():
            if name not in found:
                raise self.wrong(_joined(place, name), rule.expected, "nothing")
            if not rule.holds(found[name]):
                raise self.wrong(_joined(place, name), rule.expected, _shown(found[name]))
        return {name: found[name] for name in rules}

    def result(self, place: str, found: Mapping[str, object]) -> BenchResult:
        """Return one result, in which the op and the copy were timed."""
        read = self.fields(place, found, _RESULT | _held(found, _LATER))
        measured = [
            self.fields(f"{place}.measurements[{number}]", each, _MEASUREMENT | _held(each, _LATER_MEASUREMENT))
            for number, each in enumerate(self.objects(place, found, "measurements"))
        ]
        names = [each["name"] for each in measured]
        if len(set(names)) < len(names) or not {OWN_NAME, COPY_NAME} <= set(names):
            received = ", ".join(names) or "none"
            raise self.wrong(f"{place}.measurements", f"{OWN_NAME} and {COPY_NAME}, each name once", received)
        return BenchResult.from_dict({**read, "measurements": measured})


def _held(found: Mapping[str, object], rules: Mapping[str, _Rule]) -> dict[str, _Rule]:
    return {name: rule for name, rule in rules.items() if name in found}


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _shown(value: object) -> str:
    """A value as JSON writes it, on one line and cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
