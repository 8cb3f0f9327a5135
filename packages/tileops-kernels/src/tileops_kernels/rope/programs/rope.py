"""Rotation of pairs by the angles of their position, on CUDA: a thread takes neighbouring pairs of a row or more.

A row is one head of one token. Positions are either the places of tokens in their sequence, with a table of cosines and
sines, or stated by token, with angles computed where they are needed.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.division import quotient
from tileops_kernels.macros.fixed_turns import cosine_and_sine


def sides(column, pairs, vector, interleaved):
    """Where the two accesses begin that hold the `vector` pairs from pair `column` on."""
    return (2 * column, 2 * column + vector) if interleaved else (column, pairs + column)


def turned_at(v, vector, interleaved):
    """Where pair v of these lies in the elements of both accesses."""
    return (2 * v, 2 * v + 1) if interleaved else (v, vector + v)


@T.macro
def turn(x, start, cosines_and_sines, vector, interleaved, dtype):
    """Turn `vector` pairs of x, from element `start` on."""
    for v in T.unroll(vector):
        a, b = turned_at(v, vector, interleaved)
        first = T.cast(x[start + a], "float32")
        second = T.cast(x[start + b], "float32")
        x[start + a] = T.cast(first * cosines_and_sines[0, v] - second * cosines_and_sines[1, v], dtype)
        x[start + b] = T.cast(second * cosines_and_sines[0, v] + first * cosines_and_sines[1, v], dtype)


def rotate_rows(width, rotated, dtype, interleaved, vector, threads, index):
    """Rows of `width` elements, of which the first `rotated` are rotated and the others copied.

    Parameters X (m, width), TABLE (2, positions, rotated // 2) float32, cosines and sines, Y (m, width), the divisors
    heads and length, and the latter itself; size m. Tokens of `heads` rows each repeat the positions 0 to `length` - 1.
    A pair is two neighbours if `interleaved`, else an element and the one half of `rotated` further on. `vector`
    elements are moved at a time; they divide every part of a row. `index` is the dtype in which places are counted.
    """
    m, positions = T.dynamic("m", "int64"), T.dynamic("positions", "int64")
    pairs = rotated // 2
    turning = rotated // (2 * vector)
    lanes = turning + (width - rotated) // vector

    @T.prim_func
    def rotate(
        X: T.Tensor[(m, width), dtype],
        TABLE: T.Tensor[(2, positions, pairs), "float32"],
        Y: T.Tensor[(m, width), dtype],
        heads_factor: T.int64,
        heads_shift: T.int32,
        length_factor: T.int64,
        length_shift: T.int32,
        length: T.int64,
    ):
        with T.Kernel(T.ceildiv(m * lanes, threads), threads=threads) as block:
            place = T.cast(block, "int64") * threads + T.get_thread_binding(0)
            row = T.truncdiv(place, lanes)
            lane = T.cast(place - row * lanes, "int32")
            position = T.alloc_local((1,), index)
            x = T.alloc_local((2 * vector,), dtype)
            cosines_and_sines = T.alloc_local((2, vector), "float32")
            if row < m:
                if turning == lanes or lane < turning:
                    position[0] = quotient(T.cast(row, index), heads_factor, heads_shift)
                    position[0] -= quotient(position[0], length_factor, length_shift) * T.cast(length, index)
                    T.assume(position[0] >= 0 and T.cast(position[0], "int64") < positions)
                    column = lane * vector
                    near, far = sides(column, pairs, vector, interleaved)
                    for v in T.vectorized(vector):
                        x[v] = X[row, near + v]
                    for v in T.vectorized(vector):
                        x[vector + v] = X[row, far + v]
                    for v in T.vectorized(vector):
                        cosines_and_sines[0, v] = TABLE[0, position[0], column + v]
                    for v in T.vectorized(vector):
                        cosines_and_sines[1, v] = TABLE[1, position[0], column + v]
                    turn(x, 0, cosines_and_sines, vector, interleaved, dtype)
                    for v in T.vectorized(vector):
                        Y[row, near + v] = x[v]
                    for v in T.vectorized(vector):
                        Y[row, far + v] = x[vector + v]
                else:
                    beside = rotated + (lane - turning) * vector
                    for v in T.vectorized(vector):
                        Y[row, beside + v] = X[row, beside + v]

    return rotate


def rotate_tokens(width, rotated, dtype, ids, vector, shared, threads, index):
    """Tokens of rows of `width` elements, of which the first `rotated` are rotated and the others copied.

    Parameters X (n, heads, width), IDS (n) of dtype `ids`, STEPS (rotated // 2) int64, how far each pair turns from one
    position to the next in units of 2 ** -64 turn, Y (n, heads, width), the divisor that is the groups of a token;
    sizes heads, n. A pair is an element and the one half of `rotated` further on. A thread computes the angles of
    `vector` pairs of a token, which also are the elements of an access, and turns them in a group of `shared` rows.
    `index` is the dtype in which places are counted.
    """
    n, heads = T.dynamic("n", "int64"), T.dynamic("heads", "int64")
    pairs = rotated // 2
    turning = rotated // (2 * vector)
    lanes = turning + (width - rotated) // vector

    @T.prim_func
    def rotate(
        X: T.Tensor[(n, heads, width), dtype],
        IDS: T.Tensor[(n,), ids],
        STEPS: T.Tensor[(pairs,), "int64"],
        Y: T.Tensor[(n, heads, width), dtype],
        groups_factor: T.int64,
        groups_shift: T.int32,
    ):
        with T.Kernel(T.ceildiv(n * T.ceildiv(heads, shared) * lanes, threads), threads=threads) as block:
            place = T.cast(block, "int64") * threads + T.get_thread_binding(0)
            group = T.truncdiv(place, lanes)
            lane = T.cast(place - group * lanes, "int32")
            groups = T.ceildiv(heads, shared)
            token = T.alloc_local((1,), index)
            x = T.alloc_local((shared * 2 * vector,), dtype)
            cosines_and_sines = T.alloc_local((2, vector), "float32")
            if group < n * groups:
                token[0] = quotient(T.cast(group, index), groups_factor, groups_shift)
                head = (group - T.cast(token[0], "int64") * groups) * shared
                T.assume(token[0] >= 0 and T.cast(token[0], "int64") < n and head >= 0)
                if turning == lanes or lane < turning:
                    column = lane * vector
                    for h in T.unroll(shared):
                        if head + h < heads:
                            for v in T.vectorized(vector):
                                x[h * 2 * vector + v] = X[token[0], head + h, column + v]
                            for v in T.vectorized(vector):
                                x[h * 2 * vector + vector + v] = X[token[0], head + h, pairs + column + v]
                    for v in T.unroll(vector):
                        cosine_and_sine(IDS[token[0]], STEPS[column + v], cosines_and_sines, (0, v), (1, v))
                    for h in T.unroll(shared):
                        turn(x, h * 2 * vector, cosines_and_sines, vector, False, dtype)
                    for h in T.unroll(shared):
                        if head + h < heads:
                            for v in T.vectorized(vector):
                                Y[token[0], head + h, column + v] = x[h * 2 * vector + v]
                            for v in T.vectorized(vector):
                                Y[token[0], head + h, pairs + column + v] = x[h * 2 * vector + vector + v]
                else:
                    beside = rotated + (lane - turning) * vector
                    for h in T.unroll(shared):
                        if head + h < heads:
                            for v in T.vectorized(vector):
                                Y[token[0], head + h, beside + v] = X[token[0], head + h, beside + v]

    return rotate
