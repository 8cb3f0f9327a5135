"""Blocks of a row on a CPU: reading them into float32 locals and writing them back in the storage dtype.

TileLang's C backend has no 16-bit floats, so these tensors are passed as int16 bits. Helpers in C are given a tensor's
first element and an offset: TileLang 0.1.15 fails to simplify the address of an element far into a long row.
"""

import tilelang.language as T  # noqa: N812

BLOCK = 256
"""Elements of a block: 1 KiB of float32, which stays in the first-level cache beside the row."""

LANES = 32
"""Partial sums kept side by side: four vector registers of eight, enough to hide the latency of an addition."""


def storage_dtype(dtype):
    """The TileLang dtype in which a CPU program takes tensors of `dtype`."""
    return dtype if dtype == "float32" else "int16"


@T.macro
def load_block(source, row, column, target, width, dtype):
    """target[0:width] = source[row, column : column + width] as float32; nothing checks that these elements exist.

    `width`, here and below, may be known only when the program runs.
    """
    T.evaluate(
        T.call_extern(
            "int32",
            f"tileops_load_{dtype}",
            T.address_of(source[0, 0]),
            T.cast(row, "int64") * source.shape[1] + column,
            T.address_of(target[0]),
            width,
        )
    )


@T.macro
def store_block(source, target, row, column, width, dtype):
    """target[row, column : column + width] = source[0:width], rounded to nearest even; NaN stays NaN."""
    T.evaluate(
        T.call_extern(
            "int32",
            f"tileops_store_{dtype}",
            T.address_of(source[0]),
            T.address_of(target[0, 0]),
            T.cast(row, "int64") * target.shape[1] + column,
            width,
        )
    )
