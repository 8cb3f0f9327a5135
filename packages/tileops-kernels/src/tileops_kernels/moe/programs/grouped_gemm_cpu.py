"""One expert's matrix product on a CPU: tiles packed as float32 and multiplied in registers."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cpu_products import product_tiles


def expert_tiles(dtype, out_dtype, activation, split):
    """D = A B transposed, or its gated activation, computed in float32; see `product_tiles`.

    Threads share the "rows" or the "columns" of D.
    """
    return product_tiles(dtype, out_dtype, False, True, split, GATED[activation])


def silu_and_mul(gate, factor):
    """The silu of a gate, times its factor."""
    return gate / (T.float32(1) + T.exp(-gate)) * factor


def gelu_and_mul(gate, factor):
    """The exact gelu of a gate, times its factor; erfc keeps the relative accuracy of the negative tail."""
    tail = T.call_pure_extern("float32", "erfcf", gate * T.float32(-0.7071067811865476))
    return gate * T.float32(0.5) * tail * factor


GATED = {"none": None, "silu_and_mul": silu_and_mul, "gelu_and_mul": gelu_and_mul}
"""What is done with the halves of a product; None for a product without halves."""
