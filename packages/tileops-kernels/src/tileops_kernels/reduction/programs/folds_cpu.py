"""Folds on a CPU, reductions that keep more than one value: rows that lie together, and columns that lie side by side.

Folds, what they give, and parts of elements are those of the programs on CUDA. The parts of an element and of a partial
result are neighbours: tensors that hold them have one more axis, of length 3. Every size is dynamic; callers pass the
sizes in alphabetical order.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros import cpu_folds, cpu_moments
from tileops_kernels.macros.combining import fold_program, planes_of
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, load_elements, storage_dtype, store_block

COLUMNS = 1024
"""Columns that are folded side by side: with 256, rows of 4096 float32 were fetched four times as slowly."""

GROUP = 8
"""Rows that are folded together, each read twice, before they join what came earlier."""


def fold_rows(fold, gives, mean, source, parts, target):
    """Each row to its result; parameters X (outer, 1, reduced), Y and M (outer, 1, 1); sizes outer, reduced.

    Of several parts X is (outer, reduced, 3), and of a partial result Y is (outer, 1, 3).
    """
    outer, reduced = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64")

    @T.macro
    def add_to_exponentials(X, row, column, x, bits, kept, width):
        load_elements(X, (row, 0), column, x, x, bits, width, source, "float32")
        cpu_folds.add_block(x, width, *kept, True)

    @T.macro
    def fold_exponentials(X, Y, row, x, bits, kept):
        cpu_folds.clear_exponentials(kept[0], kept[1], LANES)
        for b in T.serial(reduced // BLOCK):
            add_to_exponentials(X, row, b * BLOCK, x, bits, kept, BLOCK)
        if reduced % BLOCK > 0:
            add_to_exponentials(X, row, reduced // BLOCK * BLOCK, x, bits, kept, reduced % BLOCK)
        cpu_folds.exponentials_over_lanes(*kept)
        x[0] = kept[0][0] + T.log(kept[1][0])
        store_block(x, Y, (row, 0), 0, 1, target)

    @T.macro
    def add_to_moments(X, row, column, x, bits, moments, extra, width):
        if parts == 1:
            load_elements(X, (row, 0), column, x, x, bits, width, source, "float32")
        else:
            for k in T.serial(width):
                x[k] = X[row, column + k, 0] - extra[0] + X[row, column + k, 1]
                extra[1] += X[row, column + k, 2]
        cpu_moments.add_block(x, width, *moments)

    @T.macro
    def fold_moments(X, Y, M, divisor, row, x, bits, moments, extra, result):
        cpu_moments.clear_lanes(*moments[:4])
        extra[0] = T.float32(0)
        extra[1] = T.float32(0)
        if parts > 1:
            extra[0] = X[row, 0, 0]
        for b in T.serial(reduced // BLOCK):
            add_to_moments(X, row, b * BLOCK, x, bits, moments, extra, BLOCK)
        if reduced % BLOCK > 0:
            rest = T.cast(reduced % BLOCK, "int32")
            add_to_moments(X, row, reduced // BLOCK * BLOCK, x, bits, moments, extra, rest)
        cpu_moments.moments_over_lanes(*moments[:4], result)
        x[0] = (result[3] + extra[1]) / divisor
        if parts > 1:
            result[2] = result[1] + result[2]
            result[1] = extra[0]
        if gives == "partial":
            Y[row, 0, 0] = result[1]
            Y[row, 0, 1] = result[2]
            Y[row, 0, 2] = x[0]
        else:
            if gives == "deviation":
                x[0] = T.sqrt(x[0])
            store_block(x, Y, (row, 0), 0, 1, target)
        if mean:
            x[0] = result[1] + result[2]
            store_block(x, M, (row, 0), 0, 1, target)

    @T.macro
    def body(X, Y, M, divisor):
        with T.Kernel(outer) as row:
            x = T.alloc_local((BLOCK,), "float32")
            bits = T.alloc_local((1, BLOCK), "int16")
            first = T.alloc_local((LANES,), "float32")
            second = T.alloc_local((LANES,), "float32")
            third = T.alloc_local((LANES,), "float32")
            if fold == "log_sum_exp":
                fold_exponentials(X, Y, row, x, bits, (first, second, third))
            else:
                fourth = T.alloc_local((LANES,), "float32")
                block_means = T.alloc_local((LANES,), "float32")
                block_squares = T.alloc_local((LANES,), "float32")
                extra = T.alloc_local((2,), "float32")
                result = T.alloc_local((4,), "float32")
                moments = (first, second, third, fourth, block_means, block_squares)
                fold_moments(X, Y, M, divisor, row, x, bits, moments, extra, result)

    shapes = (outer, 1, reduced) if parts == 1 else (outer, reduced, parts), (outer, 1, planes_of(gives)), (outer, 1, 1)
    steps = {"X": f"{parts} * reduced", "Y": planes_of(gives), **({"M": 1} if mean else {})}
    program = fold_program(
        body, fold == "moments", mean, storage_dtype(source), shapes[0], storage_dtype(target), shapes[1], shapes[2]
    )
    return program, RowSplit("outer", steps, work="reduced")


def fold_columns(fold, gives, mean, source, parts, target):
    """Each column to its result; parameters X (outer, reduced, inner), Y and M (outer, 1, inner).

    Of several parts X is (outer, reduced, inner, 3), and of a partial result Y is (outer, inner, 3). Sizes are inner,
    outer, reduced.
    """
    outer, reduced, inner = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("inner", "int64")

    @T.macro
    def exponentials_of_rows(X, place, first, rows, column, x, bits, kept, width):
        for k in T.serial(width):
            kept[2][k] = kept[0][k]
        for i in T.serial(rows):
            load_elements(X, (place, first + i), column, x, x, bits, width, source, "float32")
            for k in T.serial(width):
                kept[0][k] = T.max(x[k], kept[0][k])
        cpu_folds.raise_largest(*kept, width, True)
        for i in T.serial(rows):
            load_elements(X, (place, first + i), column, x, x, bits, width, source, "float32")
            for k in T.serial(width):
                x[k] = T.exp(x[k] - kept[0][k])
            for k in T.serial(width):
                kept[1][k] += x[k]

    @T.macro
    def exponentials(X, Y, place, column, x, bits, kept, width):
        cpu_folds.clear_exponentials(kept[0], kept[1], width)
        for c in T.serial(reduced // GROUP):
            exponentials_of_rows(X, place, c * GROUP, GROUP, column, x, bits, kept, width)
        if reduced % GROUP > 0:
            exponentials_of_rows(X, place, reduced // GROUP * GROUP, reduced % GROUP, column, x, bits, kept, width)
        for k in T.serial(width):
            x[k] = kept[0][k] + T.log(kept[1][k])
        store_block(x, Y, (place, 0), column, width, target)

    @T.macro
    def differences(X, place, i, column, x, bits, pivots, width):
        if parts == 1:
            load_elements(X, (place, i), column, x, x, bits, width, source, "float32")
            for k in T.serial(width):
                x[k] = x[k] - pivots[k]
        else:
            for k in T.serial(width):
                x[k] = X[place, i, column + k, 0] - pivots[k] + X[place, i, column + k, 1]

    @T.macro
    def moments_of_rows(X, place, first, rows, column, x, bits, pivots, count, kept, width):
        for k in T.serial(width):
            kept[2][k] = T.float32(0)
            kept[3][k] = T.float32(0)
        for i in T.serial(rows):
            differences(X, place, first + i, column, x, bits, pivots, width)
            for k in T.serial(width):
                kept[2][k] += x[k]
        terms = T.cast(rows, "float32")
        for k in T.serial(width):
            kept[2][k] = kept[2][k] / terms
        for i in T.serial(rows):
            differences(X, place, first + i, column, x, bits, pivots, width)
            for k in T.serial(width):
                kept[3][k] += (x[k] - kept[2][k]) * (x[k] - kept[2][k])
            if parts > 1:
                for k in T.serial(width):
                    kept[3][k] += X[place, first + i, column + k, 2]
        cpu_folds.merge_columns(terms, count, *kept, width)

    @T.macro
    def read_pivots(X, place, column, bits, pivots, width):
        if parts == 1:
            load_elements(X, (place, 0), column, pivots, pivots, bits, width, source, "float32")
        else:
            for k in T.serial(width):
                pivots[k] = X[place, 0, column + k, 0]

    @T.macro
    def moments(X, Y, M, divisor, place, column, x, bits, pivots, count, kept, width):
        read_pivots(X, place, column, bits, pivots, width)
        count[0] = T.float32(0)
        for k in T.serial(width):
            kept[0][k] = T.float32(0)
            kept[1][k] = T.float32(0)
        for c in T.serial(reduced // GROUP):
            moments_of_rows(X, place, c * GROUP, GROUP, column, x, bits, pivots, count, kept, width)
        if reduced % GROUP > 0:
            first = reduced // GROUP * GROUP
            moments_of_rows(X, place, first, reduced % GROUP, column, x, bits, pivots, count, kept, width)
        for k in T.serial(width):
            kept[1][k] = kept[1][k] / divisor
        if gives == "partial":
            for k in T.serial(width):
                Y[place, column + k, 0] = pivots[k]
                Y[place, column + k, 1] = kept[0][k]
                Y[place, column + k, 2] = kept[1][k]
        else:
            if gives == "deviation":
                for k in T.serial(width):
                    kept[1][k] = T.sqrt(kept[1][k])
            store_block(kept[1], Y, (place, 0), column, width, target)
        if mean:
            for k in T.serial(width):
                x[k] = pivots[k] + kept[0][k]
            store_block(x, M, (place, 0), column, width, target)

    @T.macro
    def body(X, Y, M, divisor):
        with T.Kernel(outer) as place:
            x = T.alloc_local((COLUMNS,), "float32")
            bits = T.alloc_local((1, COLUMNS), "int16")
            first = T.alloc_local((COLUMNS,), "float32")
            second = T.alloc_local((COLUMNS,), "float32")
            third = T.alloc_local((COLUMNS,), "float32")
            if fold == "log_sum_exp":
                kept = (first, second, third)
                for b in T.serial(inner // COLUMNS):
                    exponentials(X, Y, place, b * COLUMNS, x, bits, kept, COLUMNS)
                exponentials(X, Y, place, inner // COLUMNS * COLUMNS, x, bits, kept, inner % COLUMNS)
            else:
                fourth = T.alloc_local((COLUMNS,), "float32")
                pivots = T.alloc_local((COLUMNS,), "float32")
                count = T.alloc_local((1,), "float32")
                four = (first, second, third, fourth)
                for b in T.serial(inner // COLUMNS):
                    moments(X, Y, M, divisor, place, b * COLUMNS, x, bits, pivots, count, four, COLUMNS)
                column = inner // COLUMNS * COLUMNS
                moments(X, Y, M, divisor, place, column, x, bits, pivots, count, four, inner % COLUMNS)

    planes = planes_of(gives)
    shapes = (
        (outer, reduced, inner) if parts == 1 else (outer, reduced, inner, parts),
        (outer, 1, inner) if planes == 1 else (outer, inner, planes),
        (outer, 1, inner),
    )
    steps = {"X": f"{parts} * reduced * inner", "Y": f"{planes} * inner", **({"M": "inner"} if mean else {})}
    program = fold_program(
        body, fold == "moments", mean, storage_dtype(source), shapes[0], storage_dtype(target), shapes[1], shapes[2]
    )
    return program, RowSplit("outer", steps, work="reduced * inner")
