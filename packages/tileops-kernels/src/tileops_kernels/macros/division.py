"""Quotients on CUDA by a product and a shift, where a launch has one divisor: see `tileops_kernels.division`.

A division takes a thread some hundred cycles, during which nothing that depends on it is read.
"""

import tilelang.language as T  # noqa: N812


def quotient(number, factor, shift):
    """`number` // the divisor whose `factor` and `shift` are given, for what is not negative.

    int32 takes those of `divisor32`, int64 those of `divisor64`; the result is of the same dtype.
    """
    if str(number.dtype) == "int32":
        return T.cast((T.cast(number, "int64") * factor) >> T.cast(shift, "int64"), "int32")
    doubled = T.cast(number, "uint64") << T.uint64(1)
    high = T.call_extern("uint64", "__umul64hi", doubled, T.cast(factor, "uint64"))
    return T.cast(high >> T.cast(shift, "uint64"), "int64")
