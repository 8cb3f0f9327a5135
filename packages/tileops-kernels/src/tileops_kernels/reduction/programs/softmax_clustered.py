"""Softmax on CUDA of rows that a cluster of blocks holds in registers, so that they are read once.

As `tileops_kernels.reduction.programs.softmax` otherwise.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import LOWEST, widened
from tileops_kernels.macros.cuda_clusters import CLUSTERS, arrive, clear_told, tell, wait
from tileops_kernels.macros.cuda_exponentials import EXP2, part_of, power, share, weight
from tileops_kernels.macros.cuda_rows import (
    KEEP_PACKED,
    KEEP_RESULTS,
    combine_over_lanes,
    fills_access,
    keep_packed,
    result_policy,
    warps_of,
    write_result,
)


def softmax_clustered(log, source, through, target, vector, lanes, steps, blocks, cluster):
    """Rows of up to `cluster * steps * lanes * vector` elements; parameters X and Y (outer, vectors, vector).

    Vectors go to the `cluster` blocks of a row in turn, `lanes` at a time. Each finds its greatest element and the
    weight beside it, and tells them all. At least `blocks` blocks fit on a multiprocessor, which bounds the registers
    of a thread: elements are kept as they were read, and their exponentials are taken twice.
    """
    outer, vectors = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64")
    packed = fills_access(vector, source)

    @T.macro
    def read_part(X, row, first, x):
        for k in T.unroll(steps):
            if first + k * (cluster * lanes) < vectors:
                for v in T.vectorized(vector):
                    x[k, v] = X[row, first + k * (cluster * lanes), v]

    @T.macro
    def find_largest(first, x, largest):
        for k in T.unroll(steps):
            if first + k * (cluster * lanes) < vectors:
                for v in T.unroll(vector):
                    largest[0] = T.max(largest[0], widened(x[k, v], source, through))

    @T.macro
    def add_weights(first, x, largest, total):
        for k in T.unroll(steps):
            if first + k * (cluster * lanes) < vectors:
                if packed:
                    keep_packed(x, k)
                for v in T.unroll(vector):
                    total[0] += power(widened(x[k, v], source, through) - largest[0], target)

    @T.macro
    def join_blocks(told, largest, total):
        for rank in T.unroll(cluster):
            largest[0] = T.max(largest[0], told[0, rank])
        total[0] = T.float32(0)
        for rank in T.unroll(cluster):
            total[0] += told[1, rank] * T.exp(told[0, rank] - largest[0])

    @T.macro
    def write_part(Y, row, first, x, y, largest, shared, policy):
        for k in T.unroll(steps):
            if first + k * (cluster * lanes) < vectors:
                if packed:
                    keep_packed(x, k)
                for v in T.unroll(vector):
                    above = weight(log, widened(x[k, v], source, through) - largest[0], target)
                    y[0, v] = T.cast(part_of(log, above, shared[0]), target)
                write_result(y, 0, vector, Y, (row, first + k * (cluster * lanes), 0), policy)

    @T.prim_func
    def program(X: T.Tensor[(outer, vectors, vector), source], Y: T.Tensor[(outer, vectors, vector), target]):
        with T.Kernel(
            outer * cluster, threads=lanes, prelude=EXP2 + KEEP_PACKED + KEEP_RESULTS + CLUSTERS, cluster_dims=cluster
        ) as block:
            lane = T.get_thread_binding(0)
            row, rank = T.cast(block // cluster, "int64"), block % cluster
            first = rank * lanes + lane
            x = T.alloc_local((steps, vector), source)
            y = T.alloc_local((1, vector), target)
            largest = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((2, warps_of(lanes)), "float32")
            told = T.alloc_shared((2, cluster), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            policy = result_policy(outer * vectors * vector, vector, target)
            clear_told(told, 2, cluster, lane)
            arrive()
            largest[0] = T.float32(LOWEST)
            total[0] = T.float32(0)
            read_part(X, row, first, x)
            find_largest(first, x, largest)
            combine_over_lanes("max", largest, partial, 0, lane, lanes)
            add_weights(first, x, largest, total)
            combine_over_lanes("sum", total, partial, 1, lane, lanes)
            wait()
            if lane < cluster:
                tell(told, 0, rank, largest[0], lane)
                tell(told, 1, rank, total[0], lane)
            arrive()
            wait()
            join_blocks(told, largest, total)
            total[0] = share(log, total[0], target)
            write_part(Y, row, first, x, y, largest, total, policy)

    return program
