"""What the suites and the benchmark found, from the results that are committed under docs/data."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUITES = {"eager": "eager", "compile_contract": "compiled", "cuda_graph": "CUDA graph"}
UNNAMED = "of the row"
"""The dtype of a case whose name has none: its row says it."""
DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
    *("uint8", "int8", "int16", "int32", "int64", "bool", "complex64", "complex128"),
    UNNAMED,
)
OWN_NAME, COPY_NAME = "tileops", "copy"


@dataclass(frozen=True)
class Support:
    """The support matrix of an op: dtype and device against the ways to call it."""

    introduction: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    on_cuda: bool


@dataclass(frozen=True)
class Timed:
    """One case as it was timed: the op, a copy of as many bytes and the fastest peer, in seconds.

    `arithmetic` is what its arithmetic takes at the rate of torch's product in the same run, 0 where none was timed.
    """

    case: str
    seconds: float
    copy: float
    arithmetic: float
    peer: str
    peer_seconds: float | None


@dataclass(frozen=True)
class Times:
    """The timed cases of an op on one device."""

    device: str
    device_name: str
    circumstances: str
    cases: tuple[Timed, ...]


def support_of(name: str, data: Path) -> Support | None:
    """Return the support matrix of an op, or None when no result of it is committed."""
    counts: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: {suite: [0, 0] for suite in SUITES})
    taken = []
    for results in _results(data):
        rows = _rows(name, results)
        if not rows:
            continue
        taken.append(_circumstances(results))
        for row in rows:
            if row["outcome"] != "not run":
                count = counts[(_dtype(row["case"]), _device(results))][results["suite"]]
                count[0] += row["outcome"] == "passed"
                count[1] += 1
    if not counts:
        return None
    ordered = sorted(counts.items(), key=lambda item: (item[0][1], DTYPES.index(item[0][0])))
    shown = [
        [dtype, device, *(_outcome(suite, device, *found[suite]) for suite in SUITES)]
        for (dtype, device), found in ordered
    ]
    return Support(
        "Cases that passed, of those that were run. " + " ".join(dict.fromkeys(taken)),
        ["dtype", "device", *SUITES.values()],
        shown,
        any(device.endswith("(CUDA)") for _, device in counts),
    )


def tested_on(name: str, data: Path) -> list[str]:
    """Return the devices on which cases of an op were run, by name."""
    found = {
        results["device_name"] if str(results["device"]).startswith("cuda") else str(results["device"]).upper()
        for results in _results(data)
        if any(row["outcome"] != "not run" for row in _rows(name, results))
    }
    return sorted(found)


def times_of(name: str, data: Path) -> list[Times]:
    """Return the measured times of an op, on CUDA first; of several files for one device, that with the most cases."""
    by_device: dict[str, Times] = {}
    for results in _results(data):
        measured = _measured(name, results)
        if not measured:
            continue
        device = _device(results)
        if device not in by_device or len(measured) > len(by_device[device].cases):
            cases = tuple(_timed(found) for found in measured)
            by_device[device] = Times(device, str(results["device_name"]), _circumstances(results), cases)
    return sorted(by_device.values(), key=lambda times: not times.device.endswith("(CUDA)"))


def _timed(result: Mapping[str, Any]) -> Timed:
    measurements = result["measurements"]
    rate = result.get("product_rate", 0.0)
    own, best = _own_and_best(measurements)
    return Timed(
        result["case"],
        own["seconds"],
        own["seconds"] * own["share_of_copy"],
        result["flops"] / rate if rate else 0.0,
        "" if best is None else best["name"],
        None if best is None else best["seconds"],
    )


def _own_and_best(measurements: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Return what the op took, and the fastest peer whose results the reference allows."""
    own = next(found for found in measurements if found["name"] == OWN_NAME)
    peers = [
        found for found in measurements if found.get("agrees", True) and found["name"] not in {OWN_NAME, COPY_NAME}
    ]
    return own, min(peers, key=lambda found: float(found["seconds"]), default=None)


@dataclass(frozen=True)
class Run:
    """The times that one file of results holds of some ops: where they were taken, and a row per case."""

    circumstances: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def runs_of(names: Sequence[str], data: Path) -> list[Run]:
    """Return what was measured of these ops, a run for each device and commit, those on CUDA first."""
    rows: dict[tuple[bool, str], list[list[str]]] = defaultdict(list)
    for results in _results(data):
        for name in names:
            found = [_times(result) for result in _measured(name, results)]
            if found:
                rows[not str(results["device"]).startswith("cuda"), _circumstances(results)] += found
    headings = ["op", "case", "MB", "µs", "of copy", "best peer", "its µs", "to best peer"]
    return [Run(circumstances, headings, sorted(found)) for (_, circumstances), found in sorted(rows.items())]


def _times(result: Mapping[str, Any]) -> list[str]:
    """Return the row of one case: the op's time, and that of the fastest peer."""
    own, best = _own_and_best(result["measurements"])
    megabytes = result["traffic_bytes"] / 1e6
    row = [result["op"], result["case"], f"{megabytes:.1f}" if megabytes >= 1 else f"{megabytes:.2g}"]
    row += [f"{own['seconds'] * 1e6:.1f}", f"{own['share_of_copy']:.2f}"]
    if best is None:
        return [*row, "", "", ""]
    return [*row, best["name"], f"{best['seconds'] * 1e6:.1f}", f"{own['seconds'] / best['seconds']:.2f}"]


def _results(data: Path) -> Iterator[Mapping[str, Any]]:
    for path in sorted(data.glob("*.json")):
        yield _read(path, path.stat().st_mtime_ns)


@functools.cache
def _read(path: Path, _: int) -> Mapping[str, Any]:
    """Return the content of a file, read once for each time that it was written."""
    content: Mapping[str, Any] = json.loads(path.read_text())
    return content


def _measured(name: str, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the timed cases of an op in one file of results."""
    return [result for result in results.get("results", ()) if result["op"] == name and "measurements" in result]


def _rows(name: str, results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a suite found of an op; nothing where the file is not a suite's."""
    return [row for row in results.get("rows", ()) if row.get("op") == name] if results.get("suite") in SUITES else []


def _outcome(suite: str, device: str, passed: int, run: int) -> str:
    if suite == "cuda_graph" and device == "CPU":
        return "needs CUDA"
    return f"{passed} of {run}" if run else "not run"


def _device(results: Mapping[str, Any]) -> str:
    kind = str(results["device"]).partition(":")[0]
    return f"{results['device_name']} (CUDA)" if kind == "cuda" else kind.upper()


def _dtype(case: str) -> str:
    return next((dtype for dtype in DTYPES if case.endswith(f"-{dtype}")), UNNAMED)


def _circumstances(results: Mapping[str, Any]) -> str:
    torch = results["versions"]["torch"]
    return f"Taken on {_device(results)} with torch {torch} at commit `{str(results['commit'])[:12]}`."
