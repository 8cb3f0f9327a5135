"""RMSNorm on CUDA: a row kept in registers and read once, or read twice in chunks.

A block of `rows * lanes` threads takes `rows` rows, `lanes` threads each. A thread moves `vector` elements at a time,
which must divide the row; vector `k` of a row belongs to thread `k % lanes`. Row offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_rows import (
    KEEP_PACKED,
    add_over_lanes,
    keep_packed,
    read_parameter,
    read_vectors,
    warps_of,
    write_vector,
)
from tileops_kernels.macros.row_signatures import program_of_rows


def rms_norm_on_chip(n, dtype, weighted, vector, lanes, rows, blocks):
    """Rows of `n` elements in registers; parameters X (m, n), W (n,) if weighted, Y (m, n), eps; size m.

    `vector` elements take 16 bytes. At least `blocks` blocks fit on a multiprocessor, which bounds the registers of a
    thread. The weight is read before the sum is known, which hides its latency.
    """
    m = T.dynamic("m", "int64")
    steps = -(-n // (vector * lanes))
    step = vector * lanes
    whole = n % step == 0

    @T.macro
    def normalize(X, W, _B, Y, eps):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes, prelude=KEEP_PACKED) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            first = lane * vector
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((steps, vector), dtype)
            w = T.alloc_local((steps, vector), dtype)
            scale = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((rows, warps_of(lanes)), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            read_vectors(x, steps, vector, X, row, first, step, n, whole, rows == 1 or row < m)
            if weighted:
                read_parameter(w, steps, vector, W, first, step, n, whole)
            scale[0] = T.float32(0)
            for k in T.unroll(steps):
                if whole or first + k * step < n:
                    for v in T.unroll(vector):
                        scale[0] += T.cast(x[k, v], "float32") * T.cast(x[k, v], "float32")
            add_over_lanes(scale, partial, slot, lane, lanes)
            scale[0] = T.rsqrt(scale[0] / n + eps)
            for k in T.unroll(steps):
                keep_packed(x, k)
                for v in T.unroll(vector):
                    y = T.cast(x[k, v], "float32") * scale[0]
                    if weighted:
                        y = y * T.cast(w[k, v], "float32")
                    x[k, v] = T.cast(y, dtype)
                write_vector(x, k, vector, Y, row, first, step, n, whole, rows == 1 or row < m)

    return program_of_rows(normalize, (m, n), (n,), dtype, weighted, False)


def rms_norm_streaming(n, dtype, weighted, vector, lanes, rows, unroll):
    """Rows of `n` elements read twice, `unroll` vectors a thread at a time; parameters as in rms_norm_on_chip.

    The second reading goes backwards, so that it begins with what the caches still hold.
    """
    m = T.dynamic("m", "int64")
    step = vector * lanes
    length = step * unroll
    chunks = -(-n // length)
    whole = n % length == 0

    @T.macro
    def normalize(X, W, _B, Y, eps):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((unroll, vector), dtype)
            w = T.alloc_local((unroll, vector), dtype)
            scale = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((rows, warps_of(lanes)), "float32")
            scale[0] = T.float32(0)
            for c in T.serial(chunks):
                first = c * length + lane * vector
                read_vectors(x, unroll, vector, X, row, first, step, n, whole, rows == 1 or row < m)
                for k in T.unroll(unroll):
                    if whole or first + k * step < n:
                        for v in T.unroll(vector):
                            scale[0] += T.cast(x[k, v], "float32") * T.cast(x[k, v], "float32")
            add_over_lanes(scale, partial, slot, lane, lanes)
            scale[0] = T.rsqrt(scale[0] / n + eps)
            for back in T.serial(chunks):
                first = (chunks - 1 - back) * length + lane * vector
                read_vectors(x, unroll, vector, X, row, first, step, n, whole, rows == 1 or row < m)
                if weighted:
                    read_parameter(w, unroll, vector, W, first, step, n, whole)
                for k in T.unroll(unroll):
                    for v in T.unroll(vector):
                        y = T.cast(x[k, v], "float32") * scale[0]
                        if weighted:
                            y = y * T.cast(w[k, v], "float32")
                        x[k, v] = T.cast(y, dtype)
                    write_vector(x, k, vector, Y, row, first, step, n, whole, rows == 1 or row < m)

    return program_of_rows(normalize, (m, n), (n,), dtype, weighted, False)
