"""Rotation of pairs by the angles of their position, on CUDA: a thread takes neighbouring pairs of one row.

A row is one head of one token; tokens of `heads` rows each repeat the positions 0 to `length` - 1.
"""

import tilelang.language as T  # noqa: N812


def rotate_rows(width, rotated, dtype, interleaved, vector, threads, index):
    """Rows of `width` elements, of which the first `rotated` are rotated and the others copied.

    Parameters X (m, width), TABLE (2, positions, rotated // 2) float32, cosines and sines, Y (m, width), heads,
    length; size m. A pair is two neighbours if `interleaved`, else an element and the one half of `rotated` further on.
    `vector` elements are moved at a time; they divide every part of a row. `index` is the dtype in which places are
    counted.
    """
    m, positions = T.dynamic("m", "int64"), T.dynamic("positions", "int64")
    pairs = rotated // 2
    turning = rotated // (2 * vector)
    lanes = turning + (width - rotated) // vector

    @T.macro
    def turn(x, TABLE, position, column, cosines, sines):
        for v in T.vectorized(vector):
            cosines[v] = TABLE[0, position, column + v]
        for v in T.vectorized(vector):
            sines[v] = TABLE[1, position, column + v]
        for v in T.unroll(vector):
            first = T.cast(x[2 * v if interleaved else v], "float32")
            second = T.cast(x[2 * v + 1 if interleaved else vector + v], "float32")
            x[2 * v if interleaved else v] = T.cast(first * cosines[v] - second * sines[v], dtype)
            x[2 * v + 1 if interleaved else vector + v] = T.cast(second * cosines[v] + first * sines[v], dtype)

    @T.prim_func
    def rotate(
        X: T.Tensor[(m, width), dtype],
        TABLE: T.Tensor[(2, positions, pairs), "float32"],
        Y: T.Tensor[(m, width), dtype],
        heads: T.int64,
        length: T.int64,
    ):
        with T.Kernel(T.ceildiv(m * lanes, threads), threads=threads) as block:
            place = T.cast(block, "int64") * threads + T.get_thread_binding(0)
            row = T.truncdiv(place, lanes)
            lane = T.cast(place - row * lanes, "int32")
            position = T.alloc_local((1,), index)
            x = T.alloc_local((2 * vector,), dtype)
            cosines = T.alloc_local((vector,), "float32")
            sines = T.alloc_local((vector,), "float32")
            if row < m:
                if turning == lanes or lane < turning:
                    position[0] = T.truncdiv(T.cast(row, index), T.cast(heads, index))
                    position[0] = T.truncmod(position[0], T.cast(length, index))
                    column = lane * vector
                    near = 2 * column if interleaved else column
                    far = 2 * column + vector if interleaved else pairs + column
                    for v in T.vectorized(vector):
                        x[v] = X[row, near + v]
                    for v in T.vectorized(vector):
                        x[vector + v] = X[row, far + v]
                    turn(x, TABLE, position[0], column, cosines, sines)
                    for v in T.vectorized(vector):
                        Y[row, near + v] = x[v]
                    for v in T.vectorized(vector):
                        Y[row, far + v] = x[vector + v]
                else:
                    beside = rotated + (lane - turning) * vector
                    for v in T.vectorized(vector):
                        Y[row, beside + v] = X[row, beside + v]

    return rotate
