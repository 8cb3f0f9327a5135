"""What a benchmark found, as JSON and as a table."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["BenchResult", "Measurement"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One implementation's time on one case, and what it says.

    Attributes:
        name: ``tileops`` for the op itself, else the peer's name; ``copy`` is a copy of as many bytes.
        seconds: Per call.
        spread: How far the two passes of the run disagree, as a share of ``seconds``.
        bytes_per_second: The bytes that the op must move, over ``seconds``.
        share_of_copy: That rate over the copy's in the same run.
        ratio_to_best_peer: ``seconds`` over the fastest peer's; below 1 is faster. None for a peer or without peers.
        worst_error: The comparison with the reference, in words.
    """

    name: str
    seconds: float
    spread: float
    bytes_per_second: float
    share_of_copy: float
    ratio_to_best_peer: float | None
    worst_error: str


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All implementations of one case, timed in one run."""

    op: str
    case: str
    device: str
    threads: int
    traffic_bytes: int
    measurements: tuple[Measurement, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> BenchResult:
        """Return the result that `to_dict` gave."""
        measurements = tuple(Measurement(**measurement) for measurement in found["measurements"])
        return cls(**{**found, "measurements": measurements})

    def __getitem__(self, name: str) -> Measurement:
        """Return the measurement of one implementation."""
        return next(measurement for measurement in self.measurements if measurement.name == name)

    def render(self, *, width: int = 120) -> str:
        """Return the table of the case: a line per implementation."""
        table = Table(title=f"{self.op} {self.case} on {self.device}, {self.threads} threads", title_justify="left")
        for heading in ("implementation", "us", "spread", "GB/s", "of copy", "to best peer", "against the reference"):
            table.add_column(heading)
        for found in self.measurements:
            ratio = found.ratio_to_best_peer
            table.add_row(
                found.name,
                f"{found.seconds * 1e6:.1f}",
                f"{found.spread:.1%}",
                f"{found.bytes_per_second / 1e9:.0f}",
                f"{found.share_of_copy:.2f}",
                "" if ratio is None else f"{ratio:.2f}",
                found.worst_error,
            )
        output = io.StringIO()
        Console(file=output, width=width, color_system=None).print(table)
        return output.getvalue()
