"""Scans on CUDA: every element becomes the sum or product of those up to it, along rows or along columns.

Elements, or what `of` says that they contribute, are rounded to `through`, widened to an accumulator (float32, or int64
for integers) and combined by `operation`; each result is rounded once to `target`. A program that is `carried` has two
more parameters, S and parts: its slices are `parts` parts of longer ones, one behind the other, and S holds the scanned
totals of the parts. Every size is dynamic and offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import accumulator, combine, contribution, identity
from tileops_kernels.macros.cuda_rows import READ_ONCE, WARP, fills_access, read_once, scan_over_lanes, warps_of

CHUNK = 32
"""Steps down a column whose sum joins what came before them at once, so that the error of a long sum stays small."""


def scan_rows(operation, source, through, target, of, carried, vector, lanes, rows, unroll):
    """Rows, read once; parameters X, S (outer,) where carried, Y; X and Y are (outer, vectors, vector).

    A block of `rows * lanes` threads takes `rows` rows, in chunks of `unroll` vectors a thread; the next chunk is read
    while one is scanned.
    """
    outer, vectors = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64")
    wide, once = accumulator(through), fills_access(vector, source)

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
    def scan_vectors(row, lane, c, x, values, total):
        for k in T.unroll(unroll):
            for v in T.unroll(vector):
                values[k, v] = identity(operation, wide)
            if row < outer and (c * unroll + k) * lanes + lane < vectors:
                for v in T.unroll(vector):
                    values[k, v] = T.cast(contribution(of, x[k, v], source, through), wide)
                for v in T.unroll(vector - 1):
                    values[k, v + 1] = combine(operation, values[k, v], values[k, v + 1])
            total[k] = values[k, vector - 1]

    @T.macro
    def write_chunk(Y, row, lane, c, values, before, y):
        for k in T.unroll(unroll):
            j = (c * unroll + k) * lanes + lane
            if row < outer and j < vectors:
                for v in T.unroll(vector):
                    y[v] = T.cast(combine(operation, before[k], values[k, v]), target)
                for v in T.vectorized(vector):
                    Y[row, j, v] = y[v]

    @T.macro
    def body(X, S, Y, parts):
        with T.Kernel(T.ceildiv(outer, rows), threads=rows * lanes, prelude=READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((unroll, vector), source)
            y = T.alloc_local((vector,), target)
            values = T.alloc_local((unroll, vector), wide)
            total = T.alloc_local((unroll,), wide)
            before = T.alloc_local((unroll,), wide)
            carry = T.alloc_local((1,), wide)
            partial = T.alloc_shared((rows, 2 * unroll * warps_of(lanes)), wide)
            carry[0] = identity(operation, wide)
            if carried and row < outer and T.truncmod(row, parts) > 0:
                carry[0] = S[row - 1]
            read_chunk(X, row, lane, 0, x)
            for c in T.serial(T.ceildiv(vectors, lanes * unroll)):
                scan_vectors(row, lane, c, x, values, total)
                read_chunk(X, row, lane, c + 1, x)
                scan_over_lanes(operation, total, before, carry, partial, slot, c % 2, lane, lanes, unroll)
                write_chunk(Y, row, lane, c, values, before, y)

    return _program(body, carried, source, wide, target, (outer, vectors, vector), (outer,))


@T.macro
def read_rows(X, place, j, first, x, unroll, vector, present, once):
    """x[k, :] = vector j of row first + k of a slice of columns, for each k below `unroll`, where the slice has it.

    None are read where the columns are not `present`. A vector that is read `once` takes 16 bytes.
    """
    reduced, vectors = X.shape[1], X.shape[2]
    for k in T.unroll(unroll):
        if present and first + k < reduced:
            if once:
                read_once(x, k * vector, X, ((place * reduced + first + k) * vectors + j) * vector)
            else:
                for v in T.vectorized(vector):
                    x[k, v] = X[place, first + k, j, v]


def scan_columns(operation, source, through, target, of, carried, vector, across, unroll):
    """Columns, read once; parameters X, S (outer, vectors, vector) where carried, Y.

    X and Y are (outer, reduced, vectors, vector). Threads run over the vectors of all outer slices, `across` of them in
    a block; each goes down its columns by `unroll` rows at a time, and reads the next ones while it adds.
    """
    outer, reduced, vectors = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("vectors", "int64")
    wide, once = accumulator(through), fills_access(vector, source)

    @T.macro
    def write_rows(Y, place, j, first, x, y, base, carry):
        for k in T.unroll(unroll):
            if place < outer and first + k < reduced:
                for v in T.unroll(vector):
                    carry[v] = combine(operation, carry[v], T.cast(contribution(of, x[k, v], source, through), wide))
                    y[v] = T.cast(combine(operation, base[v], carry[v]), target)
                for v in T.vectorized(vector):
                    Y[place, first + k, j, v] = y[v]

    @T.macro
    def body(X, S, Y, parts):
        with T.Kernel(T.ceildiv(outer * vectors, across), threads=across, prelude=READ_ONCE) as block:
            index = T.cast(block, "int64") * across + T.get_thread_binding(0)
            place, j = T.truncdiv(index, vectors), T.truncmod(index, vectors)
            x = T.alloc_local((unroll, vector), source)
            ahead = T.alloc_local((unroll, vector), source)
            y = T.alloc_local((vector,), target)
            base = T.alloc_local((vector,), wide)
            carry = T.alloc_local((vector,), wide)
            for v in T.unroll(vector):
                base[v] = identity(operation, wide)
                carry[v] = identity(operation, wide)
            if carried and place < outer and T.truncmod(place, parts) > 0:
                for v in T.vectorized(vector):
                    base[v] = S[place - 1, j, v]
            read_rows(X, place, j, 0, ahead, unroll, vector, place < outer, once)
            for c in T.serial(T.ceildiv(reduced, unroll)):
                for k in T.unroll(unroll):
                    for v in T.unroll(vector):
                        x[k, v] = ahead[k, v]
                read_rows(X, place, j, (c + 1) * unroll, ahead, unroll, vector, place < outer, once)
                write_rows(Y, place, j, c * unroll, x, y, base, carry)
                if operation == "sum" and c % CHUNK == CHUNK - 1:
                    for v in T.unroll(vector):
                        base[v] = combine(operation, base[v], carry[v])
                        carry[v] = identity(operation, wide)

    shape = outer, reduced, vectors, vector
    return _program(body, carried, source, wide, target, shape, (outer, vectors, vector))


def scan_columns_shared(operation, source, through, target, of, vector, across, down, unroll):
    """Columns that `down` threads share, read once; parameters X and Y (outer, reduced, vectors, vector).

    A block has `across` neighbouring vectors, at most a warp, and `across * down` threads, which take `unroll` rows
    each of a chunk; the next chunk is read while one is scanned.
    """
    outer, reduced, vectors = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("vectors", "int64")
    wide, once = accumulator(through), fills_access(vector, source)
    warps, deep = across * down // WARP, WARP // across

    @T.macro
    def scan_rows_of_thread(j, first, x, values):
        for k in T.unroll(unroll):
            for v in T.unroll(vector):
                values[k, v] = identity(operation, wide)
                if j < vectors and first + k < reduced:
                    values[k, v] = T.cast(contribution(of, x[k, v], source, through), wide)
                if k > 0:
                    values[k, v] = combine(operation, values[T.max(k - 1, 0), v], values[k, v])

    @T.macro
    def scan_over_threads(values, before, carry, total, partial, side, thread, lane):
        """Set `before` to what stands above a thread's rows, and let `carry` take in the chunk."""
        depth = thread // across % deep
        other = T.alloc_var(wide)
        for v in T.unroll(vector):
            total[v] = values[unroll - 1, v]
            for step in T.unroll(deep.bit_length() - 1):
                other = T.shfl_up(total[v], across << step)
                if depth >= 1 << step:
                    total[v] = combine(operation, other, total[v])
            other = T.shfl_up(total[v], across)
            before[v] = T.if_then_else(depth > 0, other, identity(operation, wide))
        if depth == deep - 1:
            for v in T.unroll(vector):
                partial[side, thread // WARP, lane, v] = total[v]
        T.sync_threads()
        for v in T.unroll(vector):
            total[v] = carry[v]
        for warp in T.unroll(warps):
            for v in T.unroll(vector):
                carry[v] = combine(operation, carry[v], partial[side, warp, lane, v])
                if warp < thread // WARP:
                    total[v] = carry[v]
        for v in T.unroll(vector):
            before[v] = combine(operation, total[v], before[v])

    @T.macro
    def write_rows(Y, place, j, first, values, before, y):
        for k in T.unroll(unroll):
            if j < vectors and first + k < reduced:
                for v in T.unroll(vector):
                    y[v] = T.cast(combine(operation, before[v], values[k, v]), target)
                for v in T.vectorized(vector):
                    Y[place, first + k, j, v] = y[v]

    @T.macro
    def body(X, S, Y, parts):  # noqa: ARG001 - as bodies of other scans, of which some are carried
        with T.Kernel(outer * T.ceildiv(vectors, across), threads=across * down, prelude=READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            lane, start = thread % across, thread // across * unroll
            strips = T.ceildiv(vectors, across)
            place = T.truncdiv(T.cast(block, "int64"), strips)
            j = (T.cast(block, "int64") - place * strips) * across + lane
            x = T.alloc_local((unroll, vector), source)
            y = T.alloc_local((vector,), target)
            values = T.alloc_local((unroll, vector), wide)
            total = T.alloc_local((vector,), wide)
            before = T.alloc_local((vector,), wide)
            carry = T.alloc_local((vector,), wide)
            partial = T.alloc_shared((2, warps, across, vector), wide)
            for v in T.unroll(vector):
                carry[v] = identity(operation, wide)
            read_rows(X, place, j, start, x, unroll, vector, j < vectors, once)
            for c in T.serial(T.ceildiv(reduced, down * unroll)):
                first = c * (down * unroll) + start
                scan_rows_of_thread(j, first, x, values)
                read_rows(X, place, j, first + down * unroll, x, unroll, vector, j < vectors, once)
                scan_over_threads(values, before, carry, total, partial, c % 2, thread, lane)
                write_rows(Y, place, j, first, values, before, y)

    shape = outer, reduced, vectors, vector
    return _program(body, False, source, wide, target, shape, None)


def _program(body, carried, source, wide, target, shape, totals):
    """The program that runs the macro `body(X, S, Y, parts)`; only one that is carried has S and parts."""
    if carried:

        @T.prim_func
        def part(X: T.Tensor[shape, source], S: T.Tensor[totals, wide], Y: T.Tensor[shape, target], parts: T.int64):
            body(X, S, Y, parts)

        return part

    @T.prim_func
    def whole(X: T.Tensor[shape, source], Y: T.Tensor[shape, target]):
        body(X, None, Y, None)

    return whole
