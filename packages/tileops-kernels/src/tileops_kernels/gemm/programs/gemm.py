"""Matrix product on CUDA: a tile of the result in each block, or for few rows some columns in each warp."""

from tileops_kernels.macros.cuda_dots import few_row_products
from tileops_kernels.macros.cuda_persistent import product_persistent
from tileops_kernels.macros.cuda_products import add_parts, product_parts, product_tiles


def gemm_tiles(dtype, trans_a, trans_b, stream, n, k, vector, rows, columns, depth, stages, threads):
    """D = A B; see `product_tiles`."""
    return product_tiles(dtype, trans_a, trans_b, stream, n, k, vector, rows, columns, depth, stages, threads)


def gemm_persistent(dtype, trans_a, trans_b, vector, rows, columns, depth, stages, threads, band):
    """D = A B by blocks that stay; see `product_persistent`."""
    return product_persistent(dtype, trans_a, trans_b, vector, rows, columns, depth, stages, threads, band)


def gemm_dots(dtype, vector, unroll, group, columns, threads):
    """D = A B transposed for few rows; see `few_row_products`."""
    return few_row_products(dtype, False, vector, unroll, group, columns, threads)


def gemm_parts(dtype, trans_a, trans_b, stream, vector, rows, columns, depth, stages, threads):
    """Parts of D = A B, between which the terms are divided; see `product_parts`."""
    return product_parts(dtype, trans_a, trans_b, stream, vector, rows, columns, depth, stages, threads)


def gemm_sums(dtype, vector, threads):
    """D = the sum of its parts; see `add_parts`."""
    return add_parts(dtype, vector, threads)
