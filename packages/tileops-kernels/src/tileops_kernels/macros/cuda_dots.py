"""Few rows times many on CUDA: a warp reads rows of weights once, and multiplies them with some rows in registers.

Reading the weights is what takes the time: each lane has `unroll` vectors of each of its rows on their way at a time,
and warps wait for nothing but their own.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_products import column_grid, column_of
from tileops_kernels.macros.cuda_rows import READ_ONCE, WARP, read_once

BLOCKS = 2
"""Blocks of 256 threads that a multiprocessor holds; with their registers bound to this hardly anything spills."""


@T.macro
def _read(w, W, line, lines, k, place, slot, vector):
    """w[slot + i, :] = `vector` elements of row line[i] of W from `place` on, for i below lines."""
    for i in T.unroll(lines):
        if vector == 1:
            w[slot + i, 0] = W[line[i], place]
        else:
            read_once(w, (slot + i) * vector, W, line[i] * k + place)


@T.macro
def _multiply(w, x, X, row, sums, lines, count, group, place, slot, vector):
    """sums[i * group + r] += the products of w[slot + i, :] with as many elements of row[r] of X, for r below count."""
    for r in T.unroll(count):
        for v in T.vectorized(vector):
            x[v] = X[row[r], place + v]
        for i in T.unroll(lines):
            for v in T.unroll(vector):
                sums[i * group + r] += T.cast(w[slot + i, v], "float32") * T.cast(x[v], "float32")


@T.macro
def _dot(X, W, row, line, sums, w, x, lines, count, group, k, lane, unroll, vector):
    """As dot_rows, for `count` rows.

    Without branches between the vectors: those keep the compiler from reading the next ones early.
    """
    step = WARP * vector * unroll
    for i in T.unroll(lines * group):
        sums[i] = T.float32(0)
    for block in T.serial(k // step):
        for u in T.unroll(unroll):
            _read(w, W, line, lines, k, block * step + (u * WARP + lane) * vector, u * lines, vector)
        for u in T.unroll(unroll):
            place = block * step + (u * WARP + lane) * vector
            _multiply(w, x, X, row, sums, lines, count, group, place, u * lines, vector)
    for u in T.unroll(unroll):
        rest = k // step * step + (u * WARP + lane) * vector
        if rest < k:
            _read(w, W, line, lines, k, rest, u * lines, vector)
            _multiply(w, x, X, row, sums, lines, count, group, rest, u * lines, vector)
    for r in T.unroll(count):
        for i in T.unroll(lines):
            for half in T.unroll(WARP.bit_length() - 1):
                sums[i * group + r] += T.shfl_xor(sums[i * group + r], 1 << half)


@T.macro
def dot_rows(X, W, row, rows, line, sums, w, x, lines, group, k, lane, unroll, vector):
    """sums[i * group + r] = row[r] of X times line[i] of W, each of k terms, for r below rows, in each lane of a warp.

    `rows` is 1 to `group`, a power of two of at most 8; row[r] is a row of X for every r below group. Vectors of
    `vector` elements, of 16 bytes unless it is 1, begin at whole accesses. w has (unroll * lines, vector) elements and
    x `vector`, both of the operands' dtype.
    """
    if rows == 1:
        _dot(X, W, row, line, sums, w, x, lines, 1, group, k, lane, unroll, vector)
    elif rows == 2:
        _dot(X, W, row, line, sums, w, x, lines, 2, group, k, lane, unroll, vector)
    elif rows <= 4 or group == 4:
        _dot(X, W, row, line, sums, w, x, lines, 4, group, k, lane, unroll, vector)
    else:
        _dot(X, W, row, line, sums, w, x, lines, group, group, k, lane, unroll, vector)


@T.macro
def write_dots(sums, D, row, r, column, columns, group, n, gated, dtype):
    """D[row, column + c] = sum r of line c for c below columns, or if `gated` silu(it) times that of line columns + c.

    As far as there are columns.
    """
    for c in T.unroll(columns):
        if column + c < n:
            if gated:
                gate = sums[c * group + r]
                factor = sums[(columns + c) * group + r]
                D[row, column + c] = T.cast(gate / (T.float32(1) + T.exp(-gate)) * factor, dtype)
            else:
                D[row, column + c] = T.cast(sums[c * group + r], dtype)


def few_row_products(dtype, gated, vector, unroll, group, columns, threads):
    """The program D = X W transposed for few rows, summed in float32; parameters X (m, k), W, D (m, n).

    W is (n, k), or if `gated` (2 n, k), gates above: D = silu(gate) * factor. k is a multiple of `vector`. A warp makes
    `columns` columns of D, `group` rows at a time, and reads its rows of W once for as many.
    """
    halves = 2 if gated else 1
    m, weights = T.dynamic("m", "int64"), T.dynamic("weights", "int64")
    n, k = T.dynamic("n", "int64"), T.dynamic("k", "int64")
    warps = threads // WARP

    @T.prim_func
    def dots(
        X: T.Tensor[(m, k), dtype],
        W: T.Tensor[(weights, k), dtype],
        D: T.Tensor[(m, n), dtype],
    ):
        with T.Kernel(*column_grid(n, warps * columns), threads=threads, prelude=READ_ONCE) as (near, far):
            T.annotate_min_blocks_per_sm(BLOCKS)
            T.assume(k % vector == 0)
            row = T.alloc_local((group,), "int64")
            line = T.alloc_local((halves * columns,), "int64")
            sums = T.alloc_local((halves * columns * group,), "float32")
            w = T.alloc_local((unroll * halves * columns, vector), dtype)
            x = T.alloc_local((vector,), dtype)
            thread = T.get_thread_binding(0)
            lane = thread % WARP
            column = column_of(near, far, warps * columns) + thread // WARP * columns
            if column < n:
                for c in T.unroll(halves * columns):
                    line[c] = c // columns * n + T.min(column + c % columns, n - 1)
                for part in T.serial(T.ceildiv(m, group)):
                    for r in T.unroll(group):
                        row[r] = T.min(part * group + r, m - 1)
                    rows = T.min(m - part * group, group)
                    dot_rows(X, W, row, rows, line, sums, w, x, halves * columns, group, k, lane, unroll, vector)
                    for r in T.unroll(group):
                        if part * group + r < m and lane == r:
                            write_dots(sums, D, part * group + r, r, column, columns, group, n, gated, dtype)

    return dots
