"""Matrix product on CUDA: a tile of the result in each block, its operands streamed through shared memory."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_products import column_grid, column_of, multiply_tiles, operand_tile


def gemm_tiles(dtype, trans_a, trans_b, stream, n, k, vector, rows, columns, depth, stages, threads):
    """D = A B, summed in float32; parameters A, B, D; size m, and n and k where they are given as 0.

    A is stored (m, k), or (k, m) if trans_a; B (k, n), or (n, k) if trans_b; D (m, n). The extent along which each of
    them is stored is a multiple of `vector` elements. A block makes `rows` x `columns` of D from `depth` terms at a
    time, of which `stages` are in shared memory or on their way there.
    """
    m, n, k = T.dynamic("m", "int64"), n or T.dynamic("n", "int64"), k or T.dynamic("k", "int64")

    @T.prim_func
    def tiles(
        A: T.Tensor[((k, m) if trans_a else (m, k)), dtype],
        B: T.Tensor[((n, k) if trans_b else (k, n)), dtype],
        D: T.Tensor[(m, n), dtype],
    ):
        with T.Kernel(T.ceildiv(m, rows), *column_grid(n, columns), threads=threads) as (row_tile, near, far):
            T.assume((m if trans_a else k) % vector == 0)
            T.assume((k if trans_b else n) % vector == 0)
            T.assume(n % vector == 0)
            a = operand_tile(rows, depth, stages, stream, trans_a, dtype)
            b = operand_tile(columns, depth, stages, stream, not trans_b, dtype)
            sums = T.alloc_fragment((rows, columns), "float32")
            row = T.cast(row_tile, "int64") * rows
            column = column_of(near, far, columns)
            T.clear(sums)
            multiply_tiles(A, B, a, b, sums, row, column, k, trans_a, trans_b, (rows, columns, depth), stages, stream)
            T.copy(sums, D[row, column])

    return tiles
