"""Matrix product on CUDA: a tile of the result in each block, its operands streamed through shared memory."""

from tileops_kernels.macros.cuda_products import product_tiles


def gemm_tiles(dtype, trans_a, trans_b, stream, n, k, vector, rows, columns, depth, stages, threads):
    """D = A B; see `product_tiles`."""
    return product_tiles(dtype, trans_a, trans_b, stream, n, k, vector, rows, columns, depth, stages, threads)
