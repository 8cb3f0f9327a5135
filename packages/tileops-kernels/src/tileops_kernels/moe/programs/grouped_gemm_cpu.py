"""One expert's matrix product on a CPU: tiles packed as float32 and multiplied in registers."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import storage_dtype
from tileops_kernels.macros.cpu_products import (
    COLUMNS,
    DEPTH,
    LANES,
    PANEL,
    ROWS,
    STEP,
    multiply,
    pack_panel,
    pack_rows,
    store,
)


def expert_tiles(dtype, out_dtype, activation, split):
    """D = A B transposed, m x n with k terms; parameters A, B, D, m, n, k; sizes b_rows if paired, lda, ldb, ldd.

    A is (m, k), B (n, k), D (m, n), as so many rows of so many elements. With an activation B is (2 n, k), gates above
    their factors: D = activation(gate) * factor, computed in float32. Threads share the "rows" or "columns" of D.
    """
    paired = activation != "none"
    width = PANEL // 2 if paired else PANEL
    tile = COLUMNS // PANEL * width
    a_rows, b_rows, d_rows = (T.dynamic(name, "int64") for name in ("a_rows", "b_rows", "d_rows"))
    lda, ldb, ldd = (T.dynamic(name, "int64") for name in ("lda", "ldb", "ldd"))

    @T.macro
    def pack(B, b, line, panel, column, term, columns, terms, up):
        pack_panel(B, b, line, panel, 0, column, term, columns, terms, True, dtype)
        if paired:
            pack_panel(B, b, line, panel, width, up + column, term, columns, terms, True, dtype)

    @T.macro
    def activate(sums, line, i, panels):
        for panel in T.serial(panels):
            for j in T.serial(width):
                gate = sums[i * COLUMNS + panel * PANEL + j]
                factor = sums[i * COLUMNS + panel * PANEL + width + j]
                if activation == "silu_and_mul":
                    line[panel * width + j] = gate / (T.float32(1) + T.exp(-gate)) * factor
                else:
                    tail = T.call_pure_extern("float32", "erfcf", gate * T.float32(-0.7071067811865476))
                    line[panel * width + j] = gate * T.float32(0.5) * tail * factor

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
                        terms = T.min(k - depth * DEPTH, DEPTH)
                        pack_rows(A, a, line, row, depth * DEPTH, rows, terms, False, dtype)
                        for panel in T.serial(panels):
                            first = panel * width
                            last = T.min(columns - first, width)
                            pack(B, b, line, panel, column + first, depth * DEPTH, last, terms, b_rows // 2)
                        multiply(a, b, sums, partial, rows, panels, terms)
                    for i in T.serial(rows):
                        if paired:
                            activate(sums, line, i, panels)
                            store(line, 0, D, row + i, column, columns, out_dtype)
                        else:
                            store(sums, i * COLUMNS, D, row + i, column, columns, out_dtype)

    if split == "rows":
        return tiles, RowSplit("m", {"A": "lda", "D": "ldd"}, work="n + k")
    return tiles, RowSplit("n", {"B": "ldb", "D": 1}, work="m + k")
