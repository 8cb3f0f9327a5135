"""Norms of rows in registers that have a second program for few rows, with a thread for each access to a row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar

from tileops_kernels.build import cuda
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.norm.interfaces import LayerNormCall
from tileops_kernels.norm.rows import OnChipRows, vector_width

BLOCK_THREADS = 1024
"""The threads that a block may have."""

SPREAD_ROWS = 2
"""Rows for each multiprocessor up to which every access has a thread of its own."""

_OF_MANY_ROWS = frozenset({"rows", "blocks", "late"})
"""Launch settings that the program for few rows has no use for."""


class SpreadRows(OnChipRows):
    """The whole row in registers; few rows, which a device is not busy with, have a thread for each access.

    A row's bits are the same either way.
    """

    spread_module: ClassVar[str]
    """The module of the program for few rows."""

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self._few_rows = SPREAD_ROWS * call.sm_count if self._spreads() else 0
        self._by_rows: Loaded[tuple[bool, ...], tuple[cuda.CUDAFunction, cuda.CUDAFunction]] = Loaded(
            lambda passed: (self.load(passed), self._compiled(self.spread_program(*passed)))
        )

    def _spreads(self) -> bool:
        """Whether a thread has several accesses to the one row of its block, and a block room for a thread for each."""
        vectors, lanes = self._n // vector_width(self.call), self.settings.lanes
        return self.settings.rows == 1 and lanes < vectors and -(-vectors // lanes) * lanes <= BLOCK_THREADS

    def programs(self) -> Sequence[Program]:
        """For each signature the program for many rows, and after them those for few."""
        few = itertools.product((True, False), repeat=len(self.affine)) if self._few_rows else ()
        return [*super().programs(), *(self.spread_program(*passed) for passed in few)]

    def spread_program(self, *passed: bool) -> Program:
        """The program that has a thread for each access, where each of `affine` is passed or not."""
        given = dict(self.program(*passed).arguments)
        kept = {name: value for name, value in given.items() if name not in _OF_MANY_ROWS}
        return Program.of(f"tileops_kernels.norm.programs.{self.spread_module}", f"{self.stem}_spread", **kept)

    def load_for(self, passed: tuple[bool, ...], rows: int) -> cuda.CUDAFunction:
        """The program of a signature for so many rows; both are built by its first call."""
        if not self._few_rows:
            return self.load(passed)
        return self._by_rows[passed][rows <= self._few_rows]
