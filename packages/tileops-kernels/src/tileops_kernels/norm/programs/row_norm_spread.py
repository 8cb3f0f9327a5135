"""LayerNorm of few rows on CUDA: a block for each and a thread for each access, and bits as among many rows."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_moments import (
    clear_moments,
    differences_of_vector,
    merge_differences,
    merge_moments,
    moments_over_lanes,
    squares_of_vector,
    sum_of_vector,
)
from tileops_kernels.macros.cuda_rows import read_parameter, read_vectors, warps_of, write_vector
from tileops_kernels.macros.row_signatures import program_of_rows
from tileops_kernels.norm.programs.row_norm import scale_vector


def row_norm_spread(n, dtype, vector, lanes, weighted, biased, scales=None, lean=False):
    """Rows of `n` elements, a block for each and a thread for each access; parameters as in row_norm_on_chip.

    What `lanes` threads of that program add up one access after another is added up in the same order here: each thread
    gives the sums of its access, and of those the first `lanes` threads, several warps, form the moments of the row.
    """
    m = T.dynamic("m", "int64")
    steps = -(-n // (vector * lanes))
    whole = n % (vector * lanes) == 0
    scales = scales or dtype

    @T.macro
    def collect(total, parts, i, lane):
        """total[i + 1] = the sum of parts[i] over the accesses of a lane."""
        total[i + 1] = T.float32(0)
        for k in T.unroll(steps):
            if whole or (k * lanes + lane) * vector < n:
                total[i + 1] += parts[i, k * lanes + lane]

    @T.macro
    def moments_of_lane(moments, chunk, x, parts, pivot, thread, lane):
        """`moments` = those of a lane's accesses, in the first threads."""
        clear_moments(chunk)
        clear_moments(moments)
        for k in T.unroll(steps):
            if whole or (k * lanes + lane) * vector < n:
                chunk[0] += T.float32(vector)
        if whole or thread * vector < n:
            if lean:
                parts[0, thread] = differences_of_vector(x, 0, vector, pivot[0])
                parts[1, thread] = squares_of_vector(x, 0, vector, pivot[0])
            else:
                parts[0, thread] = sum_of_vector(x, 0, vector)
        T.sync_threads()
        if not lean:
            collect(chunk, parts, 0, lane)
            chunk[1] = chunk[1] / chunk[0]
            if whole or thread * vector < n:
                parts[1, thread] = squares_of_vector(x, 0, vector, chunk[1])
            T.sync_threads()
        if thread < lanes:
            collect(chunk, parts, 1, lane)
            if lean:
                collect(chunk, parts, 0, lane)
                merge_differences(moments, chunk, pivot[0])
            else:
                merge_moments(moments, chunk[0], chunk[1], chunk[2])

    @T.macro
    def normalize(X, R, W, B, G, Y, S, eps):  # noqa: ARG001 - what program_of_rows gives
        with T.Kernel(m, threads=steps * lanes) as block:
            thread = T.get_thread_binding(0)
            row, lane, first = T.cast(block, "int64"), thread % lanes, thread * vector
            x = T.alloc_local((1, vector), dtype)
            w = T.alloc_local((1, vector), scales)
            b = T.alloc_local((1, vector), scales)
            pivot = T.alloc_local((1,), "float32")
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            parts = T.alloc_shared((2, steps * lanes), "float32")
            means = T.alloc_shared((1, 2 * warps_of(lanes)), "float32")
            squares = T.alloc_shared((1, 2 * warps_of(lanes)), "float32")
            read_vectors(x, 1, vector, X, row, first, 0, n, whole, True)
            if weighted:
                read_parameter(w, 1, vector, W, first, 0, n, whole)
            if biased:
                read_parameter(b, 1, vector, B, first, 0, n, whole)
            if lean:
                pivot[0] = T.cast(X[row, lane * vector], "float32")
            moments_of_lane(moments, chunk, x, parts, pivot, thread, lane)
            moments_over_lanes(moments, sums, means, squares, 0, thread, lanes, T.float32(n), others=True)
            scale = T.rsqrt(moments[2] / n + eps)
            if lean:
                sums[1] *= scale
            scale_vector(x, x, 0, vector, moments, sums, scale, w, b, b, dtype, weighted, biased, False, True, 0, lean)
            write_vector(x, 0, vector, Y, row, first, 0, n, whole, True)

    return program_of_rows(normalize, (m, n), (n,), dtype, scales, weighted, biased)
