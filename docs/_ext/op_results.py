"""What the suites and the benchmark found, from the results that are committed under docs/data."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUITES = {"eager": "eager", "compile_contract": "compiled", "cuda_graph": "CUDA graph"}
UNNAMED = "of the row"
"""The dtype of a case whose name has none: its row says it."""
DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
    *("uint8", "int8", "int16", "int32", "int64", "bool"),
    UNNAMED,
)


@dataclass(frozen=True)
class Support:
    """The support matrix of an op: dtype and device against the ways to call it."""

    introduction: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Times:
    """Measured times of an op's cases: further columns of its table of workloads."""

    introduction: str = ""
    headings: Sequence[str] = ()
    by_case: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, case: str) -> Sequence[str]:
        """Return the columns of one case."""
        return self.by_case.get(case, [""] * len(self.headings))


def support_of(name: str, data: Path) -> Support | None:
    """Return the support matrix of an op, or None when no result of it is committed."""
    counts: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: {suite: [0, 0] for suite in SUITES})
    taken = []
    for results in _results(data):
        rows = [row for row in results.get("rows", ()) if row.get("op") == name]
        if results.get("suite") not in SUITES or not rows:
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
    rows = [
        [dtype, device, *(_outcome(suite, device, *found[suite]) for suite in SUITES)]
        for (dtype, device), found in ordered
    ]
    return Support(
        "Cases that passed, of those that were run. " + " ".join(dict.fromkeys(taken)),
        ["dtype", "device", *SUITES.values()],
        rows,
    )


def times_of(name: str, data: Path) -> Times:
    """Return the measured times of an op's cases, those on CUDA where there are any; empty when none are committed."""
    runs = [results for results in _results(data) if _measured(name, results)]
    if not runs:
        return Times()
    taken = min(runs, key=lambda results: not str(results["device"]).startswith("cuda"))
    by_case = {}
    for result in _measured(name, taken):
        own = next(found for found in result["measurements"] if found["name"] == "tileops")
        share, ratio = own["share_of_copy"], own["ratio_to_best_peer"]
        compared = "" if ratio is None else f"{ratio:.2f}"
        by_case[result["case"]] = [f"{own['seconds'] * 1e6:.1f}", _bar(share), compared]
    return Times(
        "Time per call; its rate against that of a copy of as many bytes; its time over that of the fastest peer. "
        + _circumstances(taken),
        ["µs", "of copy", "to best peer"],
        by_case,
    )


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
    own = next(found for found in result["measurements"] if found["name"] == "tileops")
    peers = [found for found in result["measurements"] if found["name"] not in {"tileops", "copy"}]
    best = min(peers, key=lambda found: float(found["seconds"]), default=None)
    megabytes = result["traffic_bytes"] / 1e6
    row = [result["op"], result["case"], f"{megabytes:.1f}" if megabytes >= 1 else f"{megabytes:.2g}"]
    row += [f"{own['seconds'] * 1e6:.1f}", f"{own['share_of_copy']:.2f}"]
    if best is None:
        return [*row, "", "", ""]
    return [*row, best["name"], f"{best['seconds'] * 1e6:.1f}", f"{own['seconds'] / best['seconds']:.2f}"]


def _results(data: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(data.glob("*.json")):
        yield json.loads(path.read_text())


def _measured(name: str, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the timed cases of an op in one file of results."""
    return [result for result in results.get("results", ()) if result["op"] == name and "measurements" in result]


def _bar(share: float) -> str:
    """Return a number with a bar of its length, 1 being full."""
    width = round(100 * min(share, 1.0))
    return f'<span class="bar"><span style="width: {width}%"></span></span> {share:.2f}'


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
