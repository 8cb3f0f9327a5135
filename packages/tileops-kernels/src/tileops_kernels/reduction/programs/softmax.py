"""Softmax on CUDA: rows held in registers, rows too long for that, and parts of few rows.

Elements are rounded to `through` and widened to float32; the result, or with `log` its logarithm, is rounded once to
`target`. Every size is dynamic and offsets are 64 bits wide. A row with NaN, with plus infinity or of nothing but minus
infinity gives NaN.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import LOWEST, dealt, widened
from tileops_kernels.macros.cuda_exponentials import EXP2, part_of, power, share, weight, weight_of
from tileops_kernels.macros.cuda_rows import (
    KEEP_RESULTS,
    READ_ONCE,
    combine_over_lanes,
    fills_access,
    read_once,
    result_policy,
    warps_of,
    write_result,
)


@T.macro
def read_chunk(x, unroll, vector, X, row, first, lanes, vectors, once):
    """x[k, :] = vector first + k * lanes of a row, for each k below `unroll` whose vector the row has."""
    for k in T.unroll(unroll):
        if first + k * lanes < vectors:
            if once:
                read_once(x, k * vector, X, (row * vectors + first + k * lanes) * vector)
            else:
                for v in T.vectorized(vector):
                    x[k, v] = X[row, first + k * lanes, v]


@T.macro
def take_in_chunk(x, unroll, vector, first, lanes, vectors, source, through, target, largest, earlier, total):
    """Add what read_chunk has read to the `largest` element and the `total` weight beside it; `earlier` is for this."""
    earlier[0] = largest[0]
    for k in T.unroll(unroll):
        if first + k * lanes < vectors:
            for v in T.unroll(vector):
                largest[0] = T.max(largest[0], widened(x[k, v], source, through))
    total[0] *= T.exp(earlier[0] - largest[0])
    for k in T.unroll(unroll):
        if first + k * lanes < vectors:
            for v in T.unroll(vector):
                total[0] += power(widened(x[k, v], source, through) - largest[0], target)


@T.macro
def write_chunk(log, x, y, unroll, vector, Y, row, first, lanes, vectors, source, through, target, largest, shared):
    """Write the parts of what read_chunk has read; `y` is for one vector."""
    for k in T.unroll(unroll):
        if first + k * lanes < vectors:
            for v in T.unroll(vector):
                above = weight(log, widened(x[k, v], source, through) - largest[0], target)
                y[v] = T.cast(part_of(log, above, shared[0]), target)
            for v in T.vectorized(vector):
                Y[row, first + k * lanes, v] = y[v]


@T.macro
def whole_over_lanes(largest, earlier, total, maxima, sums, slot, lane, lanes):
    """`largest` and `total` = those of all threads of a row together, in each of them."""
    earlier[0] = largest[0]
    combine_over_lanes("max", largest, maxima, slot, lane, lanes)
    total[0] *= T.exp(earlier[0] - largest[0])
    combine_over_lanes("sum", total, sums, slot, lane, lanes)


def softmax_on_chip(log, source, through, target, vector, lanes, rows, steps, blocks):
    """Rows of up to `steps * lanes * vector` elements, read once; parameters X and Y (outer, vectors, vector).

    At least `blocks` blocks fit on a multiprocessor, which bounds the registers of a thread.
    """
    outer, vectors = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64")

    @T.macro
    def read_row(X, row, lane, x):
        for k in T.unroll(steps):
            if row < outer and k * lanes + lane < vectors:
                for v in T.vectorized(vector):
                    x[k, v] = X[row, k * lanes + lane, v]

    @T.macro
    def widen(row, lane, x, values, largest):
        for k in T.unroll(steps):
            if row < outer and k * lanes + lane < vectors:
                for v in T.unroll(vector):
                    values[k, v] = widened(x[k, v], source, through)
                    largest[0] = T.max(largest[0], values[k, v])

    @T.macro
    def exponentiate(row, lane, values, largest, total):
        for k in T.unroll(steps):
            if row < outer and k * lanes + lane < vectors:
                for v in T.unroll(vector):
                    values[k, v] = weight(log, values[k, v] - largest[0], target)
                    total[0] += weight_of(log, values[k, v], target)

    @T.prim_func
    def program(X: T.Tensor[(outer, vectors, vector), source], Y: T.Tensor[(outer, vectors, vector), target]):
        with T.Kernel(T.ceildiv(outer, rows), threads=rows * lanes, prelude=EXP2 + KEEP_RESULTS) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((steps, vector), source)
            y = T.alloc_local((1, vector), target)
            values = T.alloc_local((steps, vector), "float32")
            largest = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((2 * rows, warps_of(lanes)), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            policy = result_policy(outer * vectors * vector, vector, target)
            largest[0] = T.float32(LOWEST)
            total[0] = T.float32(0)
            read_row(X, row, lane, x)
            widen(row, lane, x, values, largest)
            combine_over_lanes("max", largest, partial, slot, lane, lanes)
            exponentiate(row, lane, values, largest, total)
            combine_over_lanes("sum", total, partial, rows + slot, lane, lanes)
            total[0] = share(log, total[0], target)
            for k in T.unroll(steps):
                if row < outer and k * lanes + lane < vectors:
                    for v in T.unroll(vector):
                        y[0, v] = T.cast(part_of(log, values[k, v], total[0]), target)
                    write_result(y, 0, vector, Y, (row, k * lanes + lane, 0), policy)

    return program


def softmax_streaming(log, source, through, target, vector, lanes, unroll):
    """Rows of any length, a block for each, read twice; parameters X and Y (outer, vectors, vector).

    The second reading goes backwards, so that it begins with what the caches still hold.
    """
    outer, vectors = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64")
    chunk = lanes * unroll
    once = fills_access(vector, source)

    @T.prim_func
    def program(X: T.Tensor[(outer, vectors, vector), source], Y: T.Tensor[(outer, vectors, vector), target]):
        with T.Kernel(outer, threads=lanes, prelude=EXP2 + READ_ONCE) as block:
            lane = T.get_thread_binding(0)
            row = T.cast(block, "int64")
            x = T.alloc_local((unroll, vector), source)
            y = T.alloc_local((vector,), target)
            largest = T.alloc_local((1,), "float32")
            earlier = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            maxima = T.alloc_shared((1, warps_of(lanes)), "float32")
            sums = T.alloc_shared((1, warps_of(lanes)), "float32")
            largest[0] = T.float32(LOWEST)
            total[0] = T.float32(0)
            for c in T.serial(T.ceildiv(vectors, chunk)):
                first = c * chunk + lane
                read_chunk(x, unroll, vector, X, row, first, lanes, vectors, False)
                take_in_chunk(
                    x, unroll, vector, first, lanes, vectors, source, through, target, largest, earlier, total
                )
            whole_over_lanes(largest, earlier, total, maxima, sums, 0, lane, lanes)
            total[0] = share(log, total[0], target)
            for back in T.serial(T.ceildiv(vectors, chunk)):
                first = (T.ceildiv(vectors, chunk) - 1 - back) * chunk + lane
                read_chunk(x, unroll, vector, X, row, first, lanes, vectors, once)
                write_chunk(
                    log, x, y, unroll, vector, Y, row, first, lanes, vectors, source, through, target, largest, total
                )

    return program


def softmax_weigh(log, source, through, target, vector, lanes, unroll):  # noqa: ARG001 - as all builders here
    """The greatest element and the weight beside it of each part of a row.

    Parameters X (outer, vectors, vector), P (outer, parts, 2). Chunks of `lanes * unroll` vectors go to the parts in
    turn.
    """
    outer, vectors, parts = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64"), T.dynamic("parts", "int64")
    chunk = lanes * unroll

    @T.prim_func
    def program(X: T.Tensor[(outer, vectors, vector), source], P: T.Tensor[(outer, parts, 2), "float32"]):
        with T.Kernel(outer, parts, threads=lanes, prelude=EXP2) as (block, piece):
            lane = T.get_thread_binding(0)
            row = T.cast(block, "int64")
            x = T.alloc_local((unroll, vector), source)
            largest = T.alloc_local((1,), "float32")
            earlier = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            maxima = T.alloc_shared((1, warps_of(lanes)), "float32")
            sums = T.alloc_shared((1, warps_of(lanes)), "float32")
            largest[0] = T.float32(LOWEST)
            total[0] = T.float32(0)
            for c in T.serial(dealt(T.ceildiv(vectors, chunk), piece, parts)):
                first = (c * parts + piece) * chunk + lane
                read_chunk(x, unroll, vector, X, row, first, lanes, vectors, False)
                take_in_chunk(
                    x, unroll, vector, first, lanes, vectors, source, through, target, largest, earlier, total
                )
            whole_over_lanes(largest, earlier, total, maxima, sums, 0, lane, lanes)
            if lane == 0:
                P[row, piece, 0] = largest[0]
                P[row, piece, 1] = total[0]

    return program


def softmax_divide(log, source, through, target, vector, lanes, unroll):
    """The softmax, from what softmax_weigh found of at most `lanes` parts of each row.

    Parameters X (outer, vectors, vector), P (outer, parts, 2), Y (outer, vectors, vector); blocks and chunks as there.
    """
    outer, vectors, parts = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64"), T.dynamic("parts", "int64")
    chunk = lanes * unroll

    @T.prim_func
    def program(
        X: T.Tensor[(outer, vectors, vector), source],
        P: T.Tensor[(outer, parts, 2), "float32"],
        Y: T.Tensor[(outer, vectors, vector), target],
    ):
        with T.Kernel(outer, parts, threads=lanes, prelude=EXP2) as (block, piece):
            lane = T.get_thread_binding(0)
            row = T.cast(block, "int64")
            x = T.alloc_local((unroll, vector), source)
            y = T.alloc_local((vector,), target)
            largest = T.alloc_local((1,), "float32")
            earlier = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            maxima = T.alloc_shared((1, warps_of(lanes)), "float32")
            sums = T.alloc_shared((1, warps_of(lanes)), "float32")
            largest[0] = T.float32(LOWEST)
            total[0] = T.float32(0)
            if lane < parts:
                largest[0] = P[row, lane, 0]
                total[0] = P[row, lane, 1]
            whole_over_lanes(largest, earlier, total, maxima, sums, 0, lane, lanes)
            total[0] = share(log, total[0], target)
            for c in T.serial(dealt(T.ceildiv(vectors, chunk), piece, parts)):
                first = (c * parts + piece) * chunk + lane
                read_chunk(x, unroll, vector, X, row, first, lanes, vectors, False)
                write_chunk(
                    log, x, y, unroll, vector, Y, row, first, lanes, vectors, source, through, target, largest, total
                )

    return program
