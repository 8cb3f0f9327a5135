"""How a reduction of any axes is done in passes over `[outer, reduced, inner]`, a view of what the last pass left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

SHORT = 16
"""Elements that a part of a reduced axis has at least."""
FEW = 4
"""Parts of a spread's length whose elements are few enough to be reduced in one pass."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One reduction of a contiguous `[outer, reduced, inner]` to `[outer, parts, inner]`."""

    outer: int
    reduced: int
    inner: int
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a device spreads one pass.

    A pass is split until it has `slices` outer slices, or `columns` results where columns of a slice are spread too
    (None where they stay together), but not into parts of fewer than `part` elements. Columns that together are
    narrower than `width` are laid side by side. Parts are slices of their own, equally long, unless the programs of the
    device are `dealing` and give each slice several results. Rows that are `plenty` or more are not worth a second pass
    until they are far longer than two parts.
    """

    slices: int
    columns: int | None
    part: int
    width: int
    dealing: bool = False
    plenty: int | None = None


@lru_cache(maxsize=4096)
def passes(shape: tuple[int, ...], axes: tuple[int, ...], spread: Spread) -> tuple[Pass, ...]:
    """The passes that reduce `axes` of a contiguous tensor of `shape`, which holds elements.

    Neighbouring axes of one kind are one; the longest reduced run goes first, so that the others find little left.
    There is always one pass, which reduces an axis of length one where `axes` does not say more.
    """
    runs = _runs(shape, axes)
    found: list[Pass] = []
    while any(reduced for _, reduced in runs):
        place = max(range(len(runs)), key=lambda index: runs[index][0] if runs[index][1] else -1)
        outer, inner = (math.prod(extent for extent, _ in part) for part in (runs[:place], runs[place + 1 :]))
        found.extend(_split(Pass(outer, runs[place][0], inner), spread))
        runs = _merged([*runs[:place], *runs[place + 1 :]])
    return tuple(found) or (Pass(1, 1, math.prod(shape)),)


@lru_cache(maxsize=4096)
def planes_of(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The shape as `[batch, channels, length]` where `axes` are what lies on both sides of channels, else None."""
    runs = _runs(shape, axes)
    if 0 in shape or [reduced for _, reduced in runs] != [True, False, True]:
        return None
    batch, channels, length = (extent for extent, _ in runs)
    return batch, channels, length


def _runs(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, bool]]:
    """The axes longer than one, as extents of alternately kept and reduced runs."""
    return _merged([(extent, place in axes) for place, extent in enumerate(shape) if extent != 1])


def _merged(runs: Sequence[tuple[int, bool]]) -> list[tuple[int, bool]]:
    merged: list[tuple[int, bool]] = []
    for extent, reduced in runs:
        if merged and merged[-1][1] == reduced:
            merged[-1] = (merged[-1][0] * extent, reduced)
        else:
            merged.append((extent, reduced))
    return merged


def _split(whole: Pass, spread: Spread) -> tuple[Pass, ...]:
    """`whole`, or passes in its place: parts of the reduced axis first, then what the parts gave."""
    outer, reduced, inner = whole.outer, whole.reduced, whole.inner
    most = reduced // SHORT
    if 1 < inner < spread.width and (beside := _divisor(reduced, -(-spread.width // inner), most)) > 1:
        return *_split(Pass(outer, reduced // beside, beside * inner), spread), Pass(outer, beside, inner)
    aim = spread.slices if inner == 1 or spread.columns is None else spread.columns
    results = outer if inner == 1 or spread.columns is None else outer * inner
    if outer * reduced * inner <= FEW * spread.part:
        wanted = 1
    elif spread.dealing:
        wanted = aim // results
    else:
        wanted = -(-aim // results)
    plenty = inner == 1 and spread.plenty is not None and outer >= spread.plenty
    wanted = min(wanted, reduced * inner // (spread.part * FEW * 2 if plenty else spread.part))
    if spread.dealing:
        parts = max(min(wanted, most), 1)
        first = Pass(outer, reduced, inner, parts)
    else:
        parts = _divisor(reduced, wanted, most)
        first = Pass(outer * parts, reduced // parts, inner)
    return (first,) if parts == 1 else (first, Pass(outer, parts, inner))


def _divisor(value: int, wanted: int, most: int) -> int:
    """The divisor of `value` nearest above `wanted`, up to twice that and to `most`; else nearest below; else 1."""
    if wanted <= 1:
        return 1
    upwards = range(wanted, min(most, 2 * wanted) + 1)
    downwards = range(min(wanted, most), 1, -1)
    return next((divisor for divisor in (*upwards, *downwards) if value % divisor == 0), 1)
