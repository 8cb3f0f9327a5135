"""Reductions on CUDA: rows that lie together, and columns that lie side by side.

Elements are rounded to `through`, widened and combined by `operation`; `of` says what an element contributes, `gives`
what becomes of the whole. A block combines in float32, in int64 for integers, or in int32 for truths, of which it reads
fewer than that counts; a thread combines words of elements where that suffices (`macros/cuda_words.py`). The result is
rounded once to `target`. A mean has one more parameter, the number of elements.
An access is `width` values: `vector` elements, or the words of complex ones.
Every size is dynamic and offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import (
    combine,
    contribution,
    element_of,
    identity,
    outcome,
    own,
    reduction,
    stored,
    words_of,
)
from tileops_kernels.macros.cuda_planes import read_channel
from tileops_kernels.macros.cuda_rows import READ_ONCE, combine_over_lanes, fills_access, read_once, warps_of
from tileops_kernels.macros.cuda_words import combine_words, combines_words, fold_words, kept_identity, words


class Elements:
    """What a thread does with vectors of elements: macros on what it has `kept` of those that it has met.

    By words it keeps a vector of elements, else `vector` accumulators.
    """

    def __init__(self, operation, of, source, through, vector):
        wide = own(of, through)
        by_words = fills_access(vector, stored(source)) and combines_words(operation, of, source)
        self.wide, self.by_words, self.kept = wide, by_words, source if by_words else wide
        self.prelude = READ_ONCE + (words(operation, of, source) if by_words else "")
        left = max(vector // 4, 1) if by_words else vector

        def contributed(kept, v):
            if not by_words:
                return kept[v]
            return contribution("nonzero" if of == "nonzero" else "value", kept[v], source, through)

        @T.macro
        def clear(kept):
            for v in T.unroll(vector):
                kept[v] = kept_identity(operation, of, source) if by_words else identity(operation, wide)

        @T.macro
        def take_in(kept, x, k):
            if by_words:
                combine_words(kept, 0, x, k)
            else:
                for v in T.unroll(vector):
                    kept[v] = combine(
                        operation, kept[v], contribution(of, element_of(x, (k,), v, source), source, through)
                    )

        @T.macro
        def whole(kept, total):
            if by_words:
                fold_words(kept)
            total[0] = contributed(kept, 0)
            for v in T.unroll(left - 1):
                total[0] = combine(operation, total[0], contributed(kept, v + 1))

        self.contributed, self.clear, self.take_in, self.whole = contributed, clear, take_in, whole


def reduce_rows(operation, of, gives, source, through, target, vector, lanes, rows, unroll):
    """Each row to one value, or to one for each of several parts.

    Parameters X (outer, vectors, width), Y (outer, parts). A block of `rows * lanes` threads takes `rows` rows; a
    thread reads `unroll` vectors before it combines them. Chunks of `lanes * unroll` vectors go to the parts in turn.
    """
    outer, vectors, parts = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64"), T.dynamic("parts", "int64")
    elements, width = Elements(operation, of, source, through, vector), vector * words_of(source)
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
    def combine_chunk(row, lane, c, x, kept):
        for k in T.unroll(unroll):
            if row < outer and (c * unroll + k) * lanes + lane < vectors:
                elements.take_in(kept, x, k)

    @T.macro
    def body(X, Y, count):
        with T.Kernel(T.ceildiv(outer, rows), parts, threads=rows * lanes, prelude=elements.prelude) as (block, part):
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((unroll, width), stored(source))
            kept = T.alloc_local((vector,), elements.kept)
            total = T.alloc_local((1,), elements.wide)
            partial = T.alloc_shared((rows, warps_of(lanes)), elements.wide)
            elements.clear(kept)
            c = T.alloc_var("int64")
            c = T.cast(part, "int64")
            while c * (lanes * unroll) < vectors:
                read_chunk(X, row, lane, c, x)
                combine_chunk(row, lane, c, x, kept)
                c += parts
            elements.whole(kept, total)
            combine_over_lanes(operation, total, partial, slot, lane, lanes)
            if row < outer and lane == 0:
                Y[row, part] = T.cast(outcome(gives, total[0], count), target)

    return reduction(body, gives, stored(source), (outer, vectors, width), target, (outer, parts))


def reduce_columns(operation, of, gives, source, through, target, vector, across, down, unroll):
    """Each column to one value, or to one for each of several parts.

    Parameters X (outer, reduced, vectors, width), Y (outer, parts, vectors, vector). Threads run over the vectors of
    all outer slices, `across` of them in a block; `down` threads, a power of two, share a vector and read `unroll` of
    its rows at a time. Chunks of `down * unroll` rows go to the parts in turn.
    """
    outer, reduced, vectors = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("vectors", "int64")
    parts = T.dynamic("parts", "int64")
    elements, width = Elements(operation, of, source, through, vector), vector * words_of(source)
    once = fills_access(width, stored(source))

    @T.macro
    def combine_rows(X, place, j, first, x, kept):
        for k in T.unroll(unroll):
            if place < outer and first + k * down < reduced:
                if once:
                    read_once(x, k * width, X, ((place * reduced + first + k * down) * vectors + j) * width)
                else:
                    for v in T.vectorized(width):
                        x[k, v] = X[place, first + k * down, j, v]
        for k in T.unroll(unroll):
            if place < outer and first + k * down < reduced:
                elements.take_in(kept, x, k)

    @T.macro
    def share_slot(partial, slot, lane, kept):
        if elements.by_words:
            for v in T.vectorized(vector):
                partial[slot, lane, v] = kept[v]
        else:
            for v in T.unroll(vector):
                partial[v, slot, lane] = kept[v]

    @T.macro
    def combine_slot(partial, slot, lane, kept, x):
        if elements.by_words:
            for v in T.vectorized(vector):
                x[0, v] = partial[slot, lane, v]
            combine_words(kept, 0, x, 0)
        else:
            for v in T.unroll(vector):
                kept[v] = combine(operation, kept[v], partial[v, slot, lane])

    @T.macro
    def combine_slots(partial, slot, lane, kept, x):
        share_slot(partial, slot, lane, kept)
        for step in T.unroll(down.bit_length() - 1):
            T.sync_threads()
            if slot < down >> (step + 1):
                combine_slot(partial, slot + (down >> (step + 1)), lane, kept, x)
                share_slot(partial, slot, lane, kept)

    @T.macro
    def body(X, Y, count):
        blocks = T.ceildiv(outer * vectors, across)
        with T.Kernel(blocks, parts, threads=across * down, prelude=elements.prelude) as (block, part):
            thread = T.get_thread_binding(0)
            slot, lane = thread // across, thread % across
            index = T.cast(block, "int64") * across + lane
            place, j = T.truncdiv(index, vectors), T.truncmod(index, vectors)
            x = T.alloc_local((unroll, width), stored(source))
            y = T.alloc_local((vector,), target)
            kept = T.alloc_local((vector,), elements.kept)
            partial = T.alloc_shared(
                (down, across, vector) if elements.by_words else (vector, down, across), elements.kept
            )
            elements.clear(kept)
            c = T.alloc_var("int64")
            c = T.cast(part, "int64")
            while c * (down * unroll) < reduced:
                combine_rows(X, place, j, c * (down * unroll) + slot, x, kept)
                c += parts
            if down > 1:
                combine_slots(partial, slot, lane, kept, x)
            if slot == 0 and place < outer:
                for v in T.unroll(vector):
                    y[v] = T.cast(outcome(gives, elements.contributed(kept, v), count), target)
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
    elements, once = Elements(operation, of, source, through, vector), fills_access(vector, source)

    @T.macro
    def combine_chunk(first, count, x, kept):
        for k in T.unroll(unroll):
            if first + k * threads < count:
                elements.take_in(kept, x, k)

    @T.macro
    def body(X, Y, count):
        with T.Kernel(channels, threads=threads, prelude=elements.prelude) as block:
            thread = T.get_thread_binding(0)
            channel = T.cast(block, "int64")
            plane = T.cast(length, "int32")
            vectors = T.cast(batch * length, "int32")
            x = T.alloc_local((unroll, vector), source)
            kept = T.alloc_local((vector,), elements.kept)
            total = T.alloc_local((1,), elements.wide)
            partial = T.alloc_shared((1, warps_of(threads)), elements.wide)
            elements.clear(kept)
            for c in T.serial(T.ceildiv(vectors, threads * unroll)):
                first = c * (threads * unroll) + thread
                read_channel(x, unroll, vector, X, channel, first, threads, plane, vectors, once)
                combine_chunk(first, vectors, x, kept)
            elements.whole(kept, total)
            combine_over_lanes(operation, total, partial, 0, thread, threads)
            if thread == 0:
                Y[channel] = T.cast(outcome(gives, total[0], count), target)

    return reduction(body, gives, source, (batch, channels, length, vector), target, (channels,))
