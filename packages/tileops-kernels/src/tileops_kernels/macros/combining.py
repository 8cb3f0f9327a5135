"""Combining steps: what a reduction does with two values, and the value that changes nothing."""

import tilelang.language as T  # noqa: N812

LOWEST = -3.4028234663852886e38
"""The lowest finite float32.

A running maximum starts here: minus infinity would make `exp(x - maximum)` NaN before a finite element is met, and a
row of nothing but minus infinity still gives NaN, as zero divided by zero.
"""


def identity(operation, dtype):
    """The value of `dtype` that `operation` leaves every value unchanged by."""
    values = {"sum": 0, "prod": 1, "max": LOWEST}
    return T.cast(values[operation], dtype) if dtype == "int64" else T.float32(values[operation])


def combine(operation, first, second):
    """`operation` on two values; a maximum may drop NaN."""
    if operation == "sum":
        return first + second
    return first * second if operation == "prod" else T.max(first, second)


def accumulator(through):
    """The dtype in which elements of `through` are combined."""
    return "int64" if through == "int64" else "float32"


def widened(value, source, through):
    """`value` of dtype `source` as an accumulator, after one rounding to `through` where that is narrower."""
    if through == "int64":
        return T.cast(T.cast(value, "float32") if "float" in source else value, "int64")
    wide = T.cast(value, "float32")
    if through in ("float32", source):
        return wide
    return T.cast(T.cast(wide, through), "float32")
