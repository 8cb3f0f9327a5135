"""Positions of extremes on CUDA: in rows that lie together, in columns that lie side by side, and among candidates.

The first of equal elements is found, and the first NaN where there is one. Elements are compared as float32, and every
size and position is 64 bits wide; a thread counts what it has read in 32.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import NOWHERE, farthest, overtakes, precedes
from tileops_kernels.macros.cuda_extremes import (
    extreme_of_vector,
    extremes,
    extremes_of_vectors,
    first_over_threads,
    is_extreme,
    overtakes_best,
    precedes_best,
)
from tileops_kernels.macros.cuda_rows import READ_ONCE, WARP, fills_access, first_over_lanes, read_once, warps_of


def arg_rows(operation, source, vector, lanes, rows, unroll):
    """The position in each row; parameters X (outer, vectors, vector), Y (outer,).

    A block of `rows * lanes` threads takes `rows` rows; a thread reads `unroll` vectors before it compares them. What
    is compared is the extreme of a vector; of the best vector that a thread has met it finds the first place at last.
    """
    outer, vectors = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64")
    once = fills_access(vector, source)

    @T.macro
    def read_chunk(X, row, lane, c, x):
        for k in T.unroll(unroll):
            j = (c * unroll + k) * lanes + lane
            if row < outer and j < vectors:
                if once:
                    read_once(x, k * vector, X, (row * vectors + j) * vector)
                else:
                    for v in T.vectorized(vector):
                        x[k, v] = X[row, j, v]

    @T.macro
    def compare_chunk(row, lane, c, x, extreme, best, step, kept):
        for k in T.unroll(unroll):
            if row < outer and (c * unroll + k) * lanes + lane < vectors:
                extreme_of_vector(operation, extreme, x, k, vector)
                if overtakes_best(extreme[0], best[0]):
                    best[0] = extreme[0]
                    step[0] = T.cast(c * unroll + k, "int32")
                    for v in T.vectorized(vector):
                        kept[v] = x[k, v]

    @T.prim_func
    def program(X: T.Tensor[(outer, vectors, vector), source], Y: T.Tensor[(outer,), "int64"]):
        prelude = READ_ONCE + extremes(operation, source)
        with T.Kernel(T.ceildiv(outer, rows), threads=rows * lanes, prelude=prelude) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((unroll, vector), source)
            kept = T.alloc_local((vector,), source)
            extreme = T.alloc_local((1,), "float32")
            best = T.alloc_local((1,), "float32")
            step = T.alloc_local((1,), "int32")
            first = T.alloc_local((1,), "int32")
            position = T.alloc_local((1,), "int64")
            values = T.alloc_shared((rows, warps_of(lanes)), "float32")
            positions = T.alloc_shared((rows, warps_of(lanes)), "int64")
            best[0] = farthest(operation)
            step[0] = 0
            first[0] = 0
            for v in T.unroll(vector):
                kept[v] = T.cast(farthest(operation), source)
            for c in T.serial(T.ceildiv(vectors, lanes * unroll)):
                read_chunk(X, row, lane, c, x)
                compare_chunk(row, lane, c, x, extreme, best, step, kept)
            for v in T.unroll(vector):
                if is_extreme(T.cast(kept[vector - 1 - v], "float32"), best[0]):
                    first[0] = vector - 1 - v
            position[0] = T.if_then_else(
                lane < vectors, (T.cast(step[0], "int64") * lanes + lane) * vector + first[0], T.int64(NOWHERE)
            )
            first_over_threads(best, position, values, positions, slot, lane, lanes)
            if row < outer and lane == 0:
                Y[row] = position[0]

    return program


def arg_columns(operation, source, vector, across, unroll):
    """The position in each column; parameters X (outer, reduced, vectors, vector), Y (outer, vectors, vector).

    Threads run over the vectors of all outer slices, `across` of them in a block, and read `unroll` rows at a time.
    """
    outer, reduced, vectors = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("vectors", "int64")
    once = fills_access(vector, source)

    @T.macro
    def read_rows(X, place, j, first, x):
        for k in T.unroll(unroll):
            if place < outer and first + k < reduced:
                if once:
                    read_once(x, k * vector, X, ((place * reduced + first + k) * vectors + j) * vector)
                else:
                    for v in T.vectorized(vector):
                        x[k, v] = X[place, first + k, j, v]

    @T.macro
    def compare_rows(place, first, x, best, position):
        for k in T.unroll(unroll):
            if place < outer and first + k < reduced:
                for v in T.unroll(vector):
                    if overtakes(operation, T.cast(x[k, v], "float32"), best[v]):
                        best[v] = T.cast(x[k, v], "float32")
                        position[v] = first + k

    @T.prim_func
    def program(X: T.Tensor[(outer, reduced, vectors, vector), source], Y: T.Tensor[(outer, vectors, vector), "int64"]):
        with T.Kernel(T.ceildiv(outer * vectors, across), threads=across, prelude=READ_ONCE) as block:
            index = T.cast(block, "int64") * across + T.get_thread_binding(0)
            place, j = T.truncdiv(index, vectors), T.truncmod(index, vectors)
            x = T.alloc_local((unroll, vector), source)
            best = T.alloc_local((vector,), "float32")
            position = T.alloc_local((vector,), "int64")
            for v in T.unroll(vector):
                best[v] = farthest(operation)
                position[v] = T.int64(0)
            for c in T.serial(T.ceildiv(reduced, unroll)):
                read_rows(X, place, j, c * unroll, x)
                compare_rows(place, c * unroll, x, best, position)
            if place < outer:
                for v in T.vectorized(vector):
                    Y[place, j, v] = position[v]

    return program


def arg_columns_by_chunks(operation, source, vector, across, down, unroll):
    """As arg_columns, but `down` threads share a vector of columns; what they compare is the extreme of `unroll` rows.

    Of these chunks the best is read again. `across` and `down` are powers of two. A row behind the last is the last
    again, which changes no first position.
    """
    outer, reduced, vectors = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("vectors", "int64")
    once = fills_access(vector, source)
    threads = across * down
    together = min(max(WARP // across, 1), down)
    groups = down // together
    columns = across * vector

    @T.macro
    def read_rows(X, place, j, first, x):
        last = T.cast(T.min(reduced - 1 - first, T.int64(unroll)), "int32")
        offset = ((place * reduced + first) * vectors + j) * vector
        for k in T.unroll(unroll):
            if once:
                read_once(x, k * vector, X, offset + T.cast(T.min(k, last), "int64") * (vectors * vector))
            else:
                for v in T.vectorized(vector):
                    x[k, v] = X[place, first + T.min(k, last), j, v]

    @T.macro
    def compare_rows(c, x, extreme, best, chunk):
        extremes_of_vectors(operation, extreme, x, unroll, vector)
        for v in T.unroll(vector):
            value = T.cast(extreme[v], "float32")
            if overtakes_best(value, best[v]):
                best[v] = value
                chunk[v] = T.cast(c, "int32")

    @T.macro
    def choose_within_warps(best, chunk):
        other = T.alloc_var("float32")
        place = T.alloc_var("int32")
        for step in T.unroll(together.bit_length() - 1):
            for v in T.unroll(vector):
                other = T.shfl_xor(best[v], across << step)
                place = T.shfl_xor(chunk[v], across << step)
                if precedes_best(other, place, best[v], chunk[v]):
                    best[v] = other
                    chunk[v] = place

    @T.macro
    def write_column(X, Y, block, column, values, chunks, best, chunk, again, first):
        """Choose among the groups of a column, find the first place of the extreme in its chunk, and write that."""
        index = T.cast(block, "int64") * across + column // vector
        place, j = T.truncdiv(index, vectors), T.truncmod(index, vectors)
        best[0] = values[0, column]
        chunk[0] = chunks[0, column]
        for group in T.unroll(groups - 1):
            if precedes_best(values[group + 1, column], chunks[group + 1, column], best[0], chunk[0]):
                best[0] = values[group + 1, column]
                chunk[0] = chunks[group + 1, column]
        if place < outer:
            start = T.cast(chunk[0], "int64") * unroll
            for k in T.unroll(unroll):
                if start + k < reduced:
                    again[k] = X[place, start + k, j, column % vector]
            first[0] = start
            for k in T.unroll(unroll):
                if start + (unroll - 1 - k) < reduced and is_extreme(T.cast(again[unroll - 1 - k], "float32"), best[0]):
                    first[0] = start + (unroll - 1 - k)
            Y[place, j, column % vector] = first[0]

    @T.prim_func
    def program(X: T.Tensor[(outer, reduced, vectors, vector), source], Y: T.Tensor[(outer, vectors, vector), "int64"]):
        prelude = READ_ONCE + extremes(operation, source)
        with T.Kernel(T.ceildiv(outer * vectors, across), threads=threads, prelude=prelude) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // across, thread % across
            index = T.cast(block, "int64") * across + lane
            place, j = T.truncdiv(index, vectors), T.truncmod(index, vectors)
            x = T.alloc_local((unroll, vector), source)
            extreme = T.alloc_local((vector,), source)
            best = T.alloc_local((vector,), "float32")
            chunk = T.alloc_local((vector,), "int32")
            again = T.alloc_local((unroll,), source)
            first = T.alloc_local((1,), "int64")
            values = T.alloc_shared((groups, columns), "float32")
            chunks = T.alloc_shared((groups, columns), "int32")
            for v in T.unroll(vector):
                best[v] = farthest(operation)
                chunk[v] = slot
            if place < outer:
                for c in T.serial(T.ceildiv(reduced, down * unroll)):
                    read_rows(X, place, j, (c * down + slot) * unroll, x)
                    compare_rows(c * down + slot, x, extreme, best, chunk)
            choose_within_warps(best, chunk)
            if slot % together == 0:
                for v in T.unroll(vector):
                    values[slot // together, lane * vector + v] = best[v]
                    chunks[slot // together, lane * vector + v] = chunk[v]
            T.sync_threads()
            for turn in T.unroll(-(-columns // threads)):
                if turn * threads + thread < columns:
                    write_column(X, Y, block, turn * threads + thread, values, chunks, best, chunk, again, first)

    return program


def arg_candidates(operation, source, lanes, rows):
    """The best of candidates for each position; parameters X (outer, reduced, inner), C (outer, parts, inner), Y.

    Y is (outer, inner). Candidate k is the element of X at `C[:, k, :] * scale + k * step` of the axis; `lanes` threads
    share a result, and a block has `rows` of them.
    """
    outer, reduced, inner = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("inner", "int64")
    parts = T.dynamic("parts", "int64")

    @T.prim_func
    def program(
        X: T.Tensor[(outer, reduced, inner), source],
        C: T.Tensor[(outer, parts, inner), "int64"],
        Y: T.Tensor[(outer, inner), "int64"],
        scale: T.int64,
        step: T.int64,
    ):
        with T.Kernel(T.ceildiv(outer * inner, rows), threads=rows * lanes) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            index = T.cast(block, "int64") * rows + slot
            place, j = T.truncdiv(index, inner), T.truncmod(index, inner)
            best = T.alloc_local((1,), "float32")
            position = T.alloc_local((1,), "int64")
            value = T.alloc_local((1,), "float32")
            candidate = T.alloc_local((1,), "int64")
            values = T.alloc_shared((rows, warps_of(lanes)), "float32")
            positions = T.alloc_shared((rows, warps_of(lanes)), "int64")
            best[0] = farthest(operation)
            position[0] = T.int64(NOWHERE)
            for c in T.serial(T.ceildiv(parts, lanes)):
                if place < outer and c * lanes + lane < parts:
                    candidate[0] = C[place, c * lanes + lane, j] * scale + (c * lanes + lane) * step
                    value[0] = T.cast(X[place, candidate[0], j], "float32")
                    if precedes(operation, value[0], candidate[0], best[0], position[0]):
                        best[0] = value[0]
                        position[0] = candidate[0]
            first_over_lanes(operation, best, position, values, positions, slot, lane, lanes)
            if place < outer and lane == 0:
                Y[place, j] = position[0]

    return program
