"""Mean and squared deviations on a CPU, of LANES interleaved parts of a row, so that a large mean costs no digits.

`counts`, `means` and `squares` are float32 (LANES,): for each part, how many elements were seen, their mean, and the
sum of their squared deviations from it.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cpu_blocks import LANES


@T.macro
def clear_lanes(counts, means, squares):
    """No elements seen."""
    for lane in T.serial(LANES):
        counts[lane] = T.float32(0)
        means[lane] = T.float32(0)
        squares[lane] = T.float32(0)


@T.macro
def add_block(x, width, counts, means, squares, block_means, block_squares):
    """Add the elements x[0:width], float32; `width` may be known only when the program runs.

    `block_means` and `block_squares` are float32 (LANES,), for the block's own moments.
    """
    if width >= LANES:
        terms = T.cast(width // LANES, "float32")
        for lane in T.serial(LANES):
            block_means[lane] = T.float32(0)
            block_squares[lane] = T.float32(0)
        for k in T.serial(width // LANES):
            for lane in T.serial(LANES):
                block_means[lane] += x[k * LANES + lane]
        for lane in T.serial(LANES):
            block_means[lane] = block_means[lane] / terms
        for k in T.serial(width // LANES):
            for lane in T.serial(LANES):
                block_squares[lane] += (x[k * LANES + lane] - block_means[lane]) * (
                    x[k * LANES + lane] - block_means[lane]
                )
        for lane in T.serial(LANES):
            share = terms / (counts[lane] + terms)
            difference = block_means[lane] - means[lane]
            means[lane] += difference * share
            squares[lane] += block_squares[lane] + difference * difference * counts[lane] * share
            counts[lane] += terms
    for lane in T.serial(width % LANES):
        counts[lane] += T.float32(1)
        difference = x[width // LANES * LANES + lane] - means[lane]
        means[lane] += difference / counts[lane]
        squares[lane] += difference * (x[width // LANES * LANES + lane] - means[lane])


@T.macro
def moments_over_lanes(counts, means, squares, result):
    """result[0:4] = the number of elements, their mean in two parts (result[1] + result[2]), and the squares' sum.

    The second part of the mean is what rounding took from the first. At least one element must have been seen.
    """
    for i in T.serial(4):
        result[i] = T.float32(0)
    for lane in T.serial(LANES):
        result[0] += counts[lane]
        result[1] += counts[lane] * means[lane]
    result[1] = result[1] / result[0]
    for lane in T.serial(LANES):
        result[2] += counts[lane] * (means[lane] - result[1])
        result[3] += squares[lane] + counts[lane] * (means[lane] - result[1]) * (means[lane] - result[1])
    result[2] = result[2] / result[0]
    result[3] = result[3] - result[0] * result[2] * result[2]
    result[3] = T.if_then_else(result[3] < T.float32(0), T.float32(0), result[3])
