"""What a benchmark found, as JSON and as a table."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["COPY_NAME", "OWN_NAME", "BenchResult", "Measurement"]

OWN_NAME, COPY_NAME = "tileops", "copy"


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
        agrees: Whether the reference allows the results. A peer's that it does not are no measure, however fast.
    """

    name: str
    seconds: float
    spread: float
    bytes_per_second: float
    share_of_copy: float
    ratio_to_best_peer: float | None
    worst_error: str
    agrees: bool = True


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All implementations of one case, timed in one run.

    Attributes:
        op: The op class.
        case: The label of the case.
        device: Where it ran.
        threads: The host threads that torch used.
        traffic_bytes: What the op must move.
        load: How many processes waited for each of the host's processors while this ran; beyond one, host times are
            those of a shared machine, and no spread tells by how much.
        measurements: One per implementation.
        flops: The arithmetic that the op must do; 0 in results of before it was kept.
        product_rate: The FLOP/s that torch's product of large square matrices reached in the same run; 0 where the op
            does too little arithmetic for each byte to be bound by it, and it was not measured.
    """

    op: str
    case: str
    device: str
    threads: int
    traffic_bytes: int
    load: float
    measurements: tuple[Measurement, ...]
    flops: int = 0
    product_rate: float = 0.0

    @property
    def least_seconds(self) -> float:
        """The roofline of the case: what a copy of its bytes takes, or its arithmetic at the product's rate."""
        arithmetic = self.flops / self.product_rate if self.product_rate else 0.0
        return max(self[COPY_NAME].seconds, arithmetic)

    def share_of_roofline(self, name: str) -> float:
        """Return what share of the roofline an implementation reached in this run."""
        return self.least_seconds / self[name].seconds

    @property
    def is_shared(self) -> bool:
        """Whether others kept the host's processors busy, so that host times say little."""
        return self.device.startswith("cpu") and self.load > 1.0

    def is_noise(self, ratio: float, *names: str) -> bool:
        """Whether a ratio between implementations differs from one by no more than their own spread."""
        return abs(ratio - 1.0) <= max(self[name].spread for name in names)

    def best_peer(self) -> Measurement | None:
        """Return the fastest implementation that agrees, beside the op and the copy; None when there is none."""
        peers = [found for found in self.measurements if found.agrees and found.name not in (OWN_NAME, COPY_NAME)]
        return min(peers, key=lambda found: found.seconds, default=None)

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

    def _rate(self, found: Measurement) -> str:
        """The rate of what bounds the case: TFLOP/s where a product was measured beside, else GB/s."""
        if self.product_rate:
            return f"{self.flops / found.seconds / 1e12:.1f}"
        return f"{found.bytes_per_second / 1e9:.0f}"

    def render(self, *, width: int = 120) -> str:
        """Return the table of the case: a line per implementation."""
        table = Table(title=f"{self.op} {self.case} on {self.device}, {self.threads} threads", title_justify="left")
        bound = ("GB/s", "of copy") if not self.product_rate else ("TFLOP/s", "of roofline")
        for heading in ("implementation", "us", "spread", *bound, "to best peer", "against the reference"):
            table.add_column(heading)
        for found in self.measurements:
            ratio = found.ratio_to_best_peer
            peer = self.best_peer()
            noise = ratio is not None and peer is not None and self.is_noise(ratio, found.name, peer.name)
            table.add_row(
                found.name,
                f"{found.seconds * 1e6:.1f}",
                f"{found.spread:.1%}",
                self._rate(found),
                f"{self.share_of_roofline(found.name):.2f}",
                "" if ratio is None else f"{ratio:.2f}{' (noise)' if noise else ''}",
                found.worst_error,
            )
        output = io.StringIO()
        Console(file=output, width=width, color_system=None).print(table)
        if self.is_shared:
            output.write(
                f"NOT A MEASUREMENT: {self.load:.1f} processes waited for each processor; repeat on an idle machine\n"
            )
        return output.getvalue()
