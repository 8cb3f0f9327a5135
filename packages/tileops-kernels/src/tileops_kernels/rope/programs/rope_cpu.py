"""Rotation of pairs by the angles of their position, on a CPU: rows are shared among threads.

A row is one head of one token; tokens of `heads` rows each repeat the positions 0 to `length` - 1.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, load_block, storage_dtype, store_block


def rotate_rows(width, rotated, dtype, interleaved):
    """Rows of `width` elements, of which the first `rotated` are rotated and the others copied.

    Parameters X (m, width), TABLE (2, positions, rotated // 2) float32, cosines and sines, Y (m, width), start, heads,
    length; sizes m, positions. `start` is the place of the first row. A pair is two neighbours if `interleaved`, else
    an element and the one half of `rotated` further on.
    """
    m, positions = T.dynamic("m", "int64"), T.dynamic("positions", "int64")
    storage = storage_dtype(dtype)
    pairs = rotated // 2
    half = BLOCK // 2
    blocks, tail = divmod(pairs, half)

    @T.macro
    def turn_halves(X, TABLE, Y, row, position, column, x, y, count):
        load_block(X, row, column, x, count, dtype)
        load_block(X, row, pairs + column, y, count, dtype)
        for k in T.serial(count):
            first = x[k] * TABLE[0, position, column + k] - y[k] * TABLE[1, position, column + k]
            y[k] = y[k] * TABLE[0, position, column + k] + x[k] * TABLE[1, position, column + k]
            x[k] = first
        store_block(x, Y, row, column, count, dtype)
        store_block(y, Y, row, pairs + column, count, dtype)

    @T.macro
    def turn_neighbours(X, TABLE, Y, row, position, column, x, y, count):
        load_block(X, row, 2 * column, x, 2 * count, dtype)
        for k in T.serial(count):
            y[2 * k] = x[2 * k] * TABLE[0, position, column + k] - x[2 * k + 1] * TABLE[1, position, column + k]
            y[2 * k + 1] = x[2 * k + 1] * TABLE[0, position, column + k] + x[2 * k] * TABLE[1, position, column + k]
        store_block(y, Y, row, 2 * column, 2 * count, dtype)

    @T.macro
    def turn(X, TABLE, Y, row, position, column, x, y, count):
        if interleaved:
            turn_neighbours(X, TABLE, Y, row, position, column, x, y, count)
        else:
            turn_halves(X, TABLE, Y, row, position, column, x, y, count)

    @T.prim_func
    def rotate(
        X: T.Tensor[(m, width), storage],
        TABLE: T.Tensor[(2, positions, pairs), "float32"],
        Y: T.Tensor[(m, width), storage],
        start: T.int64,
        heads: T.int64,
        length: T.int64,
    ):
        with T.Kernel(m) as row:
            x = T.alloc_local((BLOCK,), "float32")
            y = T.alloc_local((BLOCK,), "float32")
            position = T.alloc_local((1,), "int64")
            position[0] = T.truncmod(T.truncdiv(start + row, heads), length)
            for block in T.serial(blocks):
                turn(X, TABLE, Y, row, position[0], block * half, x, y, half)
            if tail:
                turn(X, TABLE, Y, row, position[0], blocks * half, x, y, tail)
            for k in T.serial(width - rotated):
                Y[row, rotated + k] = X[row, rotated + k]

    return rotate, RowSplit("m", {"X": width, "Y": width}, work=width, start="start")
