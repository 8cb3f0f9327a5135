"""Softmax on a CPU: rows that lie together, and columns that lie side by side.

A row that can be held as float32 is read once and takes one exponential for each element. So does a longer one whose
result is float32, where the weights are kept until all are known; any other is read twice, and columns are read three
times. With `log` the result is its logarithm. Every size is dynamic; callers pass the sizes in alphabetical order.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import (
    BLOCK,
    LANES,
    exponential,
    load_elements,
    lowest,
    storage_dtype,
    store_block,
)

HELD = 4096
"""Elements of a row that are held: 16 KiB, half of the first-level cache, and little of a thread's stack.

Rows of float16 with 102400 elements took 0.68 of the time held whole; a thread may have a stack of 256 KiB, though.
"""

PIECE = 512
"""Elements that are weighed at a time where the result keeps the weights: what is read, held and written stays near."""

HALVES = tuple(LANES >> step for step in range(1, LANES.bit_length()))
"""Lanes that are left after each step of combining them in pairs."""


def whole(log, total):
    """What a weight is multiplied by, from the sum of all, or with `log` the logarithm that is taken from it."""
    return T.log(total) if log else T.float32(1) / total


def part(log, weight, whole):
    """A weight's part in the `whole`."""
    return weight - whole if log else weight * whole


def softmax_rows(log, source, through, target):
    """Rows; parameters X and Y (outer, 1, reduced); sizes outer, reduced."""
    outer, reduced = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64")
    weights_in_result = target == "float32" and not log

    @T.macro
    def load(X, row, column, x, bits, width):
        load_elements(X, (row, 0), column, x, x, bits, width, source, through)

    @T.macro
    def take_largest(x, width, partial, largest):
        for lane in T.serial(LANES):
            partial[lane] = lowest()
        for k in T.serial(width // LANES):
            for lane in T.serial(LANES):
                partial[lane] = T.max(x[k * LANES + lane], partial[lane])
        for lane in T.serial(width % LANES):
            partial[lane] = T.max(x[width // LANES * LANES + lane], partial[lane])
        for half in HALVES:
            for lane in T.serial(half):
                partial[lane] = T.max(partial[lane], partial[half + lane])
        largest[0] = T.max(partial[0], largest[0])

    @T.macro
    def add_weights(x, width, weights, largest, totals, kept):
        for k in T.serial(width // LANES):
            for lane in T.serial(LANES):
                weights[lane] = exponential(x[k * LANES + lane] - largest[0])
            for lane in T.serial(LANES):
                totals[lane] += weights[lane]
            if kept:
                for lane in T.serial(LANES):
                    x[k * LANES + lane] = weights[lane]
        for lane in T.serial(width % LANES):
            weights[lane] = exponential(x[width // LANES * LANES + lane] - largest[0])
        for lane in T.serial(width % LANES):
            totals[lane] += weights[lane]
            if kept:
                x[width // LANES * LANES + lane] = weights[lane]

    @T.macro
    def write(x, Y, row, column, width, largest, whole):
        for k in T.serial(width):
            x[k] = part(log, x[k] - largest[0] if log else x[k], whole[0])
        store_block(x, Y, (row, 0), column, width, target)

    @T.macro
    def add_blocks(X, row, x, bits, partial, largest, totals, earlier, width):
        for b in T.serial((reduced + HELD - 1) // HELD):
            width[0] = T.cast(T.min(reduced - b * HELD, HELD), "int32")
            load(X, row, b * HELD, x, bits, width[0])
            earlier[0] = largest[0]
            take_largest(x, width[0], partial, largest)
            earlier[0] = exponential(earlier[0] - largest[0])
            for lane in T.serial(LANES):
                totals[lane] = totals[lane] * earlier[0]
            add_weights(x, width[0], partial, largest, totals, not log)

    @T.macro
    def finish(totals):
        for half in HALVES:
            for lane in T.serial(half):
                totals[lane] += totals[half + lane]
        totals[0] = whole(log, totals[0])

    @T.macro
    def read_again(X, Y, row, x, bits, largest, totals, width):
        for b in T.serial((reduced + HELD - 1) // HELD):
            width[0] = T.cast(T.min(reduced - b * HELD, HELD), "int32")
            load(X, row, b * HELD, x, bits, width[0])
            if not log:
                for k in T.serial(width[0]):
                    x[k] = exponential(x[k] - largest[0])
            write(x, Y, row, b * HELD, width[0], largest, totals)

    @T.macro
    def weigh_in_result(X, Y, row, x, bits, partial, largest, totals, width):
        for b in T.serial((reduced + PIECE - 1) // PIECE):
            width[0] = T.cast(T.min(reduced - b * PIECE, PIECE), "int32")
            load(X, row, b * PIECE, x, bits, width[0])
            take_largest(x, width[0], partial, largest)
        for b in T.serial((reduced + PIECE - 1) // PIECE):
            width[0] = T.cast(T.min(reduced - b * PIECE, PIECE), "int32")
            load(X, row, b * PIECE, x, bits, width[0])
            add_weights(x, width[0], partial, largest, totals, True)
            store_block(x, Y, (row, 0), b * PIECE, width[0], target)
        finish(totals)
        for b in T.serial((reduced + PIECE - 1) // PIECE):
            width[0] = T.cast(T.min(reduced - b * PIECE, PIECE), "int32")
            load_elements(Y, (row, 0), b * PIECE, x, x, bits, width[0], target, target)
            write(x, Y, row, b * PIECE, width[0], largest, totals)

    @T.prim_func
    def program(
        X: T.Tensor[(outer, 1, reduced), storage_dtype(source)],
        Y: T.Tensor[(outer, 1, reduced), storage_dtype(target)],
    ):
        with T.Kernel(outer) as row:
            x = T.alloc_local((HELD,), "float32")
            bits = T.alloc_local((1, HELD), "int16")
            partial = T.alloc_local((LANES,), "float32")
            totals = T.alloc_local((LANES,), "float32")
            largest = T.alloc_local((1,), "float32")
            earlier = T.alloc_local((1,), "float32")
            width = T.alloc_local((1,), "int32")
            largest[0] = lowest()
            for lane in T.serial(LANES):
                totals[lane] = T.float32(0)
            if weights_in_result:
                if reduced <= HELD:
                    add_blocks(X, row, x, bits, partial, largest, totals, earlier, width)
                    finish(totals)
                    write(x, Y, row, 0, width[0], largest, totals)
                else:
                    weigh_in_result(X, Y, row, x, bits, partial, largest, totals, width)
            else:
                add_blocks(X, row, x, bits, partial, largest, totals, earlier, width)
                finish(totals)
                if reduced <= HELD:
                    write(x, Y, row, 0, width[0], largest, totals)
                else:
                    read_again(X, Y, row, x, bits, largest, totals, width)

    return program, RowSplit("outer", {"X": "reduced", "Y": "reduced"}, work="reduced")


def softmax_columns(log, source, through, target, shared):
    """Columns; parameters X and Y (outer, reduced, inner), and columns; sizes inner, outer, reduced.

    Threads share what `shared` names, outer slices or columns; `columns` is the number of columns in all.
    """
    outer, reduced, inner = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("inner", "int64")

    @T.macro
    def load(X, place, i, column, x, bits, width):
        load_elements(X, (place, i), column, x, x, bits, width, source, through)

    @T.macro
    def softmax_block(X, Y, place, column, x, bits, largest, sums, width):
        for k in T.serial(width):
            largest[k] = lowest()
            sums[k] = T.float32(0)
        for i in T.serial(reduced):
            load(X, place, i, column, x, bits, width)
            for k in T.serial(width):
                largest[k] = T.max(x[k], largest[k])
        for i in T.serial(reduced):
            load(X, place, i, column, x, bits, width)
            for k in T.serial(width):
                sums[k] += exponential(x[k] - largest[k])
        for k in T.serial(width):
            sums[k] = whole(log, sums[k])
        for i in T.serial(reduced):
            load(X, place, i, column, x, bits, width)
            for k in T.serial(width):
                x[k] = part(log, x[k] - largest[k] if log else exponential(x[k] - largest[k]), sums[k])
            store_block(x, Y, (place, i), column, width, target)

    @T.prim_func
    def program(
        X: T.Tensor[(outer, reduced, inner), storage_dtype(source)],
        Y: T.Tensor[(outer, reduced, inner), storage_dtype(target)],
        columns: T.int64,
    ):
        with T.Kernel(outer) as place:
            x = T.alloc_local((BLOCK,), "float32")
            bits = T.alloc_local((1, BLOCK), "int16")
            largest = T.alloc_local((BLOCK,), "float32")
            sums = T.alloc_local((BLOCK,), "float32")
            for b in T.serial(columns // BLOCK):
                softmax_block(X, Y, place, b * BLOCK, x, bits, largest, sums, BLOCK)
            softmax_block(X, Y, place, columns // BLOCK * BLOCK, x, bits, largest, sums, columns % BLOCK)

    if shared == "columns":
        return program, RowSplit("columns", {"X": 1, "Y": 1}, work="outer * reduced")
    return program, RowSplit("outer", {"X": "reduced * inner", "Y": "reduced * inner"}, work="reduced * inner")
