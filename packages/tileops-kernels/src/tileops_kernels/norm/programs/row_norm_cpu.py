"""Norms over rows on a CPU: each row is read twice, the second time from the cache."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, PIECE, load_block, storage_dtype, store_block
from tileops_kernels.macros.cpu_moments import add_block, clear_lanes, moments_over_lanes
from tileops_kernels.macros.row_signatures import program_of_rows


@T.macro
def load_sums(X, R, row, column, x, w, width, dtype, added):
    """x[0:width] = X, plus R where `added`, in float32; `w` is overwritten."""
    load_block(X, row, column, x, width, dtype)
    if added:
        load_block(R, row, column, w, width, dtype)
        for k in T.serial(width):
            x[k] = x[k] + w[k]


@T.macro
def add_squares(x, width, sums):
    """Add the squares of x[0:width] to the partial `sums`."""
    for k in T.serial(width // LANES):
        for lane in T.serial(LANES):
            sums[lane] += x[k * LANES + lane] * x[k * LANES + lane]
    for lane in T.serial(width % LANES):
        sums[lane] += x[width // LANES * LANES + lane] * x[width // LANES * LANES + lane]


@T.macro
def scale_block(source, row, column, x, w, width, dtype, modulated):
    """x[0:width] *= `source`, of this row where `modulated`."""
    load_block(source, row if modulated else 0, column, w, width, dtype)
    for k in T.serial(width):
        x[k] = x[k] * w[k]


def row_norm_rows(
    n, dtype, weighted, biased=False, gated=False, centered=True, added=False, modulated=False, scales=None
):
    """Rows of `n` elements; the parameters are those of program_of_rows, and the size is m.

    The arguments mean what they mean to the programs on CUDA. A row that all share is passed as a matrix of one row.
    """
    m = T.dynamic("m", "int64")
    storage = storage_dtype(dtype)
    scales = scales or dtype
    blocks, tail = divmod(n, BLOCK)
    pieces, rest = divmod(n, PIECE)

    @T.macro
    def add_part(X, R, S, row, column, x, w, width, counts, pivots, means, squares, block_means, block_squares):
        load_sums(X, R, row, column, x, w, width, dtype, added)
        if added:
            store_block(x, S, row, column, width, dtype)
        if centered:
            add_block(x, width, counts, pivots, means, squares, block_means, block_squares)
        else:
            add_squares(x, width, squares)

    @T.macro
    def write_part(X, R, W, B, G, Y, row, column, x, w, result, scale, width):
        load_sums(X, R, row, column, x, w, width, dtype, added)
        for k in T.serial(width):
            if centered:
                x[k] = (x[k] - result[1] - result[2]) * scale[0]
            else:
                x[k] = x[k] * scale[0]
        if weighted:
            scale_block(W, row, column, x, w, width, scales, modulated)
        if biased:
            load_block(B, row if modulated else 0, column, w, width, scales)
            for k in T.serial(width):
                x[k] = x[k] + w[k]
        if gated:
            scale_block(G, row, column, x, w, width, scales, modulated)
        store_block(x, Y, row, column, width, dtype)

    @T.macro
    def normalize(X, R, W, B, G, Y, S, eps):
        with T.Kernel(m) as row:
            counts = T.alloc_local((LANES,), "float32")
            pivots = T.alloc_local((LANES,), "float32")
            means = T.alloc_local((LANES,), "float32")
            squares = T.alloc_local((LANES,), "float32")
            block_means = T.alloc_local((LANES,), "float32")
            block_squares = T.alloc_local((LANES,), "float32")
            result = T.alloc_local((4,), "float32")
            scale = T.alloc_local((1,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            w = T.alloc_local((BLOCK,), "float32")
            clear_lanes(counts, pivots, means, squares)
            for j in T.serial(blocks):
                add_part(
                    X, R, S, row, j * BLOCK, x, w, BLOCK, counts, pivots, means, squares, block_means, block_squares
                )
            if tail:
                add_part(
                    X, R, S, row, blocks * BLOCK, x, w, tail, counts, pivots, means, squares, block_means, block_squares
                )
            if centered:
                moments_over_lanes(counts, pivots, means, squares, result)
            else:
                result[3] = T.float32(0)
                for lane in T.serial(LANES):
                    result[3] += squares[lane]
            scale[0] = T.rsqrt(result[3] / n + eps)
            for j in T.serial(pieces):
                write_part(X, R, W, B, G, Y, row, j * PIECE, x, w, result, scale, PIECE)
            if rest:
                write_part(X, R, W, B, G, Y, row, pieces * PIECE, x, w, result, scale, rest)

    parameter = (m, n) if modulated else (1, n)
    program = program_of_rows(
        normalize, (m, n), parameter, storage, storage_dtype(scales), weighted, biased, added, gated
    )
    steps = {"X": n, "Y": n}
    if added:
        steps |= {"R": n, "S": n}
    if modulated:
        steps |= {"W": n, "B": n}
    if gated:
        steps |= {"G": n}
    return program, RowSplit("m", steps, work=n)
