"""Blocks of a row on a CPU: reading them into float32 locals and writing them back in the storage dtype.

TileLang's C backend has no 16-bit floats, so these tensors are passed as int16 bits. Helpers in C are given a tensor's
first element and an offset: TileLang 0.1.15 fails to simplify the address of an element far into a long row.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import accumulator, counted, element_of, magnitude, stored

BLOCK = 256
"""Elements of a block: 1 KiB of float32, which stays in the first-level cache beside the row."""

COLUMNS = 1024
"""Columns that are combined side by side: with 256, rows of 4096 float32 were fetched four times as slowly."""

LANES = 32
"""Partial sums kept side by side: four vector registers of eight, enough to hide the latency of an addition."""

PIECE = 32
"""Elements that are written at a time where each needs a few steps: so few stay in registers between load and store."""

SHORT = ("bool", "uint8", "int8", "int16")
"""Integers of which the sum of a block fits an int32, which has twice as many lanes as an int64."""


def storage_dtype(dtype):
    """The TileLang dtype in which a CPU program takes tensors of `dtype`: 16-bit floats and complex ones as bits."""
    return {"float16": "int16", "bfloat16": "int16"}.get(dtype, stored(dtype))


def lowest():
    """The lowest finite float32 from its bits: TileLang 0.1.15 writes a constant to C with seven digits, too few."""
    return T.reinterpret(T.uint32(0xFF7FFFFF), "float32")


def highest():
    """The highest finite float32, as lowest()."""
    return T.reinterpret(T.uint32(0x7F7FFFFF), "float32")


def exponential(difference):
    """The exponential of a float32 that is not positive, in float32."""
    return T.call_pure_extern("float32", "tileops_exp_below", difference)


def place(row, column):
    """The indices of an element; `row` is one index, or a tuple of all before the last."""
    return (*leading(row), column)


def leading(row):
    """The indices before the last of an element, as a tuple."""
    return row if isinstance(row, tuple) else (row,)


def start_of(tensor):
    """The address of a tensor's first element."""
    return T.address_of(tensor[(0,) * len(tensor.shape)])


def offset_of(tensor, row, column):
    """The elements that stand before an element of a tensor, in 64 bits."""
    first, *others = place(row, column)
    offset = T.cast(first, "int64")
    for index, extent in zip(others, tensor.shape[1:], strict=True):
        offset = offset * extent + index
    return offset


@T.macro
def load_block(source, row, column, target, width, dtype):
    """target[0:width] = source[row, column : column + width] as float32; nothing checks that these elements exist.

    `width`, here and below, may be known only when the program runs.
    """
    T.evaluate(
        T.call_extern(
            "int32",
            f"tileops_load_{dtype}",
            start_of(source),
            offset_of(source, row, column),
            T.address_of(target[0]),
            T.cast(width, "int32"),
        )
    )


@T.macro
def store_block(source, target, row, column, width, dtype):
    """target[row, column : column + width] = source[0:width], rounded to nearest even; NaN stays NaN."""
    if "float" in dtype:
        T.evaluate(
            T.call_extern(
                "int32",
                f"tileops_store_{dtype}",
                T.address_of(source[0]),
                start_of(target),
                offset_of(target, row, column),
                T.cast(width, "int32"),
            )
        )
    else:
        for i in T.serial(width):
            target[place(row, column + i)] = source[i]


@T.macro
def load_elements(source, row, column, target, floats, bits, width, dtype, through, of="value"):
    """target[0:width] = source[row, column : column + width], rounded to `through` and widened to its accumulator.

    `target` may be int32 where the accumulator is int64 and elements are shorter or counted. `of` says what an element
    contributes in place of itself. `floats` (as long as target, float32) and `bits` (one row as long, int16) serve
    conversions.
    """
    if of == "nonzero" and "float" in dtype:
        load_block(source, row, column, floats, width, dtype)
        for i in T.serial(width):
            target[i] = counted(floats[i], dtype, target.dtype)
    elif of == "nonzero":
        for i in T.serial(width):
            target[i] = counted(element_of(source, leading(row), column + i, dtype), dtype, target.dtype)
    elif accumulator(through) == "int64" and "float" in dtype:
        load_block(source, row, column, floats, width, dtype)
        for i in T.serial(width):
            target[i] = T.cast(floats[i], "int64")
    elif "float" in dtype:
        load_block(source, row, column, target, width, dtype)
    else:
        for i in T.serial(width):
            target[i] = T.cast(source[place(row, column + i)], target.dtype)
    if through in ("float16", "bfloat16") and through != dtype and of != "nonzero":
        store_block(target, bits, 0, 0, width, through)
        load_block(bits, 0, 0, target, width, through)
    if of in ("absolute", "square"):
        for i in T.serial(width):
            target[i] = magnitude(of, target[i])


@T.macro
def store_elements(source, target, row, column, width, dtype):
    """target[row, column : column + width] = source[0:width], an accumulator rounded to `dtype`."""
    if "int" in dtype:
        for i in T.serial(width):
            target[place(row, column + i)] = T.cast(source[i], dtype)
    else:
        store_block(source, target, row, column, width, dtype)
