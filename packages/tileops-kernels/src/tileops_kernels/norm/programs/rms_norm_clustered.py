"""RMSNorm on CUDA of rows that a cluster of blocks holds in registers, so that they are read once."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_clusters import CLUSTERS, arrive, clear_told, tell, wait
from tileops_kernels.macros.cuda_rows import (
    KEEP_PACKED,
    KEEP_RESULTS,
    add_over_lanes,
    add_squares,
    keep_packed,
    read_parameter,
    read_vectors,
    result_policy,
    warps_of,
    write_vector,
)
from tileops_kernels.macros.row_signatures import program_of_rows


def rms_norm_clustered(n, dtype, weighted, vector, lanes, steps, blocks, cluster, scales=None):
    """Rows of up to `cluster * steps * lanes * vector` elements; the parameters are those of program_of_rows, size m.

    Vectors of 16 bytes go to the `cluster` blocks of a row in turn, `lanes` at a time; each block tells all of them its
    sum of squares. At least `blocks` blocks fit on a multiprocessor, which bounds the registers of a thread: a weight
    is read vector by vector when the row is written. Row offsets are 64 bits wide.
    """
    m = T.dynamic("m", "int64")
    step = cluster * lanes * vector
    whole = n == steps * step
    scales = scales or dtype

    @T.macro
    def normalize(X, _R, W, _B, _G, Y, _S, eps):
        with T.Kernel(
            m * cluster, threads=lanes, prelude=KEEP_PACKED + KEEP_RESULTS + CLUSTERS, cluster_dims=cluster
        ) as block:
            lane = T.get_thread_binding(0)
            row, rank = T.cast(block // cluster, "int64"), block % cluster
            first = (rank * lanes + lane) * vector
            x = T.alloc_local((steps, vector), dtype)
            w = T.alloc_local((1, vector), scales)
            total = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((1, warps_of(lanes)), "float32")
            told = T.alloc_shared((1, cluster), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            policy = result_policy(m * n, vector, dtype)
            clear_told(told, 1, cluster, lane)
            arrive()
            read_vectors(x, steps, vector, X, row, first, step, n, whole, True)
            total[0] = T.float32(0)
            add_squares(total, x, steps, vector, first, step, n, whole)
            add_over_lanes(total, partial, 0, lane, lanes)
            wait()
            if lane < cluster:
                tell(told, 0, rank, total[0], lane)
            arrive()
            wait()
            total[0] = T.float32(0)
            for other in T.unroll(cluster):
                total[0] += told[0, other]
            scale = T.rsqrt(total[0] / n + eps)
            for k in T.unroll(steps):
                if weighted:
                    read_parameter(w, 1, vector, W, first + k * step, step, n, whole)
                keep_packed(x, k)
                for v in T.unroll(vector):
                    value = T.cast(x[k, v], "float32") * scale
                    if weighted:
                        value = value * T.cast(w[0, v], "float32")
                    x[k, v] = T.cast(value, dtype)
                write_vector(x, k, vector, Y, row, first, step, n, whole, True, policy)

    return program_of_rows(normalize, (m, n), (n,), dtype, scales, weighted, False)
