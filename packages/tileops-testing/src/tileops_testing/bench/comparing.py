"""Comparing two files of results: which cases became slower, beyond the spread that each was measured with."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileops_testing.bench.reading import read_times
from tileops_testing.bench.report import COPY_NAME, OWN_NAME, BenchResult
from tileops_testing.errors import ResultsError

__all__ = ["THRESHOLD", "Change", "Comparison", "Outcome", "compare_files", "main"]

THRESHOLD = 0.03
"""The share of its time that a case may become slower by, beyond the spreads of both runs."""

Outcome = Literal["slower", "same", "faster"]


@dataclass(frozen=True, slots=True)
class Change:
    """One case in both files.

    Attributes:
        case: The op class and the case's label.
        before: Seconds per call in the first file.
        after: Seconds per call in the second.
        spread: What the passes of the first run disagreed by, and those of the second, as shares, added.
        copy: The time of a copy of as many bytes in the second run over that in the first: whether the machine itself
            became slower.
    """

    case: str
    before: float
    after: float
    spread: float
    copy: float

    @property
    def ratio(self) -> float:
        """The second time over the first; above 1 is slower."""
        return self.after / self.before

    def outcome(self, threshold: float) -> Outcome:
        """Whether the times differ by more than the spread and the threshold together."""
        allowed = 1 + self.spread + threshold
        if self.ratio > allowed:
            return "slower"
        return "faster" if self.before > self.after * allowed else "same"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two files of results say of each other.

    Attributes:
        changes: The cases that both hold, the one that became slowest first.
        threshold: What a case may become slower by, beyond its spread.
        notes: Cases that cannot be compared, each with the reason.
    """

    changes: tuple[Change, ...]
    threshold: float
    notes: tuple[str, ...]

    @property
    def regressions(self) -> tuple[Change, ...]:
        """The cases that became slower."""
        return tuple(change for change in self.changes if change.outcome(self.threshold) == "slower")

    def table(self) -> Table:
        """Return a line per case."""
        shown = Table(box=None, pad_edge=False)
        for heading in ("case", "before, us", "after, us", "ratio", "spread", "copy", "outcome"):
            shown.add_column(heading, overflow="fold", justify="left" if heading in {"case", "outcome"} else "right")
        for change in self.changes:
            outcome = change.outcome(self.threshold)
            times = (f"{seconds * 1e6:.1f}" for seconds in (change.before, change.after))
            shares = f"{change.ratio:.2f}", f"{change.spread:.1%}", f"{change.copy:.2f}"
            style = {"slower": "bold red", "faster": "green", "same": ""}[outcome]
            shown.add_row(Text(change.case), *times, *shares, outcome, style=style)
        return shown

    def summary(self) -> str:
        """Return how many cases became slower, stayed and became faster."""
        outcomes = [change.outcome(self.threshold) for change in self.changes]
        counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in ("slower", "same", "faster"))
        return f"{counts}; slower means by more than {self.threshold:.1%} beyond the spread of both runs"


def compare_files(before: Path, after: Path, threshold: float = THRESHOLD) -> Comparison:
    """Return what became of the cases of one file in another, both written by ``python -m tileops_testing.bench``.

    Raises:
        ResultsError: A file cannot be read, holds no times or values that were not measured, or the two are of
            different devices; or the threshold is none.
    """
    if not (math.isfinite(threshold) and threshold >= 0):
        raise ResultsError(
            f"compare: threshold: expected a finite share of at least 0, received {threshold}; pass one such as "
            f"{THRESHOLD}"
        )
    earlier, later = read_times(before, "compare"), read_times(after, "compare")
    if earlier.device != later.device:
        raise ResultsError(
            f"compare: expected results of one device, received {earlier.device} and {later.device}; measure both on "
            "the same one"
        )
    first, second = earlier.by_case, later.by_case
    notes = [f"{case}: only in {before}" for case in first if case not in second]
    notes += [f"{case}: only in {after}" for case in second if case not in first]
    changes = []
    for case in (case for case in first if case in second):
        reason = _unfit(first[case], second[case])
        if reason:
            notes.append(f"{case}: not compared: {reason}")
        else:
            changes.append(_change(case, first[case], second[case]))
    return Comparison(tuple(sorted(changes, key=lambda change: -change.ratio)), threshold, tuple(notes))


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; return 1 when a case became slower, and 2 when there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="python -m tileops_testing.bench compare", description=__doc__)
    parser.add_argument("before", type=Path, help="the JSON file that was measured before")
    parser.add_argument("after", type=Path, help="the JSON file that was measured after")
    parser.add_argument(
        "--threshold",
        type=_share,
        default=THRESHOLD,
        metavar="SHARE",
        help=f"what a case may become slower by beyond its spread, {THRESHOLD} unless given",
    )
    chosen = parser.parse_args(arguments)
    try:
        found = compare_files(chosen.before, chosen.after, chosen.threshold)
    except ResultsError as error:
        Console(stderr=True, highlight=False).print(Text(str(error)), soft_wrap=True)
        return 2
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(found.table())
    for note in found.notes:
        console.print(Text(note), soft_wrap=True)
    console.print(Text(found.summary()), soft_wrap=True)
    if not found.changes:
        return 2
    return 1 if found.regressions else 0


def _share(text: str) -> float:
    """The number that a word of the command line is."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a finite share of at least 0, received {text}; pass one such as {THRESHOLD}"
        ) from None


def _unfit(first: BenchResult, second: BenchResult) -> str:
    """Return why two results of a case say nothing of each other, or nothing."""
    if first.is_shared or second.is_shared:
        return f"the machine was busy: {max(first.load, second.load):.1f} processes waited for each processor"
    if first.device.startswith("cpu") and first.threads != second.threads:
        return f"measured with {first.threads} and with {second.threads} threads"
    return ""


def _change(case: str, first: BenchResult, second: BenchResult) -> Change:
    before, after = first[OWN_NAME], second[OWN_NAME]
    copy = second[COPY_NAME].seconds / first[COPY_NAME].seconds
    return Change(case, before.seconds, after.seconds, before.spread + after.spread, copy)
