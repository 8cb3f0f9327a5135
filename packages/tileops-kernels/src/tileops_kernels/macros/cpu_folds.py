"""Folds on a CPU: log-sum-exps of LANES interleaved parts of a row, and what is kept of columns side by side.

A log-sum-exp keeps the greatest element and the sum of exponentials below it. Moments of columns keep means of
differences from `pivots`, each an element itself, and sums of squared deviations, so that a large mean costs no digits.
All arrays are float32.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cpu_blocks import LANES, highest, lowest

FAINT = -64.0
"""A difference whose exponential is lost beside 1; libmvec takes several times as long for some below -80."""


@T.macro
def fade(totals, earlier, width):
    """Turn sums below one value into sums below one that is higher by -earlier[k]; NaN stays NaN.

    A loop of its own bounds the differences: in one with `exp`, g++ 12 takes exponentials of those beyond all the same.
    """
    for k in T.serial(width):
        earlier[k] = T.max(T.float32(FAINT), earlier[k])
    for k in T.serial(width):
        totals[k] = totals[k] * T.exp(earlier[k])


@T.macro
def clear_exponentials(largest, totals, width):
    """No elements seen by the first `width` lanes or columns."""
    for k in T.serial(width):
        largest[k] = lowest()
        totals[k] = T.float32(0)


@T.macro
def raise_largest(largest, totals, earlier, width, finite):
    """Turn sums below `earlier` into sums below `largest`, which stays `finite` where infinity is to give itself.

    Else infinity gives NaN.
    """
    if finite:
        for k in T.serial(width):
            largest[k] = T.min(highest(), largest[k])
    for k in T.serial(width):
        earlier[k] = earlier[k] - largest[k]
    fade(totals, earlier, width)


@T.macro
def add_block(x, width, largest, totals, earlier, finite):
    """Add the elements x[0:width] to LANES parts; x is overwritten, and `finite` is as in raise_largest."""
    for lane in T.serial(LANES):
        earlier[lane] = largest[lane]
    for k in T.serial(width // LANES):
        for lane in T.serial(LANES):
            largest[lane] = T.max(x[k * LANES + lane], largest[lane])
    for lane in T.serial(width % LANES):
        largest[lane] = T.max(x[width // LANES * LANES + lane], largest[lane])
    raise_largest(largest, totals, earlier, LANES, finite)
    for k in T.serial(width // LANES):
        for lane in T.serial(LANES):
            x[k * LANES + lane] = T.exp(x[k * LANES + lane] - largest[lane])
        for lane in T.serial(LANES):
            totals[lane] += x[k * LANES + lane]
    for lane in T.serial(width % LANES):
        totals[lane] += T.exp(x[width // LANES * LANES + lane] - largest[lane])


@T.macro
def exponentials_over_lanes(largest, totals, earlier):
    """largest[0] and totals[0] = those of all lanes together."""
    for lane in T.serial(LANES):
        earlier[lane] = largest[lane]
    for lane in T.serial(LANES - 1):
        largest[0] = T.max(largest[0], largest[lane + 1])
    for lane in T.serial(LANES):
        earlier[lane] = earlier[lane] - largest[0]
    fade(totals, earlier, LANES)
    for lane in T.serial(LANES - 1):
        totals[0] += totals[lane + 1]


@T.macro
def merge_columns(terms, count, means, squares, own_means, own_squares, width):
    """Add to `count[0]` elements of each column `terms` more, float32, whose own moments are given."""
    share = terms / (count[0] + terms)
    for k in T.serial(width):
        between = own_means[k] - means[k]
        means[k] += between * share
        squares[k] += own_squares[k] + between * between * count[0] * share
    count[0] += terms
