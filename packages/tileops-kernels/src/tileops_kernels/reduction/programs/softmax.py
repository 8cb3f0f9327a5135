"""Softmax on CUDA: rows held in registers, rows too long for that, and columns that lie side by side.

Elements are rounded to `through` and widened to float32; the result, or with `log` its logarithm, is rounded once to
`target`. Every size is dynamic and offsets are 64 bits wide. A row with NaN, with plus infinity or of nothing but minus
infinity gives NaN.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import LOWEST, part, weight, weight_of, widened
from tileops_kernels.macros.cuda_rows import combine_over_lanes, warps_of


def softmax_on_chip(log, source, through, target, vector, lanes, rows, steps):
    """Rows of up to `steps * lanes * vector` elements, read once; parameters X and Y (outer, vectors, vector)."""
    outer, vectors = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64")

    @T.macro
    def read_row(X, row, lane, x, values, largest):
        for k in T.unroll(steps):
            if row < outer and k * lanes + lane < vectors:
                for v in T.vectorized(vector):
                    x[v] = X[row, k * lanes + lane, v]
                for v in T.unroll(vector):
                    values[k, v] = widened(x[v], source, through)
                    largest[0] = T.max(largest[0], values[k, v])

    @T.macro
    def exponentiate(row, lane, values, largest, total):
        for k in T.unroll(steps):
            if row < outer and k * lanes + lane < vectors:
                for v in T.unroll(vector):
                    values[k, v] = weight(log, values[k, v] - largest[0])
                    total[0] += weight_of(log, values[k, v])

    @T.prim_func
    def program(X: T.Tensor[(outer, vectors, vector), source], Y: T.Tensor[(outer, vectors, vector), target]):
        with T.Kernel(T.ceildiv(outer, rows), threads=rows * lanes) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((vector,), source)
            y = T.alloc_local((vector,), target)
            values = T.alloc_local((steps, vector), "float32")
            largest = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            maxima = T.alloc_shared((rows, warps_of(lanes)), "float32")
            sums = T.alloc_shared((rows, warps_of(lanes)), "float32")
            largest[0] = T.float32(LOWEST)
            total[0] = T.float32(0)
            read_row(X, row, lane, x, values, largest)
            combine_over_lanes("max", largest, maxima, slot, lane, lanes)
            exponentiate(row, lane, values, largest, total)
            combine_over_lanes("sum", total, sums, slot, lane, lanes)
            if log:
                total[0] = T.log(total[0])
            for k in T.unroll(steps):
                if row < outer and k * lanes + lane < vectors:
                    for v in T.unroll(vector):
                        y[v] = T.cast(part(log, values[k, v], total[0]), target)
                    for v in T.vectorized(vector):
                        Y[row, k * lanes + lane, v] = y[v]

    return program


def softmax_streaming(log, source, through, target, vector, lanes, unroll):
    """Rows of any length, a block for each, read twice; parameters X and Y (outer, vectors, vector).

    The second reading goes backwards, so that it begins with what the caches still hold.
    """
    outer, vectors = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64")
    chunk = lanes * unroll

    @T.macro
    def read_chunk(X, row, lane, c, x):
        for k in T.unroll(unroll):
            if c * chunk + k * lanes + lane < vectors:
                for v in T.vectorized(vector):
                    x[k, v] = X[row, c * chunk + k * lanes + lane, v]

    @T.macro
    def take_in_chunk(lane, c, x, largest, earlier, total):
        earlier[0] = largest[0]
        for k in T.unroll(unroll):
            if c * chunk + k * lanes + lane < vectors:
                for v in T.unroll(vector):
                    largest[0] = T.max(largest[0], widened(x[k, v], source, through))
        total[0] *= T.exp(earlier[0] - largest[0])
        for k in T.unroll(unroll):
            if c * chunk + k * lanes + lane < vectors:
                for v in T.unroll(vector):
                    total[0] += T.exp(widened(x[k, v], source, through) - largest[0])

    @T.prim_func
    def program(X: T.Tensor[(outer, vectors, vector), source], Y: T.Tensor[(outer, vectors, vector), target]):
        with T.Kernel(outer, threads=lanes) as block:
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
                read_chunk(X, row, lane, c, x)
                take_in_chunk(lane, c, x, largest, earlier, total)
            earlier[0] = largest[0]
            combine_over_lanes("max", largest, maxima, 0, lane, lanes)
            total[0] *= T.exp(earlier[0] - largest[0])
            combine_over_lanes("sum", total, sums, 0, lane, lanes)
            if log:
                total[0] = T.log(total[0])
            for back in T.serial(T.ceildiv(vectors, chunk)):
                c = T.ceildiv(vectors, chunk) - 1 - back
                read_chunk(X, row, lane, c, x)
                for k in T.unroll(unroll):
                    if c * chunk + k * lanes + lane < vectors:
                        for v in T.unroll(vector):
                            above = weight(log, widened(x[k, v], source, through) - largest[0])
                            y[v] = T.cast(part(log, above, total[0]), target)
                        for v in T.vectorized(vector):
                            Y[row, c * chunk + k * lanes + lane, v] = y[v]

    return program


def softmax_columns(log, source, through, target, vector, across, down, unroll):
    """Columns, read twice; parameters X and Y (outer, reduced, vectors, vector).

    Threads run over the vectors of all outer slices, `across` of them in a block; `down` threads share a vector and
    read `unroll` of its rows at a time.
    """
    outer, reduced, vectors = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("vectors", "int64")

    @T.macro
    def read_rows(X, place, j, first, x):
        for k in T.unroll(unroll):
            if place < outer and first + k * down < reduced:
                for v in T.vectorized(vector):
                    x[k, v] = X[place, first + k * down, j, v]

    @T.macro
    def take_in_rows(place, first, x, largest, earlier, total):
        for v in T.unroll(vector):
            earlier[v] = largest[v]
        for k in T.unroll(unroll):
            if place < outer and first + k * down < reduced:
                for v in T.unroll(vector):
                    largest[v] = T.max(largest[v], widened(x[k, v], source, through))
        for v in T.unroll(vector):
            total[v] *= T.exp(earlier[v] - largest[v])
        for k in T.unroll(unroll):
            if place < outer and first + k * down < reduced:
                for v in T.unroll(vector):
                    total[v] += T.exp(widened(x[k, v], source, through) - largest[v])

    @T.macro
    def merge(maxima, sums, slot, lane, largest, total):
        for v in T.unroll(vector):
            maxima[slot, lane, v] = largest[v]
            sums[slot, lane, v] = total[v]
        T.sync_threads()
        for v in T.unroll(vector):
            for other in T.serial(down):
                largest[v] = T.max(largest[v], maxima[other, lane, v])
            total[v] = T.float32(0)
            for other in T.serial(down):
                total[v] += sums[other, lane, v] * T.exp(maxima[other, lane, v] - largest[v])
            if log:
                total[v] = T.log(total[v])

    @T.macro
    def write_rows(Y, place, j, first, x, y, largest, total):
        for k in T.unroll(unroll):
            if place < outer and first + k * down < reduced:
                for v in T.unroll(vector):
                    above = weight(log, widened(x[k, v], source, through) - largest[v])
                    y[v] = T.cast(part(log, above, total[v]), target)
                for v in T.vectorized(vector):
                    Y[place, first + k * down, j, v] = y[v]

    @T.prim_func
    def program(
        X: T.Tensor[(outer, reduced, vectors, vector), source], Y: T.Tensor[(outer, reduced, vectors, vector), target]
    ):
        with T.Kernel(T.ceildiv(outer * vectors, across), threads=across * down) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // across, thread % across
            index = T.cast(block, "int64") * across + lane
            place, j = T.truncdiv(index, vectors), T.truncmod(index, vectors)
            x = T.alloc_local((unroll, vector), source)
            y = T.alloc_local((vector,), target)
            largest = T.alloc_local((vector,), "float32")
            earlier = T.alloc_local((vector,), "float32")
            total = T.alloc_local((vector,), "float32")
            maxima = T.alloc_shared((down, across, vector), "float32")
            sums = T.alloc_shared((down, across, vector), "float32")
            for v in T.unroll(vector):
                largest[v] = T.float32(LOWEST)
                total[v] = T.float32(0)
            for c in T.serial(T.ceildiv(reduced, down * unroll)):
                read_rows(X, place, j, c * (down * unroll) + slot, x)
                take_in_rows(place, c * (down * unroll) + slot, x, largest, earlier, total)
            merge(maxima, sums, slot, lane, largest, total)
            for c in T.serial(T.ceildiv(reduced, down * unroll)):
                read_rows(X, place, j, c * (down * unroll) + slot, x)
                write_rows(Y, place, j, c * (down * unroll) + slot, x, y, largest, total)

    return program
