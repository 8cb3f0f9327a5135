"""Reductions on CUDA: rows that lie together, and columns that lie side by side.

Elements are rounded to `through`, widened and combined by `operation`; `of` says what an element contributes, `gives`
what becomes of the whole. A block combines in float32, in int64 for integers, or in int32 for truths, of which it reads
fewer than that counts. The result is rounded once to `target`. A mean has one more parameter, the number of elements.
An access is `width` values: `vector` elements, or the words of complex ones.
Every size is dynamic and offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import (
    combine,
    contribution,
    dealt,
    element_of,
    identity,
    outcome,
    own,
    reduction,
    stored,
    words_of,
)
from tileops_kernels.macros.cuda_rows import READ_ONCE, combine_over_lanes, fills_access, read_once, warps_of


def reduce_rows(operation, of, gives, source, through, target, vector, lanes, rows, unroll):
    """Each row to one value, or to one for each of several parts.

    Parameters X (outer, vectors, width), Y (outer, parts). A block of `rows * lanes` threads takes `rows` rows; a
    thread reads `unroll` vectors before it combines them. Chunks of `lanes * unroll` vectors go to the parts in turn.
    """
    outer, vectors, parts = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64"), T.dynamic("parts", "int64")
    wide, width = own(of, through), vector * words_of(source)
    once = fills_access(width, stored(source))

    @T.macro
    def read_chunk(X, row, lane, c, x):
        for k in T.unroll(unroll):
            j = (c * unroll + k) * lanes + lane
            if row < outer and j < vectors:
                if once:
                    read_once(x, k * width, X, (row * vectors + j) * width)
                else:
                    for v in T.vectorized(width):
                        x[k, v] = X[row, j, v]

    @T.macro
    def combine_chunk(row, lane, c, x, totals):
        for k in T.unroll(unroll):
            if row < outer and (c * unroll + k) * lanes + lane < vectors:
                for v in T.unroll(vector):
                    totals[v] = combine(
                        operation, totals[v], contribution(of, element_of(x, (k,), v, source), source, through)
                    )

    @T.macro
    def body(X, Y, count):
        with T.Kernel(T.ceildiv(outer, rows), parts, threads=rows * lanes, prelude=READ_ONCE) as (block, part):
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((unroll, width), stored(source))
            totals = T.alloc_local((vector,), wide)
            partial = T.alloc_shared((rows, warps_of(lanes)), wide)
            for v in T.unroll(vector):
                totals[v] = identity(operation, wide)
            for c in T.serial(dealt(T.ceildiv(vectors, lanes * unroll), part, parts)):
                read_chunk(X, row, lane, c * parts + part, x)
                combine_chunk(row, lane, c * parts + part, x, totals)
            for v in T.unroll(vector - 1):
                totals[0] = combine(operation, totals[0], totals[v + 1])
            combine_over_lanes(operation, totals, partial, slot, lane, lanes)
            if row < outer and lane == 0:
                Y[row, part] = T.cast(outcome(gives, totals[0], count), target)

    return reduction(body, gives, stored(source), (outer, vectors, width), target, (outer, parts))


def reduce_columns(operation, of, gives, source, through, target, vector, across, down, unroll):
    """Each column to one value, or to one for each of several parts.

    Parameters X (outer, reduced, vectors, width), Y (outer, parts, vectors, vector). Threads run over the vectors of
    all outer slices, `across` of them in a block; `down` threads, a power of two, share a vector and read `unroll` of
    its rows at a time. Chunks of `down * unroll` rows go to the parts in turn.
    """
    outer, reduced, vectors = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("vectors", "int64")
    parts = T.dynamic("parts", "int64")
    wide, width = own(of, through), vector * words_of(source)
    once = fills_access(width, stored(source))

    @T.macro
    def combine_rows(X, place, j, first, x, totals):
        for k in T.unroll(unroll):
            if place < outer and first + k * down < reduced:
                if once:
                    read_once(x, k * width, X, ((place * reduced + first + k * down) * vectors + j) * width)
                else:
                    for v in T.vectorized(width):
                        x[k, v] = X[place, first + k * down, j, v]
        for k in T.unroll(unroll):
            if place < outer and first + k * down < reduced:
                for v in T.unroll(vector):
                    totals[v] = combine(
                        operation, totals[v], contribution(of, element_of(x, (k,), v, source), source, through)
                    )

    @T.macro
    def combine_slots(partial, slot, lane, totals):
        for v in T.unroll(vector):
            partial[v, slot, lane] = totals[v]
        for step in T.unroll(down.bit_length() - 1):
            T.sync_threads()
            if slot < down >> (step + 1):
                for v in T.unroll(vector):
                    totals[v] = combine(operation, totals[v], partial[v, slot + (down >> (step + 1)), lane])
                    partial[v, slot, lane] = totals[v]

    @T.macro
    def body(X, Y, count):
        blocks = T.ceildiv(outer * vectors, across)
        with T.Kernel(blocks, parts, threads=across * down, prelude=READ_ONCE) as (block, part):
            thread = T.get_thread_binding(0)
            slot, lane = thread // across, thread % across
            index = T.cast(block, "int64") * across + lane
            place, j = T.truncdiv(index, vectors), T.truncmod(index, vectors)
            x = T.alloc_local((unroll, width), stored(source))
            y = T.alloc_local((vector,), target)
            totals = T.alloc_local((vector,), wide)
            partial = T.alloc_shared((vector, down, across), wide)
            for v in T.unroll(vector):
                totals[v] = identity(operation, wide)
            for c in T.serial(dealt(T.ceildiv(reduced, down * unroll), part, parts)):
                combine_rows(X, place, j, (c * parts + part) * (down * unroll) + slot, x, totals)
            if down > 1:
                combine_slots(partial, slot, lane, totals)
            if slot == 0 and place < outer:
                for v in T.unroll(vector):
                    y[v] = T.cast(outcome(gives, totals[v], count), target)
                for v in T.vectorized(vector):
                    Y[place, part, j, v] = y[v]

    shapes = (outer, reduced, vectors, width), (outer, parts, vectors, vector)
    return reduction(body, gives, stored(source), shapes[0], target, shapes[1])


def reduce_planes(operation, of, gives, source, through, target, vector, threads, unroll):
    """Each channel to one value: over the batch and along its planes; parameters X and Y (channels,).

    X is (batch, channels, length, vector). A block takes a channel, which has fewer vectors than int32 counts, and a
    thread reads `unroll` of them at a time.
    """
    batch, channels, length = T.dynamic("batch", "int64"), T.dynamic("channels", "int64"), T.dynamic("length", "int64")
    wide, once = own(of, through), fills_access(vector, source)

    @T.macro
    def read_chunk(X, channel, first, plane, count, x):
        for k in T.unroll(unroll):
            if first + k * threads < count:
                entry = T.cast(T.truncdiv(first + k * threads, plane), "int64")
                j = T.cast(T.truncmod(first + k * threads, plane), "int64")
                if once:
                    read_once(x, k * vector, X, ((entry * channels + channel) * length + j) * vector)
                else:
                    for v in T.vectorized(vector):
                        x[k, v] = X[entry, channel, j, v]

    @T.macro
    def combine_chunk(first, count, x, totals):
        for k in T.unroll(unroll):
            if first + k * threads < count:
                for v in T.unroll(vector):
                    totals[v] = combine(operation, totals[v], contribution(of, x[k, v], source, through))

    @T.macro
    def body(X, Y, count):
        with T.Kernel(channels, threads=threads, prelude=READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            channel = T.cast(block, "int64")
            plane = T.cast(length, "int32")
            vectors = T.cast(batch * length, "int32")
            x = T.alloc_local((unroll, vector), source)
            totals = T.alloc_local((vector,), wide)
            partial = T.alloc_shared((1, warps_of(threads)), wide)
            for v in T.unroll(vector):
                totals[v] = identity(operation, wide)
            for c in T.serial(T.ceildiv(vectors, threads * unroll)):
                read_chunk(X, channel, c * (threads * unroll) + thread, plane, vectors, x)
                combine_chunk(c * (threads * unroll) + thread, vectors, x, totals)
            for v in T.unroll(vector - 1):
                totals[0] = combine(operation, totals[0], totals[v + 1])
            combine_over_lanes(operation, totals, partial, 0, thread, threads)
            if thread == 0:
                Y[channel] = T.cast(outcome(gives, totals[0], count), target)

    return reduction(body, gives, source, (batch, channels, length, vector), target, (channels,))
