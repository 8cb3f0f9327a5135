"""Mean and squared deviations on a CPU, of LANES interleaved parts of a row, so that a large mean costs no digits.

`counts`, `pivots`, `means` and `squares` are float32 (LANES,): for each part, how many elements were seen, the first of
them, the mean of their differences from it, and the sum of their squared deviations from the mean. Differences are
small where a mean is large against the spread, so that a mean of many elements still moves with each block.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cpu_blocks import LANES


def finite(x):
    """x, or 0 where it is infinite or NaN."""
    return T.Select(T.max(x, -x) < T.infinity("float32"), x, T.float32(0))


def merged_mean(mean, other, step):
    """The mean and a step towards another; beside an infinite one what a sum gives, as no step leads there."""
    return T.Select(T.isnan(mean + step), mean + other, mean + step)


@T.macro
def clear_lanes(counts, pivots, means, squares):
    """No elements seen."""
    for lane in T.serial(LANES):
        counts[lane] = T.float32(0)
        pivots[lane] = T.float32(0)
        means[lane] = T.float32(0)
        squares[lane] = T.float32(0)


@T.macro
def add_block(x, width, counts, pivots, means, squares, block_means, block_squares):
    """Add the elements x[0:width], float32; `width` may be known only when the program runs."""
    if width >= LANES:
        terms = T.cast(width // LANES, "float32")
        if counts[0] == T.float32(0):
            for lane in T.serial(LANES):
                pivots[lane] = finite(x[lane])
        for lane in T.serial(LANES):
            block_means[lane] = T.float32(0)
            block_squares[lane] = T.float32(0)
        for k in T.serial(width // LANES):
            for lane in T.serial(LANES):
                block_means[lane] += x[k * LANES + lane] - pivots[lane]
        for lane in T.serial(LANES):
            block_means[lane] = block_means[lane] / terms
        for k in T.serial(width // LANES):
            for lane in T.serial(LANES):
                deviation = x[k * LANES + lane] - pivots[lane] - block_means[lane]
                block_squares[lane] += deviation * deviation
        for lane in T.serial(LANES):
            share = terms / (counts[lane] + terms)
            difference = block_means[lane] - means[lane]
            means[lane] = merged_mean(means[lane], block_means[lane], difference * share)
            squares[lane] += block_squares[lane] + difference * difference * counts[lane] * share
            counts[lane] += terms
    for lane in T.serial(width % LANES):
        if counts[lane] == T.float32(0):
            pivots[lane] = finite(x[width // LANES * LANES + lane])
        counts[lane] += T.float32(1)
        difference = x[width // LANES * LANES + lane] - pivots[lane] - means[lane]
        means[lane] = merged_mean(
            means[lane], x[width // LANES * LANES + lane] - pivots[lane], difference / counts[lane]
        )
        squares[lane] += difference * (x[width // LANES * LANES + lane] - pivots[lane] - means[lane])


@T.macro
def moments_over_lanes(counts, pivots, means, squares, result):
    """result[0:4] = the number of elements, their mean in two parts (result[1] + result[2]), and the squares' sum.

    The second part of the mean is what rounding took from the first, 0 where that is infinite or NaN, as result[3] is
    NaN then. At least one element must have been seen.
    """
    for i in T.serial(4):
        result[i] = T.float32(0)
    for lane in T.serial(LANES):
        result[0] += counts[lane]
        result[1] += counts[lane] * (pivots[lane] + means[lane])
    result[1] = result[1] / result[0]
    for lane in T.serial(LANES):
        difference = pivots[lane] - result[1] + means[lane]
        result[2] += counts[lane] * difference
        result[3] += squares[lane] + counts[lane] * difference * difference
    result[2] = result[2] / result[0]
    result[3] = result[3] - result[0] * result[2] * result[2]
    result[2] = T.if_then_else(T.isnan(result[2]), T.float32(0), result[2])
    result[3] = T.if_then_else(result[3] < T.float32(0), T.float32(0), result[3])
