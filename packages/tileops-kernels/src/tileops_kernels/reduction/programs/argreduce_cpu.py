"""Positions of extremes on a CPU: in rows that lie together, in columns that lie side by side, and among candidates.

The first of equal elements is found, and the first NaN where there is one. Every size is dynamic; callers pass the
sizes in alphabetical order.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.combining import NOWHERE, farthest, overtakes, precedes
from tileops_kernels.macros.cpu_blocks import BLOCK, COLUMNS, LANES, load_block, load_elements, storage_dtype


def order(operation, value):
    """An int32 that is greater for what is better for `operation`, equal for zeros of both signs, and most for NaN."""
    bits = T.if_then_else(value == 0, T.int32(0), T.reinterpret(value, "int32"))
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return T.if_then_else(T.isnan(value), T.max_value("int32"), rising if operation == "argmax" else ~rising)


def arg_rows(operation, source):
    """The position in each row; parameters X (outer, 1, reduced), Y (outer,); sizes outer, reduced."""
    outer, reduced = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64")

    @T.macro
    def compare(x, best, step, k, first, count):
        for lane in T.serial(count):
            # steps rise, and a maximum is stored whether or not it has changed: a choice became a branch
            taken = T.if_then_else(overtakes(operation, x[k * LANES + lane], best[lane]), first + k, 0)
            step[lane] = T.max(step[lane], taken)
            best[lane] = T.if_then_else(
                overtakes(operation, x[k * LANES + lane], best[lane]), x[k * LANES + lane], best[lane]
            )

    @T.macro
    def compare_block(X, row, block, x, bits, best, step, width):
        load_elements(X, (row, 0), block * BLOCK, x, x, bits, width, source, "float32")
        first = T.cast(block * (BLOCK // LANES), "int32")
        for k in T.serial(T.cast(width // LANES, "int32")):
            compare(x, best, step, k, first, LANES)
        if width % LANES != 0:
            compare(x, best, step, T.cast(width // LANES, "int32"), first, width % LANES)

    @T.macro
    def find_in_row(X, row, x, bits, best, step, key, greatest, position):
        for lane in T.serial(LANES):
            best[lane] = farthest(operation)
            step[lane] = 0
        for b in T.serial(reduced // BLOCK):
            compare_block(X, row, b, x, bits, best, step, BLOCK)
        compare_block(X, row, reduced // BLOCK, x, bits, best, step, reduced % BLOCK)
        # as integers the lanes are compared side by side: choosing pairs of value and position took twice as long
        for lane in T.serial(LANES):
            key[lane] = order(operation, best[lane])
        greatest[0] = key[0]
        for lane in T.serial(LANES):
            greatest[0] = T.max(greatest[0], key[lane])
        position[0] = T.int64(NOWHERE)
        for lane in T.serial(LANES):
            place = T.cast(step[lane], "int64") * LANES + lane
            position[0] = T.min(position[0], T.if_then_else(key[lane] == greatest[0], place, T.int64(NOWHERE)))

    @T.macro
    def find_in_short_row(X, row, x, bits, best, position):
        # the remainder is the row: a size given to a macro as it stands would take the name of the macro's parameter
        load_elements(X, (row, 0), 0, x, x, bits, reduced % LANES, source, "float32")
        best[0] = x[0]
        position[0] = T.int64(0)
        for k in T.serial(reduced - 1):
            if overtakes(operation, x[k + 1], best[0]):
                best[0] = x[k + 1]
                position[0] = k + 1

    @T.prim_func
    def program(X: T.Tensor[(outer, 1, reduced), storage_dtype(source)], Y: T.Tensor[(outer,), "int64"]):
        with T.Kernel(outer) as row:
            x = T.alloc_local((BLOCK,), "float32")
            bits = T.alloc_local((1, BLOCK), "int16")
            best = T.alloc_local((LANES,), "float32")
            step = T.alloc_local((LANES,), "int32")
            key = T.alloc_local((LANES,), "int32")
            greatest = T.alloc_local((1,), "int32")
            position = T.alloc_local((1,), "int64")
            if reduced < LANES:
                find_in_short_row(X, row, x, bits, best, position)
            else:
                find_in_row(X, row, x, bits, best, step, key, greatest, position)
            Y[row] = position[0]

    return program, RowSplit("outer", {"X": "reduced", "Y": 1}, work="reduced")


def arg_columns(operation, source):
    """The position in each column; parameters X (outer, reduced, inner), Y (outer, inner).

    Sizes are inner, outer, reduced.
    """
    outer, reduced, inner = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("inner", "int64")

    @T.macro
    def compare_row(X, place, i, column, x, bits, best, position, width):
        load_elements(X, (place, i), column, x, x, bits, width, source, "float32")
        for k in T.serial(width):
            taken = T.if_then_else(overtakes(operation, x[k], best[k]), T.cast(i, "int64"), T.int64(0))
            position[k] = T.max(position[k], taken)
            best[k] = T.if_then_else(overtakes(operation, x[k], best[k]), x[k], best[k])

    @T.macro
    def columns(X, Y, place, column, x, bits, best, position, width):
        for k in T.serial(width):
            best[k] = farthest(operation)
            position[k] = T.int64(0)
        for i in T.serial(reduced):
            compare_row(X, place, i, column, x, bits, best, position, width)
        for k in T.serial(width):
            Y[place, column + k] = position[k]

    @T.prim_func
    def program(X: T.Tensor[(outer, reduced, inner), storage_dtype(source)], Y: T.Tensor[(outer, inner), "int64"]):
        with T.Kernel(outer) as place:
            x = T.alloc_local((COLUMNS,), "float32")
            bits = T.alloc_local((1, COLUMNS), "int16")
            best = T.alloc_local((COLUMNS,), "float32")
            position = T.alloc_local((COLUMNS,), "int64")
            for b in T.serial(inner // COLUMNS):
                columns(X, Y, place, b * COLUMNS, x, bits, best, position, COLUMNS)
            columns(X, Y, place, inner // COLUMNS * COLUMNS, x, bits, best, position, inner % COLUMNS)

    return program, RowSplit("outer", {"X": "reduced * inner", "Y": "inner"}, work="reduced * inner")


def arg_candidates(operation, source):
    """The best of candidates for each position; parameters X (outer, reduced, inner), C (outer, parts, inner), Y.

    Y is (outer, inner); sizes inner, outer, parts, reduced. Candidate k is the element of X at
    `C[:, k, :] * scale + k * step` of the axis.
    """
    outer, reduced, inner = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("inner", "int64")
    parts = T.dynamic("parts", "int64")

    @T.prim_func
    def program(
        X: T.Tensor[(outer, reduced, inner), storage_dtype(source)],
        C: T.Tensor[(outer, parts, inner), "int64"],
        Y: T.Tensor[(outer, inner), "int64"],
        scale: T.int64,
        step: T.int64,
    ):
        with T.Kernel(outer) as place:
            best = T.alloc_local((1,), "float32")
            position = T.alloc_local((1,), "int64")
            value = T.alloc_local((1,), "float32")
            candidate = T.alloc_local((1,), "int64")
            for j in T.serial(inner):
                best[0] = farthest(operation)
                position[0] = T.int64(NOWHERE)
                for k in T.serial(parts):
                    candidate[0] = C[place, k, j] * scale + k * step
                    load_block(X, (place, candidate[0]), j, value, 1, source)
                    if precedes(operation, value[0], candidate[0], best[0], position[0]):
                        best[0] = value[0]
                        position[0] = candidate[0]
                Y[place, j] = position[0]

    advance = {"X": "reduced * inner", "C": "parts * inner", "Y": "inner"}
    return program, RowSplit("outer", advance, work="parts * inner")
