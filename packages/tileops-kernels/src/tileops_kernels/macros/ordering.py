"""Float32 values as integers in torch's order: NaN before everything, both zeros alike."""

import tilelang.language as T  # noqa: N812

NONE = -(2**31)
"""Below the key of every value."""

FIRST = 2**31 - 1
"""The key of NaN, above that of every number."""


def key_of(value):
    """An int32 that is larger where `value` is, equal where it is equal."""
    bits = T.reinterpret(value, "int32")
    ordered = T.if_then_else(bits < 0, bits ^ T.int32(0x7FFFFFFF), bits)
    return T.if_then_else(T.isnan(value), T.int32(FIRST), T.if_then_else(value == T.float32(0), T.int32(0), ordered))
