"""Norms of short rows in half precision on CUDA: `each` rows for every group of threads, which has them in registers.

A block of `rows * lanes` threads, `lanes` at most a warp, takes `rows * each` rows; vector `k` of a row belongs to
thread `k % lanes` of a group. Rows share what scales and shifts them, which a thread reads once. Row offsets are 64
bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_moments import split_mean
from tileops_kernels.macros.cuda_rows import KEEP_RESULTS, read_parameter, result_policy, write_result
from tileops_kernels.macros.row_signatures import program_of_rows


@T.macro
def add_over_warp(totals, count, lanes):
    """totals[i] = the sum of totals[i] over the `lanes` threads of a group, for each i below count."""
    for step in T.unroll(lanes.bit_length() - 1):
        for i in T.unroll(count):
            totals[i] += T.shfl_xor(totals[i], 1 << step)


def short_rows(
    n, dtype, vector, lanes, rows, each, blocks, weighted, biased=False, centered=True, scales=None, late=False
):
    """Rows of `n` elements; the parameters are those of program_of_rows, and the size is m.

    A row is divided by its standard deviation about the mean where `centered`, else by its root mean square. `vector`
    elements, which divide a row, take at most 16 bytes. At least `blocks` blocks fit on a multiprocessor, which bounds
    the registers of a thread. Scales and shifts are read before the sums are known, or else `late`.
    """
    m = T.dynamic("m", "int64")
    steps = -(-n // (vector * lanes))
    step = vector * lanes
    whole = n % step == 0
    scales = scales or dtype

    @T.macro
    def read_rows(x, X, first, lane):
        for e in T.unroll(each):
            for k in T.unroll(steps):
                if first + e * rows < m and (whole or (k * lanes + lane) * vector < n):
                    for v in T.vectorized(vector):
                        x[e * steps + k, v] = X[first + e * rows, (k * lanes + lane) * vector + v]

    @T.macro
    def add_elements(values, x, totals, lane):
        """Widen x to values; totals[e] = the sum of what a thread has of row e."""
        for e in T.unroll(each):
            totals[e] = T.float32(0)
            for k in T.unroll(steps):
                if whole or (k * lanes + lane) * vector < n:
                    part = T.alloc_var("float32")
                    part = T.float32(0)
                    for v in T.unroll(vector):
                        values[e * steps + k, v] = T.cast(x[e * steps + k, v], "float32")
                        part += values[e * steps + k, v]
                    totals[e] += part

    @T.macro
    def add_squares(values, means, totals, lane):
        """Take means[e] from values; totals[e] = the sum of the squares of what a thread then has of row e."""
        for e in T.unroll(each):
            totals[e] = T.float32(0)
            for k in T.unroll(steps):
                if whole or (k * lanes + lane) * vector < n:
                    part = T.alloc_var("float32")
                    part = T.float32(0)
                    for v in T.unroll(vector):
                        if centered:
                            values[e * steps + k, v] -= means[e]
                        part += values[e * steps + k, v] * values[e * steps + k, v]
                    totals[e] += part

    @T.macro
    def scale_rows(Y, x, values, w, b, totals, rests, first, lane, policy):
        for e in T.unroll(each):
            for k in T.unroll(steps):
                if first + e * rows < m and (whole or (k * lanes + lane) * vector < n):
                    for v in T.unroll(vector):
                        value = values[e * steps + k, v] * totals[e]
                        if centered:
                            value = value - rests[e]
                        if weighted:
                            value = value * T.cast(w[k, v], "float32")
                        if biased:
                            value = value + T.cast(b[k, v], "float32")
                        x[e * steps + k, v] = T.cast(value, dtype)
                    place = first + e * rows, (k * lanes + lane) * vector
                    write_result(x, e * steps + k, vector, Y, place, policy)

    @T.macro
    def normalize(X, _R, W, B, _G, Y, _S, eps):
        with T.Kernel(T.ceildiv(m, rows * each), threads=rows * lanes, prelude=KEEP_RESULTS) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            first = T.cast(block, "int64") * (rows * each) + slot
            x = T.alloc_local((each * steps, vector), dtype)
            w = T.alloc_local((steps, vector), scales)
            b = T.alloc_local((steps, vector), scales)
            values = T.alloc_local((each * steps, vector), "float32")
            means = T.alloc_local((each,), "float32")
            rests = T.alloc_local((each,), "float32")
            totals = T.alloc_local((each,), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            read_rows(x, X, first, lane)
            if weighted and not late:
                read_parameter(w, steps, vector, W, lane * vector, step, n, whole)
            if biased and not late:
                read_parameter(b, steps, vector, B, lane * vector, step, n, whole)
            add_elements(values, x, totals, lane)
            if centered:
                add_over_warp(totals, each, lanes)
                for e in T.unroll(each):
                    split_mean(means, rests, e, totals[e], T.float32(n), T.float32(1 / n))
            add_squares(values, means, totals, lane)
            add_over_warp(totals, each, lanes)
            for e in T.unroll(each):
                if centered:
                    squares = totals[e] - rests[e] * rests[e] * T.float32(n)
                    totals[e] = T.if_then_else(squares < T.float32(0), T.float32(0), squares)
                totals[e] = T.rsqrt(totals[e] / n + eps)
                if centered:
                    rests[e] *= totals[e]
            if weighted and late:
                read_parameter(w, steps, vector, W, lane * vector, step, n, whole)
            if biased and late:
                read_parameter(b, steps, vector, B, lane * vector, step, n, whole)
            scale_rows(Y, x, values, w, b, totals, rests, first, lane, result_policy(m * n, vector, dtype))

    return program_of_rows(normalize, (m, n), (n,), dtype, scales, weighted, biased)
