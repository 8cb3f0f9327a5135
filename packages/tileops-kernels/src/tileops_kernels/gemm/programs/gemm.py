"""Matrix product on CUDA: a tile of the result in each block, or for few rows some columns in each warp."""

from tileops_kernels.macros.cuda_dots import few_row_products
from tileops_kernels.macros.cuda_products import product_tiles


def gemm_tiles(dtype, trans_a, trans_b, stream, n, k, vector, rows, columns, depth, stages, threads):
    """D = A B; see `product_tiles`."""
    return product_tiles(dtype, trans_a, trans_b, stream, n, k, vector, rows, columns, depth, stages, threads)


def gemm_dots(dtype, vector, unroll, group, columns, threads):
    """D = A B transposed for few rows; see `few_row_products`."""
    return few_row_products(dtype, False, vector, unroll, group, columns, threads)
