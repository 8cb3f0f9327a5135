"""RMSNorm on a CPU: each row is read twice, the second time from the cache."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, load_block, storage_dtype, store_block
from tileops_kernels.macros.row_signatures import program_of_rows


def rms_norm_rows(n, dtype, weighted):
    """Rows of `n` elements; parameters X (m, n), W (1, n) if weighted, Y (m, n), eps; size m."""
    m = T.dynamic("m", "int64")
    storage = storage_dtype(dtype)
    blocks, tail = divmod(n, BLOCK)

    @T.macro
    def add_squares(X, row, column, x, sums, width):
        load_block(X, row, column, x, width, dtype)
        for k in T.serial(width // LANES):
            for lane in T.serial(LANES):
                sums[lane] += x[k * LANES + lane] * x[k * LANES + lane]
        for lane in T.serial(width % LANES):
            sums[lane] += x[width // LANES * LANES + lane] * x[width // LANES * LANES + lane]

    @T.macro
    def mean_square_root(X, row, x, sums, scale, eps):
        for lane in T.serial(LANES):
            sums[lane] = T.float32(0)
        for j in T.serial(blocks):
            add_squares(X, row, j * BLOCK, x, sums, BLOCK)
        if tail:
            add_squares(X, row, blocks * BLOCK, x, sums, tail)
        scale[0] = T.float32(0)
        for lane in T.serial(LANES):
            scale[0] += sums[lane]
        scale[0] = T.rsqrt(scale[0] / n + eps)

    @T.macro
    def write_block(X, W, Y, row, column, x, w, scale, width):
        load_block(X, row, column, x, width, dtype)
        for k in T.serial(width):
            x[k] = x[k] * scale[0]
        if weighted:
            load_block(W, 0, column, w, width, dtype)
            for k in T.serial(width):
                x[k] = x[k] * w[k]
        store_block(x, Y, row, column, width, dtype)

    @T.macro
    def normalize(X, W, _B, Y, eps):
        with T.Kernel(m) as row:
            sums = T.alloc_local((LANES,), "float32")
            scale = T.alloc_local((1,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            w = T.alloc_local((BLOCK,), "float32")
            mean_square_root(X, row, x, sums, scale, eps)
            for j in T.serial(blocks):
                write_block(X, W, Y, row, j * BLOCK, x, w, scale, BLOCK)
            if tail:
                write_block(X, W, Y, row, blocks * BLOCK, x, w, scale, tail)

    program = program_of_rows(normalize, (m, n), (1, n), storage, weighted, False)
    return program, RowSplit("m", {"X": n, "Y": n}, work=n)
