"""Rotation of pairs by the angles of their position, on a CPU: rows or tokens are shared among threads.

A row is one head of one token. Positions are either the places of tokens in their sequence, with a table of cosines and
sines, or stated by token, with angles computed once for all heads of it.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, load_block, place, storage_dtype, store_block
from tileops_kernels.macros.fixed_turns import cosine_and_sine

HALF = BLOCK // 2
"""Pairs of a block."""


@T.macro
def turn_halves(X, TABLE, Y, row, position, entry, column, x, y, count, pairs, dtype):
    """Turn the `count` pairs from pair `column` on by TABLE's entries from `entry` on."""
    load_block(X, row, column, x, count, dtype)
    load_block(X, row, pairs + column, y, count, dtype)
    for k in T.serial(count):
        first = x[k] * TABLE[0, position, entry + k] - y[k] * TABLE[1, position, entry + k]
        y[k] = y[k] * TABLE[0, position, entry + k] + x[k] * TABLE[1, position, entry + k]
        x[k] = first
    store_block(x, Y, row, column, count, dtype)
    store_block(y, Y, row, pairs + column, count, dtype)


@T.macro
def turn_neighbours(X, TABLE, Y, row, position, column, x, y, count, dtype):
    """Turn the `count` pairs of neighbours from pair `column` on."""
    load_block(X, row, 2 * column, x, 2 * count, dtype)
    for k in T.serial(count):
        y[2 * k] = x[2 * k] * TABLE[0, position, column + k] - x[2 * k + 1] * TABLE[1, position, column + k]
        y[2 * k + 1] = x[2 * k + 1] * TABLE[0, position, column + k] + x[2 * k] * TABLE[1, position, column + k]
    store_block(y, Y, row, 2 * column, 2 * count, dtype)


@T.macro
def copy_rest(X, Y, row, rotated, width):
    """Copy the elements of a row from `rotated` on."""
    for k in T.serial(width - rotated):
        Y[place(row, rotated + k)] = X[place(row, rotated + k)]


def rotate_rows(width, rotated, dtype, interleaved):
    """Rows of `width` elements, of which the first `rotated` are rotated and the others copied.

    Parameters X (m, width), TABLE (2, positions, rotated // 2) float32, cosines and sines, Y (m, width), start, heads,
    length; sizes m, positions. `start` is the place of the first row; tokens of `heads` rows each repeat the positions
    0 to `length` - 1. A pair is two neighbours if `interleaved`, else an element and the one half of `rotated` further
    on.
    """
    m, positions = T.dynamic("m", "int64"), T.dynamic("positions", "int64")
    storage = storage_dtype(dtype)
    pairs = rotated // 2
    blocks, tail = divmod(pairs, HALF)

    @T.macro
    def turn(X, TABLE, Y, row, position, column, x, y, count):
        if interleaved:
            turn_neighbours(X, TABLE, Y, row, position, column, x, y, count, dtype)
        else:
            turn_halves(X, TABLE, Y, row, position, column, column, x, y, count, pairs, dtype)

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
                turn(X, TABLE, Y, row, position[0], block * HALF, x, y, HALF)
            if tail:
                turn(X, TABLE, Y, row, position[0], blocks * HALF, x, y, tail)
            copy_rest(X, Y, row, rotated, width)

    return rotate, RowSplit("m", {"X": width, "Y": width}, work=width, start="start")


def rotate_tokens(width, rotated, dtype, ids):
    """Tokens of rows of `width` elements, of which the first `rotated` are rotated and the others copied.

    Parameters X (n, heads, width), IDS (n) of dtype `ids`, STEPS (rotated // 2) int64, how far each pair turns from one
    position to the next in units of 2 ** -64 turn, Y (n, heads, width); sizes heads, n. A pair is an element and the
    one half of `rotated` further on.
    """
    n, heads = T.dynamic("n", "int64"), T.dynamic("heads", "int64")
    storage = storage_dtype(dtype)
    pairs = rotated // 2
    blocks, tail = divmod(pairs, HALF)

    @T.macro
    def turn(X, IDS, STEPS, Y, token, column, cosines_and_sines, x, y, count, heads):
        for k in T.serial(count):
            cosine_and_sine(IDS[token], STEPS[column + k], cosines_and_sines, (0, 0, k), (1, 0, k))
        for head in T.serial(heads):
            turn_halves(X, cosines_and_sines, Y, (token, head), 0, 0, column, x, y, count, pairs, dtype)

    @T.prim_func
    def rotate(
        X: T.Tensor[(n, heads, width), storage],
        IDS: T.Tensor[(n,), ids],
        STEPS: T.Tensor[(pairs,), "int64"],
        Y: T.Tensor[(n, heads, width), storage],
    ):
        with T.Kernel(n) as token:
            x = T.alloc_local((HALF,), "float32")
            y = T.alloc_local((HALF,), "float32")
            cosines_and_sines = T.alloc_local((2, 1, HALF), "float32")
            for block in T.serial(blocks):
                turn(X, IDS, STEPS, Y, token, block * HALF, cosines_and_sines, x, y, HALF, heads)
            if tail:
                turn(X, IDS, STEPS, Y, token, blocks * HALF, cosines_and_sines, x, y, tail, heads)
            if rotated < width:
                for head in T.serial(heads):
                    copy_rest(X, Y, (token, head), rotated, width)

    advance = {"X": f"heads * {width}", "IDS": 1, "Y": f"heads * {width}"}
    return rotate, RowSplit("n", advance, work=f"heads * {width}")
