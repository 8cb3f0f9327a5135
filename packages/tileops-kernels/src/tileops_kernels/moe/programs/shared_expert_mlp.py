"""The two products of the shared expert's MLP on CUDA, the first with its activation."""

from tileops_kernels.macros.cuda_dots import few_row_products
from tileops_kernels.macros.cuda_products import product_tiles


def mlp_tiles(dtype, activation, stream, n, k, vector, rows, columns, depth, stages, threads):
    """D = A B transposed, or its gated activation; see `product_tiles`."""
    return product_tiles(
        dtype, False, True, stream, n, k, vector, rows, columns, depth, stages, threads, activation=activation
    )


def mlp_dots(dtype, gated, vector, unroll, group, columns, threads):
    """D = A B transposed for few rows, or its gated activation; see `few_row_products`."""
    return few_row_products(dtype, gated, vector, unroll, group, columns, threads)
