"""Norms of rows in registers that have a program of their own for short rows in half precision."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from tileops_kernels.build.program import Program
from tileops_kernels.norm.interfaces import LayerNormCall
from tileops_kernels.norm.rows import DTYPES, WARP, OnChipSettings, lanes_of, vector_width, weight_dtypes
from tileops_kernels.norm.spread import SpreadRows


@dataclass(frozen=True, slots=True)
class ShortSettings(OnChipSettings):
    """Launch settings of short rows: see the builder `short_rows`."""

    each: int
    late: bool


class ShortRows(SpreadRows):
    """The whole row in registers; short rows in half precision have few threads, which share what scales them."""

    centered: ClassVar[bool]
    """Whether a mean is subtracted."""

    @classmethod
    def _choose(cls, call: LayerNormCall) -> OnChipSettings:
        return short_settings(call, centered=cls.centered) or super()._choose(call)

    def program(self, *passed: bool) -> Program:
        """The program of the signature in which each of `affine` is passed or not."""
        if not isinstance(self.settings, ShortSettings):
            return super().program(*passed)
        return Program.of(
            "tileops_kernels.norm.programs.short_rows",
            "short_rows",
            n=self._n,
            dtype=DTYPES[self.call.dtype],
            vector=vector_width(self.call),
            centered=self.centered,
            **dict(zip(self.affine, passed, strict=True)),
            **weight_dtypes(self.call),
            **asdict(self.settings),
        )


def short_settings(call: LayerNormCall, *, centered: bool) -> ShortSettings | None:
    """The settings of half-precision rows of up to a warp's accesses of 16 bytes, None for others.

    Up to half of that a thread has one access, and a block 256 threads. Beyond, it has two of each of two rows, whose
    sums it forms beside each other; weights beside a mean are read late, for its registers (docs/performance/norms.md).
    """
    vectors = call.n // vector_width(call)
    if call.dtype.itemsize > 2 or vectors > WARP:
        return None
    if vectors <= WARP // 2:
        lanes = lanes_of(vectors)
        return ShortSettings(lanes=lanes, rows=256 // lanes, blocks=1, each=1, late=False)
    return ShortSettings(lanes=WARP // 2, rows=8 if centered else 16, blocks=1, each=2, late=centered)
