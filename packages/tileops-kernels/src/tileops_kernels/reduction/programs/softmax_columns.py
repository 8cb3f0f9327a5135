"""Softmax on CUDA of columns side by side: those that a block holds in registers, read once, and longer ones.

Elements, results and sizes are as in `softmax.py`. Parameters are X, Y and the divisor that is the vectors of a row.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import LOWEST, combine, widened
from tileops_kernels.macros.cuda_exponentials import EXP2, part_of, power, share, weight, weight_of
from tileops_kernels.macros.cuda_rows import READ_ONCE, WARP, fills_access, read_once
from tileops_kernels.macros.division import quotient


def softmax_columns_on_chip(log, source, through, target, vector, across, down, unroll):
    """Columns of up to `down * unroll` elements; X and Y are (outer, reduced, vectors, vector).

    `across`, a power of two of at most a warp, threads beside each other and `down`, another, below each other make a
    block; a thread holds `unroll` rows of its vector.
    """
    outer, reduced, vectors = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("vectors", "int64")
    once = fills_access(vector, source)
    together = min(WARP // across, down)
    groups = down // together

    @T.macro
    def read_rows(X, place, j, slot, x):
        for k in T.unroll(unroll):
            if place < outer and slot + k * down < reduced:
                if once:
                    read_once(x, k * vector, X, ((place * reduced + slot + k * down) * vectors + j) * vector)
                else:
                    for v in T.vectorized(vector):
                        x[k, v] = X[place, slot + k * down, j, v]

    @T.macro
    def widen(place, slot, x, values, largest):
        for k in T.unroll(unroll):
            if place < outer and slot + k * down < reduced:
                for v in T.unroll(vector):
                    values[k, v] = widened(x[k, v], source, through)
                    largest[v] = T.max(largest[v], values[k, v])

    @T.macro
    def exponentiate(place, slot, values, largest, total):
        for k in T.unroll(unroll):
            if place < outer and slot + k * down < reduced:
                for v in T.unroll(vector):
                    values[k, v] = weight(log, values[k, v] - largest[v], target)
                    total[v] += weight_of(log, values[k, v], target)

    @T.macro
    def combine_columns(operation, kept, partial, step, slot, lane):
        """kept[v] = `operation` over the threads below each other, in each of them, by way of partial[step]."""
        for half in T.unroll(together.bit_length() - 1):
            for v in T.unroll(vector):
                kept[v] = combine(operation, kept[v], T.shfl_xor(kept[v], across << half))
        if groups > 1:
            if slot % together == 0:
                for v in T.unroll(vector):
                    partial[step, v, slot // together, lane] = kept[v]
            T.sync_threads()
            for v in T.unroll(vector):
                kept[v] = partial[step, v, 0, lane]
                for group in T.unroll(groups - 1):
                    kept[v] = combine(operation, kept[v], partial[step, v, group + 1, lane])

    @T.macro
    def write_rows(Y, place, j, slot, values, y, total):
        for k in T.unroll(unroll):
            if place < outer and slot + k * down < reduced:
                for v in T.unroll(vector):
                    y[v] = T.cast(part_of(log, values[k, v], total[v]), target)
                T.assume(place >= 0 and j >= 0 and j < vectors)
                for v in T.vectorized(vector):
                    Y[place, slot + k * down, j, v] = y[v]

    @T.prim_func
    def program(
        X: T.Tensor[(outer, reduced, vectors, vector), source],
        Y: T.Tensor[(outer, reduced, vectors, vector), target],
        factor: T.int64,
        shift: T.int32,
    ):
        with T.Kernel(T.ceildiv(outer * vectors, across), threads=across * down, prelude=EXP2 + READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // across, thread % across
            index = T.cast(block, "int64") * across + lane
            place = quotient(index, factor, shift)
            j = index - place * vectors
            x = T.alloc_local((unroll, vector), source)
            y = T.alloc_local((vector,), target)
            values = T.alloc_local((unroll, vector), "float32")
            largest = T.alloc_local((vector,), "float32")
            total = T.alloc_local((vector,), "float32")
            partial = T.alloc_shared((2, vector, groups, across), "float32")
            for v in T.unroll(vector):
                largest[v] = T.float32(LOWEST)
                total[v] = T.float32(0)
            read_rows(X, place, j, slot, x)
            widen(place, slot, x, values, largest)
            combine_columns("max", largest, partial, 0, slot, lane)
            exponentiate(place, slot, values, largest, total)
            combine_columns("sum", total, partial, 1, slot, lane)
            for v in T.unroll(vector):
                total[v] = share(log, total[v], target)
            write_rows(Y, place, j, slot, values, y, total)

    return program


def softmax_columns(log, source, through, target, vector, across, down, unroll):
    """Columns, read twice; X and Y are (outer, reduced, vectors, vector).

    Threads run over the vectors of all outer slices, `across` of them in a block; `down` threads, a power of two, share
    a vector and read `unroll` of its rows at a time.
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
                    total[v] += power(widened(x[k, v], source, through) - largest[v], target)

    @T.macro
    def merge(maxima, sums, slot, lane, largest, earlier, total):
        for v in T.unroll(vector):
            maxima[v, slot, lane] = largest[v]
            sums[v, slot, lane] = total[v]
        for step in T.unroll(down.bit_length() - 1):
            T.sync_threads()
            if slot < down >> (step + 1):
                for v in T.unroll(vector):
                    earlier[v] = largest[v]
                    largest[v] = T.max(largest[v], maxima[v, slot + (down >> (step + 1)), lane])
                    total[v] *= T.exp(earlier[v] - largest[v])
                    total[v] += sums[v, slot + (down >> (step + 1)), lane] * T.exp(
                        maxima[v, slot + (down >> (step + 1)), lane] - largest[v]
                    )
                    maxima[v, slot, lane] = largest[v]
                    sums[v, slot, lane] = total[v]
        T.sync_threads()
        for v in T.unroll(vector):
            largest[v] = maxima[v, 0, lane]
            total[v] = share(log, sums[v, 0, lane], target)

    @T.macro
    def write_rows(Y, place, j, first, x, y, largest, total):
        for k in T.unroll(unroll):
            if place < outer and first + k * down < reduced:
                for v in T.unroll(vector):
                    above = weight(log, widened(x[k, v], source, through) - largest[v], target)
                    y[v] = T.cast(part_of(log, above, total[v]), target)
                T.assume(place >= 0 and j >= 0 and j < vectors)
                for v in T.vectorized(vector):
                    Y[place, first + k * down, j, v] = y[v]

    @T.prim_func
    def program(
        X: T.Tensor[(outer, reduced, vectors, vector), source],
        Y: T.Tensor[(outer, reduced, vectors, vector), target],
        factor: T.int64,
        shift: T.int32,
    ):
        with T.Kernel(T.ceildiv(outer * vectors, across), threads=across * down, prelude=EXP2) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // across, thread % across
            index = T.cast(block, "int64") * across + lane
            place = quotient(index, factor, shift)
            j = index - place * vectors
            x = T.alloc_local((unroll, vector), source)
            y = T.alloc_local((vector,), target)
            largest = T.alloc_local((vector,), "float32")
            earlier = T.alloc_local((vector,), "float32")
            total = T.alloc_local((vector,), "float32")
            maxima = T.alloc_shared((vector, down, across), "float32")
            sums = T.alloc_shared((vector, down, across), "float32")
            for v in T.unroll(vector):
                largest[v] = T.float32(LOWEST)
                total[v] = T.float32(0)
            for c in T.serial(T.ceildiv(reduced, down * unroll)):
                read_rows(X, place, j, c * (down * unroll) + slot, x)
                take_in_rows(place, c * (down * unroll) + slot, x, largest, earlier, total)
            merge(maxima, sums, slot, lane, largest, earlier, total)
            for c in T.serial(T.ceildiv(reduced, down * unroll)):
                read_rows(X, place, j, c * (down * unroll) + slot, x)
                write_rows(Y, place, j, c * (down * unroll) + slot, x, y, largest, total)

    return program
