"""Few rows times many on CUDA: a warp reads rows of weights once, and multiplies them with some rows in registers.

Reading the weights is what takes the time: each lane has `unroll` vectors of each of its rows on their way at a time,
and warps wait for nothing but their own.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_rows import WARP, read_once


@T.macro
def _read(w, W, line, lines, k, place, slot, vector):
    """w[slot + i, :] = `vector` elements of row line[i] of W from `place` on, for i below lines."""
    for i in T.unroll(lines):
        if vector == 1:
            w[slot + i, 0] = W[line[i], place]
        else:
            read_once(w, (slot + i) * vector, W, line[i] * k + place)


@T.macro
def _multiply(w, x, X, row, sums, lines, group, place, slot, vector):
    """sums[i * group + r] += the products of w[slot + i, :] with as many elements of row[r] of X, where it is a row."""
    for r in T.unroll(group):
        if r == 0 or row[r] >= 0:
            for v in T.vectorized(vector):
                x[v] = X[row[r], place + v]
            for i in T.unroll(lines):
                for v in T.unroll(vector):
                    sums[i * group + r] += T.cast(w[slot + i, v], "float32") * T.cast(x[v], "float32")


@T.macro
def dot_rows(X, W, row, line, sums, w, x, lines, group, k, lane, unroll, vector):
    """sums[i * group + r] = row[r] of X times line[i] of W, each of k terms, in each lane of a warp.

    A row that is -1 has no sum; the first is one that exists. Vectors of `vector` elements, of 16 bytes unless it is 1,
    begin at whole accesses. w has (unroll * lines, vector) elements and x `vector`, both of the operands' dtype.
    """
    step = WARP * vector * unroll
    for i in T.unroll(lines * group):
        sums[i] = T.float32(0)
    for block in T.serial(k // step):
        for u in T.unroll(unroll):
            _read(w, W, line, lines, k, block * step + (u * WARP + lane) * vector, u * lines, vector)
        for u in T.unroll(unroll):
            _multiply(w, x, X, row, sums, lines, group, block * step + (u * WARP + lane) * vector, u * lines, vector)
    for u in T.unroll(unroll):
        if k // step * step + (u * WARP + lane) * vector < k:
            _read(w, W, line, lines, k, k // step * step + (u * WARP + lane) * vector, u * lines, vector)
            _multiply(
                w, x, X, row, sums, lines, group, k // step * step + (u * WARP + lane) * vector, u * lines, vector
            )
    for r in T.unroll(group):
        if r == 0 or row[r] >= 0:
            for i in T.unroll(lines):
                for half in T.unroll(WARP.bit_length() - 1):
                    sums[i * group + r] += T.shfl_xor(sums[i * group + r], 1 << half)
