"""Reductions on a CPU: rows that lie together, and columns that lie side by side.

The elements of a block are combined in a tree, some blocks to a partial result, and partial results to the whole, so
that the error of a long sum stays small. `of` says what an element contributes, `gives` what becomes of the whole; a
mean has one more parameter, the number of elements. Elements are one value each, complex128 ones two words.
Every size is dynamic; callers pass the sizes in alphabetical order.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.combining import accumulator, combine_in_c, identity, outcome, reduction, words_of
from tileops_kernels.macros.cpu_blocks import (
    BLOCK,
    COLUMNS,
    LANES,
    SHORT,
    load_elements,
    offset_of,
    start_of,
    storage_dtype,
    store_elements,
)
from tileops_kernels.macros.cpu_registers import REGISTER, VECTORS, fits_registers, row_in_registers

CHUNK = 32
"""Blocks of a row that are combined before they join what came earlier; of columns it is eight times as many rows."""

TOGETHER = 4
"""Rows of float32 columns that are combined where they lie, before they join what came earlier."""

PAIRS = tuple(tuple(range(BLOCK // LANES >> step)) for step in range(1, (BLOCK // LANES).bit_length()))
"""The pairs of LANES neighbouring elements that each step of a block's tree combines.

Neighbours are met in the order of memory: with halves of the block, rows that no cache holds took twice as long.
"""


def reduce_rows(operation, of, gives, source, through, target):
    """Each row to one value; parameters X (outer, 1, reduced * words), Y (outer, 1, 1); sizes outer, reduced."""
    outer, reduced = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64")
    wide = accumulator(through)
    short = operation == "sum" and wide == "int64" and (of == "nonzero" or source in SHORT)
    own = "int32" if short else wide

    @T.macro
    def combine_block(X, row, column, x, floats, bits, partial):
        load_elements(X, (row, 0), column, x, floats, bits, BLOCK, source, through, of)
        for pairs in PAIRS:
            for k in pairs:
                for lane in T.serial(LANES):
                    x[k * LANES + lane] = combine_in_c(
                        operation, x[2 * k * LANES + lane], x[(2 * k + 1) * LANES + lane]
                    )
        for lane in T.serial(LANES):
            partial[lane] = combine_in_c(operation, partial[lane], T.cast(x[lane], wide))

    @T.macro
    def combine_rest(X, row, column, x, floats, bits, partial, width):
        load_elements(X, (row, 0), column, x, floats, bits, width, source, through, of)
        for k in T.serial(width // LANES):
            for lane in T.serial(LANES):
                partial[lane] = combine_in_c(operation, partial[lane], T.cast(x[k * LANES + lane], wide))
        for lane in T.serial(width % LANES):
            partial[lane] = combine_in_c(operation, partial[lane], T.cast(x[width // LANES * LANES + lane], wide))

    @T.macro
    def bring_in(partial, totals):
        for lane in T.serial(LANES):
            totals[lane] = combine_in_c(operation, totals[lane], partial[lane])
            partial[lane] = identity(operation, wide)

    @T.macro
    def combine_row(X, row, x, floats, bits, partial, totals):
        for lane in T.serial(LANES):
            totals[lane] = identity(operation, wide)
            partial[lane] = identity(operation, wide)
        for c in T.serial(reduced // (CHUNK * BLOCK)):
            for b in T.serial(CHUNK):
                combine_block(X, row, (c * CHUNK + b) * BLOCK, x, floats, bits, partial)
            bring_in(partial, totals)
        for b in T.serial(reduced // BLOCK % CHUNK):
            start = (reduced // (CHUNK * BLOCK) * CHUNK + b) * BLOCK
            combine_block(X, row, start, x, floats, bits, partial)
        combine_rest(X, row, reduced // BLOCK * BLOCK, x, floats, bits, partial, reduced % BLOCK)
        bring_in(partial, totals)
        for lane in T.serial(LANES - 1):
            totals[0] = combine_in_c(operation, totals[0], totals[lane + 1])

    @T.macro
    def combine_short_row(X, row, x, floats, bits, totals):
        # the remainder is the row: a size given to a macro as it stands would take the name of the macro's parameter
        load_elements(X, (row, 0), 0, x, floats, bits, reduced % LANES, source, through, of)
        totals[0] = identity(operation, wide)
        for k in T.serial(reduced):
            totals[0] = combine_in_c(operation, totals[0], T.cast(x[k], wide))

    @T.macro
    def body_in_registers(X, Y, count):
        with T.Kernel(outer) as row:
            run, partial, totals = (T.alloc_local((VECTORS,), REGISTER) for _ in range(3))
            total, rest = (T.alloc_local((extent,), "float32") for extent in (1, LANES))
            row_in_registers(operation, of, source, reduced)(X, row, run, partial, totals, total, rest)
            total[0] = outcome(gives, total[0], count)
            store_elements(total, Y, (row, 0), 0, 1, target)

    @T.macro
    def body(X, Y, count):
        with T.Kernel(outer) as row:
            x = T.alloc_local((BLOCK,), own)
            floats = T.alloc_local((BLOCK,), "float32")
            bits = T.alloc_local((1, BLOCK), "int16")
            partial = T.alloc_local((LANES,), wide)
            totals = T.alloc_local((LANES,), wide)
            if reduced < LANES:
                combine_short_row(X, row, x, floats, bits, totals)
            else:
                combine_row(X, row, x, floats, bits, partial, totals)
            totals[0] = outcome(gives, totals[0], count)
            store_elements(totals, Y, (row, 0), 0, 1, target)

    shapes = (outer, 1, reduced * words_of(source)), (outer, 1, 1)
    taken = body_in_registers if fits_registers(operation, of, source, through) else body
    program = reduction(taken, gives, storage_dtype(source), shapes[0], storage_dtype(target), shapes[1])
    return program, RowSplit("outer", {"X": f"reduced * {words_of(source)}", "Y": 1}, work="reduced")


def element(X, place, row, column):
    """An element of a float32 matrix, read where it lies."""
    return T.call_extern("float32", "tileops_element_float32", start_of(X), offset_of(X, (place, row), column))


def combined(operation, X, place, row, column):
    """`operation` on TOGETHER elements of a column, two and two."""
    first, second, third, fourth = (element(X, place, row + i, column) for i in range(TOGETHER))
    halves = combine_in_c(operation, first, second), combine_in_c(operation, third, fourth)
    return combine_in_c(operation, *halves)


def reduce_columns(operation, of, gives, source, through, target):
    """Each column to one value; parameters X (outer, reduced, inner * words), Y (outer, 1, inner).

    Sizes are inner, outer, reduced.
    """
    outer, reduced, inner = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("inner", "int64")
    wide = accumulator(through)
    rows = 8 * CHUNK
    in_place = of == "value" and source == through == "float32"

    @T.macro
    def combine_row(X, row, column, x, floats, bits, partial, width):
        load_elements(X, row, column, x, floats, bits, width, source, through, of)
        for k in T.serial(width):
            partial[k] = combine_in_c(operation, partial[k], x[k])

    @T.macro
    def combine_rows(X, place, first, count, column, x, floats, bits, partial, width):
        if in_place:
            for i in T.serial(count // TOGETHER):
                for k in T.serial(width):
                    together = combined(operation, X, place, first + i * TOGETHER, column + k)
                    partial[k] = combine_in_c(operation, partial[k], together)
            for i in T.serial(count % TOGETHER):
                start = place, first + count // TOGETHER * TOGETHER + i
                combine_row(X, start, column, x, floats, bits, partial, width)
        else:
            for i in T.serial(count):
                combine_row(X, (place, first + i), column, x, floats, bits, partial, width)

    @T.macro
    def bring_in(partial, totals, width):
        for k in T.serial(width):
            totals[k] = combine_in_c(operation, totals[k], partial[k])
            partial[k] = identity(operation, wide)

    @T.macro
    def combine_columns(X, Y, count, start, x, floats, bits, partial, totals, width):
        for k in T.serial(width):
            totals[k] = identity(operation, wide)
            partial[k] = identity(operation, wide)
        for c in T.serial(reduced // rows):
            combine_rows(X, start[0], c * rows, rows, start[1], x, floats, bits, partial, width)
            bring_in(partial, totals, width)
        rest = reduced % rows
        combine_rows(X, start[0], reduced // rows * rows, rest, start[1], x, floats, bits, partial, width)
        bring_in(partial, totals, width)
        if gives != "total":
            for k in T.serial(width):
                totals[k] = outcome(gives, totals[k], count)
        store_elements(totals, Y, (start[0], 0), start[1], width, target)

    @T.macro
    def body(X, Y, count):
        with T.Kernel(outer) as place:
            x = T.alloc_local((COLUMNS,), wide)
            floats = T.alloc_local((COLUMNS,), "float32")
            bits = T.alloc_local((1, COLUMNS), "int16")
            partial = T.alloc_local((COLUMNS,), wide)
            totals = T.alloc_local((COLUMNS,), wide)
            for b in T.serial(inner // COLUMNS):
                combine_columns(X, Y, count, (place, b * COLUMNS), x, floats, bits, partial, totals, COLUMNS)
            combine_columns(
                X, Y, count, (place, inner // COLUMNS * COLUMNS), x, floats, bits, partial, totals, inner % COLUMNS
            )

    shapes = (outer, reduced, inner * words_of(source)), (outer, 1, inner)
    program = reduction(body, gives, storage_dtype(source), shapes[0], storage_dtype(target), shapes[1])
    split = {"X": f"reduced * inner * {words_of(source)}", "Y": "inner"}
    return program, RowSplit("outer", split, work="reduced * inner")
