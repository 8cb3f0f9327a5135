"""Matrix product on a CPU: tiles packed as float32 and multiplied in registers."""

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


def gemm_tiles(dtype, trans_a, trans_b, split):
    """D = A B for D of m x n with k terms; parameters A, B, D, m, n, k; sizes lda, ldb, ldd.

    A is stored (m, k), or (k, m) if trans_a; B (k, n), or (n, k) if trans_b; D (m, n): as so many rows of so many
    elements. Threads share the "rows" or the "columns" of D.
    """
    storage = storage_dtype(dtype)
    a_rows, b_rows, d_rows = (T.dynamic(name, "int64") for name in ("a_rows", "b_rows", "d_rows"))
    lda, ldb, ldd = (T.dynamic(name, "int64") for name in ("lda", "ldb", "ldd"))

    @T.prim_func
    def tiles(
        A: T.Tensor[(a_rows, lda), storage],
        B: T.Tensor[(b_rows, ldb), storage],
        D: T.Tensor[(d_rows, ldd), storage],
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
            for column_tile in T.serial((n + COLUMNS - 1) // COLUMNS):
                for row_tile in T.serial((m + ROWS - 1) // ROWS):
                    column, row = column_tile * COLUMNS, row_tile * ROWS
                    columns, rows = T.min(n - column, COLUMNS), T.min(m - row, ROWS)
                    panels = (columns + PANEL - 1) // PANEL
                    for i in T.serial(ROWS * COLUMNS):
                        sums[i] = T.float32(0)
                    for depth in T.serial((k + DEPTH - 1) // DEPTH):
                        term = depth * DEPTH
                        terms = T.min(k - term, DEPTH)
                        pack_rows(A, a, line, row, term, rows, terms, trans_a, dtype)
                        for panel in T.serial(panels):
                            pack_panel(
                                B,
                                b,
                                line,
                                panel,
                                0,
                                column + panel * PANEL,
                                term,
                                T.min(columns - panel * PANEL, PANEL),
                                terms,
                                trans_b,
                                dtype,
                            )
                        multiply(a, b, sums, partial, rows, panels, terms)
                    for i in T.serial(rows):
                        store(sums, i * COLUMNS, D, row + i, column, columns, dtype)

    if split == "rows":
        return tiles, RowSplit("m", {"A": 1 if trans_a else "lda", "D": "ldd"}, work="n + k")
    return tiles, RowSplit("n", {"B": "ldb" if trans_b else 1, "D": 1}, work="m + k")
