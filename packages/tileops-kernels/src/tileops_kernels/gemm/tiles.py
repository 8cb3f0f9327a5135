"""Tiles of matrix products on Hopper: which are offered, and which of them is predicted to take least time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tileops_kernels.gemm.interfaces import GemmCall
from tileops_kernels.products import ProductSettings

SWIZZLED = 64
"""Elements of a swizzled row: of an operand stored by rows or columns a tile has a multiple of as many."""

FEWEST_STEPS = 4
"""Steps that each part of a tile has at least."""

MULTIPLIED = 3.2e6
"""Products of two elements that a multiprocessor sums in a microsecond: 845 TFLOP/s on 132 of them."""

NARROW = 0.97
"""What of that is left where an instruction has fewer than 256 columns."""

FETCHED = 99e3
"""Bytes that a multiprocessor fetches in a microsecond: 13 TB/s on 132 of them, from the L2 cache."""

WAIT = 0.05
"""Microseconds of a step that is bound by its fetch, beside the bytes."""

WRITTEN = 16e3
"""Elements of a tile that are written in a microsecond, while nothing is multiplied."""

ADDED = 0.26e6
"""Elements of parts that are written, read and added in a microsecond."""

LAUNCH = 2.0
"""Microseconds from a launch until its first tile is fetched."""

BAND_TERMS = 2048
"""Terms up to which 32 row tiles stay in the L2 cache, 17 MB, while all columns pass by; a band of more terms has 8."""


@dataclass(frozen=True, slots=True)
class HopperSettings(ProductSettings):
    """Launch settings on Hopper; `band` row tiles run beside one another for each tile of columns."""

    band: int = 8

    def count(self, m: int, n: int) -> int:
        """The tiles of an m x n result."""
        return -(-m // self.rows) * -(-n // self.columns)


WHOLE = (
    HopperSettings(128, 256, depth=64, stages=4, threads=256),
    HopperSettings(192, 176, depth=64, stages=3, threads=384),
    HopperSettings(128, 192, depth=64, stages=4, threads=256),
    HopperSettings(128, 128, depth=64, stages=6, threads=256),
    HopperSettings(64, 128, depth=128, stages=4, threads=128),
    HopperSettings(128, 64, depth=64, stages=6, threads=256),
    HopperSettings(64, 64, depth=64, stages=8, threads=128),
)
"""Tiles whose terms one block has."""

DIVIDED = (
    ProductSettings(64, 128, depth=64, stages=4, threads=128),
    ProductSettings(128, 128, depth=64, stages=4, threads=256),
)
"""Tiles whose terms some blocks divide."""


def parts_of(tiles: int, steps: int, blocks: int) -> tuple[int, int]:
    """Into how many parts the `steps` of each tile are divided, and how many each has: `blocks` in all, 4 at least."""
    each = max(-(-steps // max(blocks // tiles, 1)), min(steps, FEWEST_STEPS))
    return -(-steps // each), each


def serves(call: GemmCall, tile: ProductSettings) -> bool:
    """Whether a tile has the rows of a call of up to 128, and whole swizzled rows of what is stored by its extents.

    Weights of few rows are then read once: a product of 128 rows with 7168 x 2048 took 14.4 us of 128 x 64 tiles.
    """
    whole = (tile.rows % SWIZZLED == 0 or not call.trans_a) and (tile.columns % SWIZZLED == 0 or call.trans_b)
    return whole and (call.most_rows > 128 or tile.rows >= call.most_rows)


def predicted(call: GemmCall, tile: ProductSettings, *, divided: bool) -> float:
    """Microseconds that a call of `most_rows` rows is predicted to take, where terms of tiles are `divided` or not."""
    tiles = -(-call.most_rows // tile.rows) * -(-call.n // tile.columns)
    steps = -(-call.k // tile.depth)
    parts, each = parts_of(tiles, steps, call.sm_count) if divided else (1, steps)
    rate = MULTIPLIED if tile.columns == 256 else MULTIPLIED * NARROW
    multiplied = tile.rows * tile.columns * tile.depth / rate
    fetched = (tile.rows + tile.columns) * tile.depth * call.dtype.itemsize / FETCHED + WAIT
    turn = each * max(multiplied, fetched) + tile.rows * tile.columns / WRITTEN
    added = LAUNCH + parts * call.most_rows * call.n / ADDED if divided else 0
    return LAUNCH + -(-tiles * parts // call.sm_count) * turn + added


def whole_tile(call: GemmCall) -> HopperSettings:
    """The tile that is predicted to take least time where one block has its terms."""
    found = min((tile for tile in WHOLE if serves(call, tile)), key=lambda tile: predicted(call, tile, divided=False))
    return replace(found, band=32) if call.k <= BAND_TERMS else found


def divided_tile(call: GemmCall) -> ProductSettings:
    """The tile that is predicted to take least time where blocks divide its terms."""
    return min((tile for tile in DIVIDED if serves(call, tile)), key=lambda tile: predicted(call, tile, divided=True))


def pays_to_divide(call: GemmCall) -> bool:
    """Whether a division of the terms, and a second launch that adds, is predicted to take less time than none."""
    whole = predicted(call, whole_tile(call), divided=False)
    return predicted(call, divided_tile(call), divided=True) < whole
