"""GroupNorm on a CPU: the rows of groups are shared among threads, each of which is read twice."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, load_block, storage_dtype, store_block
from tileops_kernels.macros.cpu_moments import add_block, clear_lanes, moments_over_lanes

SHORT = 64
"""Elements of a channel below which a block takes those of many channels, and looks up the channel of each."""


def group_norm_rows(n, dtype, span, scales=None):
    """Rows of `span` channels, `n` elements in all; parameters X (m, n), W, B (groups, span), Y, eps, start and flags.

    The sizes are groups and m; `start` is the first row's number, which gives its group. `flags` has bit 1 set where W
    is to be read, and bit 2 where B is; a tensor that is not read may be any address. W and B
    are of dtype `scales`, or that of the rows.
    """
    m = T.dynamic("m", "int64")
    groups = T.dynamic("groups", "int64")
    storage = storage_dtype(dtype)
    scales = scales or dtype
    scale_storage = storage_dtype(scales)
    blocks, tail = divmod(n, BLOCK)
    length = n // span
    parts, rest = divmod(length, BLOCK)

    @T.macro
    def write_channel(X, Y, row, column, x, result, scale, weight, bias, width):
        load_block(X, row, column, x, width, dtype)
        for k in T.serial(width):
            x[k] = (x[k] - result[1] - result[2]) * scale * weight + bias
        store_block(x, Y, row, column, width, dtype)

    @T.macro
    def write_channels(X, Y, row, column, x, result, scale, weights, biases, width):
        load_block(X, row, column, x, width, dtype)
        for k in T.serial(width):
            x[k] = (x[k] - result[1] - result[2]) * scale * weights[(column + k) // length] + biases[
                (column + k) // length
            ]
        store_block(x, Y, row, column, width, dtype)

    @T.prim_func
    def normalize(
        X: T.Tensor[(m, n), storage],
        W: T.Tensor[(groups, span), scale_storage],
        B: T.Tensor[(groups, span), scale_storage],
        Y: T.Tensor[(m, n), storage],
        eps: T.float32,
        start: T.int64,
        flags: T.int32,
    ):
        with T.Kernel(m) as row:
            counts = T.alloc_local((LANES,), "float32")
            pivots = T.alloc_local((LANES,), "float32")
            means = T.alloc_local((LANES,), "float32")
            squares = T.alloc_local((LANES,), "float32")
            block_means = T.alloc_local((LANES,), "float32")
            block_squares = T.alloc_local((LANES,), "float32")
            result = T.alloc_local((4,), "float32")
            scale = T.alloc_local((1,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            weights = T.alloc_local((span,), "float32")
            biases = T.alloc_local((span,), "float32")
            group = T.truncmod(start + row, groups)
            clear_lanes(counts, pivots, means, squares)
            for j in T.serial(blocks):
                load_block(X, row, j * BLOCK, x, BLOCK, dtype)
                add_block(x, BLOCK, counts, pivots, means, squares, block_means, block_squares)
            if tail:
                load_block(X, row, blocks * BLOCK, x, tail, dtype)
                add_block(x, tail, counts, pivots, means, squares, block_means, block_squares)
            moments_over_lanes(counts, pivots, means, squares, result)
            scale[0] = T.rsqrt(result[3] / n + eps)
            for c in T.serial(span):
                weights[c] = T.float32(1)
                biases[c] = T.float32(0)
            if flags & 1 != 0:
                load_block(W, group, 0, weights, span, scales)
            if flags & 2 != 0:
                load_block(B, group, 0, biases, span, scales)
            if length < SHORT:
                for j in T.serial(blocks):
                    write_channels(X, Y, row, j * BLOCK, x, result, scale[0], weights, biases, BLOCK)
                if tail:
                    write_channels(X, Y, row, blocks * BLOCK, x, result, scale[0], weights, biases, tail)
            else:
                for c in T.serial(span):
                    for j in T.serial(parts):
                        write_channel(
                            X, Y, row, c * length + j * BLOCK, x, result, scale[0], weights[c], biases[c], BLOCK
                        )
                    if rest:
                        write_channel(
                            X, Y, row, c * length + parts * BLOCK, x, result, scale[0], weights[c], biases[c], rest
                        )

    return normalize, RowSplit("m", {"X": n, "Y": n}, work=n, start="start")
