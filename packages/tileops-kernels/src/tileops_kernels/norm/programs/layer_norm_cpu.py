"""LayerNorm on a CPU: each row is read twice, the second time from the cache."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, load_block, storage_dtype, store_block
from tileops_kernels.macros.cpu_moments import add_block, clear_lanes, moments_over_lanes
from tileops_kernels.macros.row_signatures import program_of_rows


def layer_norm_rows(n, dtype, weighted, biased):
    """Rows of `n` elements; parameters X (m, n), W (1, n) if weighted, B (1, n) if biased, Y (m, n), eps; size m."""
    m = T.dynamic("m", "int64")
    storage = storage_dtype(dtype)
    blocks, tail = divmod(n, BLOCK)

    @T.macro
    def write_block(X, W, B, Y, row, column, x, w, result, scale, width):
        load_block(X, row, column, x, width, dtype)
        for k in T.serial(width):
            x[k] = (x[k] - result[1] - result[2]) * scale[0]
        if weighted:
            load_block(W, 0, column, w, width, dtype)
            for k in T.serial(width):
                x[k] = x[k] * w[k]
        if biased:
            load_block(B, 0, column, w, width, dtype)
            for k in T.serial(width):
                x[k] = x[k] + w[k]
        store_block(x, Y, row, column, width, dtype)

    @T.macro
    def normalize(X, W, B, Y, eps):
        with T.Kernel(m) as row:
            counts = T.alloc_local((LANES,), "float32")
            means = T.alloc_local((LANES,), "float32")
            squares = T.alloc_local((LANES,), "float32")
            block_means = T.alloc_local((LANES,), "float32")
            block_squares = T.alloc_local((LANES,), "float32")
            result = T.alloc_local((4,), "float32")
            scale = T.alloc_local((1,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            w = T.alloc_local((BLOCK,), "float32")
            clear_lanes(counts, means, squares)
            for j in T.serial(blocks):
                load_block(X, row, j * BLOCK, x, BLOCK, dtype)
                add_block(x, BLOCK, counts, means, squares, block_means, block_squares)
            if tail:
                load_block(X, row, blocks * BLOCK, x, tail, dtype)
                add_block(x, tail, counts, means, squares, block_means, block_squares)
            moments_over_lanes(counts, means, squares, result)
            scale[0] = T.rsqrt(result[3] / n + eps)
            for j in T.serial(blocks):
                write_block(X, W, B, Y, row, j * BLOCK, x, w, result, scale, BLOCK)
            if tail:
                write_block(X, W, B, Y, row, blocks * BLOCK, x, w, result, scale, tail)

    program = program_of_rows(normalize, (m, n), (1, n), storage, weighted, biased)
    return program, RowSplit("m", {"X": n, "Y": n}, work=n)
