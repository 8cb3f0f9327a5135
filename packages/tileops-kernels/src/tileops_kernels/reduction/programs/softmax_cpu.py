"""Softmax on a CPU: rows that lie together, read twice, and columns that lie side by side, read three times.

With `log` the result is its logarithm. Every size is dynamic; callers pass the sizes in alphabetical order.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.combining import part, weight
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, load_elements, lowest, storage_dtype, store_block
from tileops_kernels.macros.cpu_folds import add_block, clear_exponentials, exponentials_over_lanes


def softmax_rows(log, source, through, target):
    """Rows; parameters X and Y (outer, 1, reduced); sizes outer, reduced."""
    outer, reduced = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64")

    @T.macro
    def add(X, row, column, x, bits, kept, width):
        load_elements(X, (row, 0), column, x, x, bits, width, source, through)
        add_block(x, width, *kept, False)

    @T.macro
    def write(X, Y, row, column, x, bits, largest, total, width):
        load_elements(X, (row, 0), column, x, x, bits, width, source, through)
        for k in T.serial(width):
            x[k] = weight(log, x[k] - largest[0])
        for k in T.serial(width):
            x[k] = part(log, x[k], total[0])
        store_block(x, Y, (row, 0), column, width, target)

    @T.prim_func
    def program(
        X: T.Tensor[(outer, 1, reduced), storage_dtype(source)],
        Y: T.Tensor[(outer, 1, reduced), storage_dtype(target)],
    ):
        with T.Kernel(outer) as row:
            x = T.alloc_local((BLOCK,), "float32")
            bits = T.alloc_local((1, BLOCK), "int16")
            largest = T.alloc_local((LANES,), "float32")
            total = T.alloc_local((LANES,), "float32")
            earlier = T.alloc_local((LANES,), "float32")
            clear_exponentials(largest, total, LANES)
            for b in T.serial(reduced // BLOCK):
                add(X, row, b * BLOCK, x, bits, (largest, total, earlier), BLOCK)
            if reduced % BLOCK > 0:
                add(X, row, reduced // BLOCK * BLOCK, x, bits, (largest, total, earlier), reduced % BLOCK)
            exponentials_over_lanes(largest, total, earlier)
            if log:
                total[0] = T.log(total[0])
            for b in T.serial(reduced // BLOCK):
                write(X, Y, row, b * BLOCK, x, bits, largest, total, BLOCK)
            write(X, Y, row, reduced // BLOCK * BLOCK, x, bits, largest, total, reduced % BLOCK)

    return program, RowSplit("outer", {"X": "reduced", "Y": "reduced"}, work="reduced")


def softmax_columns(log, source, through, target):
    """Columns; parameters X and Y (outer, reduced, inner); sizes inner, outer, reduced."""
    outer, reduced, inner = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("inner", "int64")

    @T.macro
    def weights(X, place, i, column, x, bits, largest, width, log):
        load_elements(X, (place, i), column, x, x, bits, width, source, through)
        for k in T.serial(width):
            x[k] = weight(log, x[k] - largest[k])

    @T.macro
    def columns(X, Y, place, column, x, bits, largest, sums, width):
        for k in T.serial(width):
            largest[k] = lowest()
            sums[k] = T.float32(0)
        for i in T.serial(reduced):
            load_elements(X, (place, i), column, x, x, bits, width, source, through)
            for k in T.serial(width):
                largest[k] = T.max(x[k], largest[k])
        for i in T.serial(reduced):
            weights(X, place, i, column, x, bits, largest, width, False)
            for k in T.serial(width):
                sums[k] += x[k]
        if log:
            for k in T.serial(width):
                sums[k] = T.log(sums[k])
        for i in T.serial(reduced):
            weights(X, place, i, column, x, bits, largest, width, log)
            for k in T.serial(width):
                x[k] = part(log, x[k], sums[k])
            store_block(x, Y, (place, i), column, width, target)

    @T.prim_func
    def program(
        X: T.Tensor[(outer, reduced, inner), storage_dtype(source)],
        Y: T.Tensor[(outer, reduced, inner), storage_dtype(target)],
    ):
        with T.Kernel(outer) as place:
            x = T.alloc_local((BLOCK,), "float32")
            bits = T.alloc_local((1, BLOCK), "int16")
            largest = T.alloc_local((BLOCK,), "float32")
            sums = T.alloc_local((BLOCK,), "float32")
            for b in T.serial(inner // BLOCK):
                columns(X, Y, place, b * BLOCK, x, bits, largest, sums, BLOCK)
            columns(X, Y, place, inner // BLOCK * BLOCK, x, bits, largest, sums, inner % BLOCK)

    return program, RowSplit("outer", {"X": "reduced * inner", "Y": "reduced * inner"}, work="reduced * inner")
