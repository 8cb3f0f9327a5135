"""LayerNorm on CUDA: rows held in registers, and rows read twice in chunks.

`rows` rows share a block of `rows * lanes` threads; vector `k` of a row belongs to thread `k % lanes`. Row offsets are
64 bits wide. A mean is kept in two parts, so that rows whose mean is large against their spread lose no digits.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_moments import add_vectors, clear_moments, moments_over_lanes
from tileops_kernels.macros.cuda_rows import (
    KEEP_PACKED,
    keep_packed,
    read_parameter,
    read_vectors,
    warps_of,
    write_vector,
)
from tileops_kernels.macros.row_signatures import program_of_rows


def layer_norm_on_chip(n, dtype, weighted, biased, vector, lanes, rows, blocks):
    """Rows of `n` elements in registers; parameters X (m, n), W (n,) if weighted, B (n,) if biased, Y (m, n), eps.

    The size is m. `vector` elements take 16 bytes. At least `blocks` blocks fit on a multiprocessor, which bounds the
    registers of a thread. Weight and bias are read before the sums are known, which hides their latency.
    """
    m = T.dynamic("m", "int64")
    steps = -(-n // (vector * lanes))
    step = vector * lanes
    whole = n % step == 0

    @T.macro
    def normalize(X, W, B, Y, eps):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes, prelude=KEEP_PACKED) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            first = lane * vector
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((steps, vector), dtype)
            w = T.alloc_local((steps, vector), dtype)
            b = T.alloc_local((steps, vector), dtype)
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            means = T.alloc_shared((rows, 2 * warps_of(lanes)), "float32")
            squares = T.alloc_shared((rows, 2 * warps_of(lanes)), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            read_vectors(x, steps, vector, X, row, first, step, n, whole, rows == 1 or row < m)
            if weighted:
                read_parameter(w, steps, vector, W, first, step, n, whole)
            if biased:
                read_parameter(b, steps, vector, B, first, step, n, whole)
            clear_moments(moments)
            add_vectors(moments, chunk, x, steps, vector, first, step, n, whole, True, True)
            moments_over_lanes(moments, sums, means, squares, slot, lane, lanes)
            scale = T.rsqrt(moments[2] / n + eps)
            for k in T.unroll(steps):
                keep_packed(x, k)
                for v in T.unroll(vector):
                    y = (T.cast(x[k, v], "float32") - moments[1] - sums[1]) * scale
                    if weighted:
                        y = y * T.cast(w[k, v], "float32")
                    if biased:
                        y = y + T.cast(b[k, v], "float32")
                    x[k, v] = T.cast(y, dtype)
                write_vector(x, k, vector, Y, row, first, step, n, whole, rows == 1 or row < m)

    return program_of_rows(normalize, (m, n), (n,), dtype, weighted, biased)


def layer_norm_streaming(n, dtype, weighted, biased, vector, lanes, rows, unroll):
    """Rows of `n` elements read twice, `unroll` vectors a thread at a time; parameters as in layer_norm_on_chip.

    The second reading goes backwards, so that it begins with what the caches still hold.
    """
    m = T.dynamic("m", "int64")
    step = vector * lanes
    length = step * unroll
    chunks = -(-n // length)
    whole = n % length == 0

    @T.macro
    def normalize(X, W, B, Y, eps):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((unroll, vector), dtype)
            w = T.alloc_local((unroll, vector), dtype)
            b = T.alloc_local((unroll, vector), dtype)
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            means = T.alloc_shared((rows, 2 * warps_of(lanes)), "float32")
            squares = T.alloc_shared((rows, 2 * warps_of(lanes)), "float32")
            clear_moments(moments)
            for c in T.serial(chunks):
                first = c * length + lane * vector
                read_vectors(x, unroll, vector, X, row, first, step, n, whole, rows == 1 or row < m)
                add_vectors(moments, chunk, x, unroll, vector, first, step, n, whole, True, False)
            moments_over_lanes(moments, sums, means, squares, slot, lane, lanes)
            scale = T.rsqrt(moments[2] / n + eps)
            for back in T.serial(chunks):
                first = (chunks - 1 - back) * length + lane * vector
                read_vectors(x, unroll, vector, X, row, first, step, n, whole, rows == 1 or row < m)
                if weighted:
                    read_parameter(w, unroll, vector, W, first, step, n, whole)
                if biased:
                    read_parameter(b, unroll, vector, B, first, step, n, whole)
                for k in T.unroll(unroll):
                    for v in T.unroll(vector):
                        y = (T.cast(x[k, v], "float32") - moments[1] - sums[1]) * scale
                        if weighted:
                            y = y * T.cast(w[k, v], "float32")
                        if biased:
                            y = y + T.cast(b[k, v], "float32")
                        x[k, v] = T.cast(y, dtype)
                    write_vector(x, k, vector, Y, row, first, step, n, whole, rows == 1 or row < m)

    return program_of_rows(normalize, (m, n), (n,), dtype, weighted, biased)
