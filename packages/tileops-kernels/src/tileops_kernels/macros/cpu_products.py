"""Matrix products on a CPU: tiles of rows and columns packed as float32, multiplied in registers.

A tile of ROWS x COLUMNS sums is kept while the products of DEPTH terms at a time are added to it. Operands are read in
any dtype by rows of their storage, so that a transposed one needs no copy.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import offset_of, start_of, storage_dtype
from tileops_kernels.macros.cpu_registers import unrolled

ROWS = 48
"""Rows of a tile; a multiple of STEP."""

STEP = 6
"""Rows whose sums stand in registers: with two vectors each they take 12 of 16, and leave room for the operands."""

COLUMNS = 64
"""Columns of a tile, in panels of PANEL."""

PANEL = 16
"""Columns of a panel: two vectors of eight."""

DEPTH = 256
"""Terms of a product that are packed at a time: a panel of them is 16 KiB, half of the first-level cache."""

LANES = 8


@T.macro
def load(source, row, column, target, place, width, dtype):
    """target[place : place + width] = source[row, column : column + width], elements of `dtype`, as float32."""
    T.evaluate(
        T.call_extern(
            "int32",
            "tileops_load_" + dtype,
            start_of(source),
            offset_of(source, row, column),
            T.address_of(target[place]),
            T.cast(width, "int32"),
        )
    )


@T.macro
def store(source, place, target, row, column, width, dtype):
    """target[row, column : column + width], in `dtype`, = source[place : place + width], rounded to nearest even."""
    T.evaluate(
        T.call_extern(
            "int32",
            "tileops_store_" + dtype,
            T.address_of(source[place]),
            start_of(target),
            offset_of(target, row, column),
            T.cast(width, "int32"),
        )
    )


@T.macro
def pack_rows(A, a, line, row, term, rows, terms, transposed, dtype):
    """a[i * DEPTH + t] = A[row + i, term + t], or A[term + t, row + i] if transposed, for i < rows and t < terms.

    `line` is scratch of DEPTH elements.
    """
    if transposed:
        for t in T.serial(terms):
            load(A, term + t, row, line, 0, rows, dtype)
            for i in T.serial(rows):
                a[i * DEPTH + t] = line[i]
    else:
        for i in T.serial(rows):
            load(A, row + i, term, a, i * DEPTH, terms, dtype)


@T.macro
def pack_panel(B, b, line, panel, place, column, term, columns, terms, transposed, dtype):
    """Panel `panel` of b from its column `place` on = B[term + t, column + j] for t < terms and j < columns.

    B[column + j, term + t] if transposed. `line` is scratch of DEPTH elements.
    """
    if transposed:
        for j in T.serial(columns):
            load(B, column + j, term, line, 0, terms, dtype)
            for t in T.serial(terms):
                b[(panel * DEPTH + t) * PANEL + place + j] = line[t]
    else:
        for t in T.serial(terms):
            load(B, term + t, column, b, (panel * DEPTH + t) * PANEL + place, columns, dtype)


@T.macro
def multiply(a, b, sums, partial, rows, panels, terms):
    """sums[i, j] += the products of the packed `terms`, for the rows of whole steps and the columns of `panels`."""
    for panel in T.serial(panels):
        for step in T.serial((rows + STEP - 1) // STEP):
            for i in unrolled(STEP):
                for v in unrolled(PANEL // LANES):
                    partial[i, v] = sums[T.Ramp((step * STEP + i) * COLUMNS + panel * PANEL + v * LANES, 1, LANES)]
            for t in T.serial(terms):
                for i in unrolled(STEP):
                    for v in unrolled(PANEL // LANES):
                        partial[i, v] = (
                            partial[i, v]
                            + T.Broadcast(a[(step * STEP + i) * DEPTH + t], LANES)
                            * b[T.Ramp((panel * DEPTH + t) * PANEL + v * LANES, 1, LANES)]
                        )
            for i in unrolled(STEP):
                for v in unrolled(PANEL // LANES):
                    sums[T.Ramp((step * STEP + i) * COLUMNS + panel * PANEL + v * LANES, 1, LANES)] = partial[i, v]


def product_tiles(dtype, out_dtype, trans_a, trans_b, split, gated=None):
    """The program D = A B for D of m x n with k terms, and how threads share the "rows" or the "columns" of D.

    Parameters A, B, D, m, n, k; sizes lda, ldb, ldd. A is stored (m, k), or (k, m) if trans_a; B (k, n), or (n, k) if
    trans_b; D (m, n): as so many rows of so many elements. `gated` is a function of a gate and its factor: B, under
    trans_b, is then (2 n, k), gates above their factors, D = gated(gate, factor), and b_rows is a size before lda.
    """
    paired = gated is not None
    width = PANEL // 2 if paired else PANEL
    tile = COLUMNS // PANEL * width
    a_rows, b_rows, d_rows = (T.dynamic(name, "int64") for name in ("a_rows", "b_rows", "d_rows"))
    lda, ldb, ldd = (T.dynamic(name, "int64") for name in ("lda", "ldb", "ldd"))

    @T.macro
    def pack(B, b, line, panel, column, term, columns, terms, factors):
        pack_panel(B, b, line, panel, 0, column, term, columns, terms, trans_b, dtype)
        if paired:
            pack_panel(B, b, line, panel, width, factors + column, term, columns, terms, trans_b, dtype)

    @T.macro
    def finish(sums, line, i, panels):
        for panel in T.serial(panels):
            for j in T.serial(width):
                gate = sums[i * COLUMNS + panel * PANEL + j]
                factor = sums[i * COLUMNS + panel * PANEL + width + j]
                line[panel * width + j] = gated(gate, factor)

    @T.prim_func
    def tiles(
        A: T.Tensor[(a_rows, lda), storage_dtype(dtype)],
        B: T.Tensor[(b_rows, ldb), storage_dtype(dtype)],
        D: T.Tensor[(d_rows, ldd), storage_dtype(out_dtype)],
        m: T.int64,
        n: T.int64,
        k: T.int64,
    ):
        with T.Kernel(1):
            a = T.alloc_local((ROWS * DEPTH,), "float32")
            b = T.alloc_local((COLUMNS * DEPTH,), "float32")
            sums = T.alloc_local((ROWS * COLUMNS,), "float32")
            line = T.alloc_local((DEPTH,), "float32")
            partial = T.alloc_local((STEP, PANEL // LANES), "float32x8")
            for column_tile in T.serial((n + tile - 1) // tile):
                for row_tile in T.serial((m + ROWS - 1) // ROWS):
                    column, row = column_tile * tile, row_tile * ROWS
                    columns, rows = T.min(n - column, tile), T.min(m - row, ROWS)
                    panels = (columns + width - 1) // width
                    for i in T.serial(ROWS * COLUMNS):
                        sums[i] = T.float32(0)
                    for depth in T.serial((k + DEPTH - 1) // DEPTH):
                        term = depth * DEPTH
                        terms = T.min(k - term, DEPTH)
                        pack_rows(A, a, line, row, term, rows, terms, trans_a, dtype)
                        for panel in T.serial(panels):
                            first = panel * width
                            last = T.min(columns - first, width)
                            pack(B, b, line, panel, column + first, term, last, terms, b_rows // 2)
                        multiply(a, b, sums, partial, rows, panels, terms)
                    for i in T.serial(rows):
                        if paired:
                            finish(sums, line, i, panels)
                            store(line, 0, D, row + i, column, columns, out_dtype)
                        else:
                            store(sums, i * COLUMNS, D, row + i, column, columns, out_dtype)

    if split == "rows":
        return tiles, RowSplit("m", {"A": 1 if trans_a else "lda", "D": "ldd"}, work="n + k")
    return tiles, RowSplit("n", {"B": "ldb" if trans_b else 1, "D": 1}, work="m + k")
