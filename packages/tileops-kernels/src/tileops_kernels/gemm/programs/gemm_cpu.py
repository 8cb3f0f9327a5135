"""Matrix product on a CPU: tiles packed as float32 and multiplied in registers."""

from tileops_kernels.macros.cpu_products import product_tiles


def gemm_tiles(dtype, trans_a, trans_b, split):
    """D = A B; see `product_tiles`. Threads share the "rows" or the "columns" of D."""
    return product_tiles(dtype, dtype, trans_a, trans_b, split)
