"""Folds on CUDA, reductions that keep more than one value: rows that lie together, and columns that lie side by side.

A `log_sum_exp` gives its `total`; moments give the `variance`, the `deviation`, its square root, or with other passes
to come the three parts of a `partial` result, and have one more parameter, what squared deviations are divided by. With
`mean` they write the mean too. Elements have `parts`: one, or those of a partial result. The result is rounded once to
`target`. Every size is dynamic and offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import fold_program, planes_of
from tileops_kernels.macros.cuda_exponentials import EXP2
from tileops_kernels.macros.cuda_folds import FOLDS, given, read_parts
from tileops_kernels.macros.cuda_planes import read_channel
from tileops_kernels.macros.cuda_rows import READ_ONCE, fills_access, warps_of


def fold_rows(fold, gives, mean, source, parts, target, vector, lanes, rows, unroll):
    """Each row to its result; parameters X (parts, outer, vectors, vector), Y (planes, outer), M (outer,).

    A block of `rows * lanes` threads takes `rows` rows; a thread reads `unroll` vectors before it adds them.
    """
    outer, vectors = T.dynamic("outer", "int64"), T.dynamic("vectors", "int64")
    steps, planes = FOLDS[fold], planes_of(gives)

    @T.macro
    def body(X, Y, M, divisor):
        with T.Kernel(T.ceildiv(outer, rows), threads=rows * lanes, prelude=EXP2 + READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((parts, unroll, vector), source)
            pivots = T.alloc_local((1,), "float32")
            state = T.alloc_local((steps.size(1),), "float32")
            spare = T.alloc_local((steps.size(1),), "float32")
            first_shared = T.alloc_shared((rows, warps_of(lanes)), "float32")
            second_shared = T.alloc_shared((rows, warps_of(lanes)), "float32")
            pivots[0] = T.float32(0)
            if fold == "moments" and row < outer:
                pivots[0] = T.cast(X[0, row, 0, 0], "float32")
            steps.clear(state, 1)
            for c in T.serial(T.ceildiv(vectors, lanes * unroll)):
                first = c * (lanes * unroll) + lane
                read_parts(x, X, parts, unroll, vector, (row, ()), first, lanes, vectors, row < outer)
                steps.add(state, spare, x, pivots, parts, 1, unroll, vector, first, lanes, vectors, row < outer)
            steps.over_lanes(
                state, spare, (first_shared, second_shared), slot, lane, lanes, T.cast(vectors * vector, "float32")
            )
            if row < outer and lane == 0:
                Y[0, row] = T.cast(given(gives, state, pivots, 1, 0, divisor)[0], target)
                if gives == "partial":
                    Y[1, row] = given(gives, state, pivots, 1, 0, divisor)[1]
                    Y[2, row] = given(gives, state, pivots, 1, 0, divisor)[2]
                if mean:
                    M[row] = T.cast(pivots[0] + state[1], target)

    shapes = (parts, outer, vectors, vector), (planes, outer), (outer,)
    return fold_program(body, fold == "moments", mean, source, shapes[0], target, shapes[1], shapes[2])


def fold_planes(fold, gives, mean, source, parts, target, vector, threads, unroll):  # noqa: ARG001 - as all builders here
    """Each channel to its result: over the batch and along its planes; parameters X, Y (1, channels), M (channels,).

    X is (batch, channels, length, vector). A block takes a channel, which has fewer vectors than int32 counts, and
    a thread reads `unroll` of them at a time.
    """
    batch, channels, length = T.dynamic("batch", "int64"), T.dynamic("channels", "int64"), T.dynamic("length", "int64")
    steps, once = FOLDS[fold], fills_access(vector, source)

    @T.macro
    def body(X, Y, M, divisor):
        with T.Kernel(channels, threads=threads, prelude=EXP2 + READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            channel = T.cast(block, "int64")
            plane = T.cast(length, "int32")
            vectors = T.cast(batch * length, "int32")
            x = T.alloc_local((1, unroll, vector), source)
            pivots = T.alloc_local((1,), "float32")
            state = T.alloc_local((steps.size(1),), "float32")
            spare = T.alloc_local((steps.size(1),), "float32")
            first_shared = T.alloc_shared((1, warps_of(threads)), "float32")
            second_shared = T.alloc_shared((1, warps_of(threads)), "float32")
            pivots[0] = T.float32(0)
            if fold == "moments":
                pivots[0] = T.cast(X[0, channel, 0, 0], "float32")
            steps.clear(state, 1)
            for c in T.serial(T.ceildiv(vectors, threads * unroll)):
                first = c * (threads * unroll) + thread
                read_channel(x, unroll, vector, X, channel, first, threads, plane, vectors, once, (0,))
                steps.add(state, spare, x, pivots, 1, 1, unroll, vector, first, threads, vectors, True)
            steps.over_lanes(
                state, spare, (first_shared, second_shared), 0, thread, threads, T.cast(vectors * vector, "float32")
            )
            if thread == 0:
                Y[0, channel] = T.cast(given(gives, state, pivots, 1, 0, divisor)[0], target)
                if mean:
                    M[channel] = T.cast(pivots[0] + state[1], target)

    shapes = (batch, channels, length, vector), (1, channels), (channels,)
    return fold_program(body, fold == "moments", mean, source, shapes[0], target, shapes[1], shapes[2])


def fold_columns(fold, gives, mean, source, parts, target, vector, across, down, unroll):
    """Each column to its result; parameters X (parts, outer, reduced, vectors, vector), Y and M.

    Y is (planes, outer, vectors, vector) and M (outer, vectors, vector). Threads run over the vectors of all outer
    slices, `across` of them in a block; `down` threads, a power of two, share a vector and read `unroll` of its rows at
    a time.
    """
    outer, reduced, vectors = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("vectors", "int64")
    steps, planes = FOLDS[fold], planes_of(gives)
    size = steps.size(vector)

    @T.macro
    def merge_slots(state, spare, partial, slot, lane):
        for i in T.unroll(size):
            partial[i, slot, lane] = state[i]
        for step in T.unroll(down.bit_length() - 1):
            T.sync_threads()
            if slot < down >> (step + 1):
                for i in T.unroll(size):
                    spare[i] = partial[i, slot + (down >> (step + 1)), lane]
                steps.merge(state, spare, vector)
                for i in T.unroll(size):
                    partial[i, slot, lane] = state[i]

    @T.macro
    def write(Y, M, divisor, place, j, state, pivots, y):
        for v in T.unroll(vector):
            y[0, v] = T.cast(given(gives, state, pivots, vector, v, divisor)[0], target)
            if gives == "partial":
                y[1, v] = given(gives, state, pivots, vector, v, divisor)[1]
                y[2, v] = given(gives, state, pivots, vector, v, divisor)[2]
        for p in T.unroll(planes):
            for v in T.vectorized(vector):
                Y[p, place, j, v] = y[p, v]
        if mean:
            for v in T.unroll(vector):
                y[0, v] = T.cast(pivots[v] + state[1 + v], target)
            for v in T.vectorized(vector):
                M[place, j, v] = y[0, v]

    @T.macro
    def body(X, Y, M, divisor):
        with T.Kernel(T.ceildiv(outer * vectors, across), threads=across * down, prelude=EXP2 + READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // across, thread % across
            index = T.cast(block, "int64") * across + lane
            place, j = T.truncdiv(index, vectors), T.truncmod(index, vectors)
            x = T.alloc_local((parts, unroll, vector), source)
            y = T.alloc_local((planes, vector), target)
            pivots = T.alloc_local((vector,), "float32")
            state = T.alloc_local((size,), "float32")
            spare = T.alloc_local((size,), "float32")
            partial = T.alloc_shared((size, down, across), "float32")
            for v in T.unroll(vector):
                pivots[v] = T.float32(0)
            if fold == "moments" and place < outer:
                for v in T.vectorized(vector):
                    x[0, 0, v] = X[0, place, 0, j, v]
                for v in T.unroll(vector):
                    pivots[v] = T.cast(x[0, 0, v], "float32")
            steps.clear(state, vector)
            for c in T.serial(T.ceildiv(reduced, down * unroll)):
                first = c * (down * unroll) + slot
                read_parts(x, X, parts, unroll, vector, (place, (j,)), first, down, reduced, place < outer)
                steps.add(state, spare, x, pivots, parts, vector, unroll, vector, first, down, reduced, place < outer)
            if down > 1:
                merge_slots(state, spare, partial, slot, lane)
            if slot == 0 and place < outer:
                write(Y, M, divisor, place, j, state, pivots, y)

    shapes = (parts, outer, reduced, vectors, vector), (planes, outer, vectors, vector), (outer, vectors, vector)
    return fold_program(body, fold == "moments", mean, source, shapes[0], target, shapes[1], shapes[2])
