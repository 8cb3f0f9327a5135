"""Activations on a CPU, block by block; the elements are shared among threads."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, storage_dtype

INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80}


def relu_elements(dtype, inplace):
    """Elements in a row; parameters X (n,) and, unless `inplace`, Y (n,); size n.

    A 16-bit float is below zero when its sign is set and the rest of its bits lie between those of the smallest number
    and those of infinity.
    """
    n = T.dynamic("n", "int64")
    storage = storage_dtype(dtype)

    @T.macro
    def transform(X, Y, first, count):
        for i in T.serial(count):
            if dtype == "float32":
                Y[first + i] = T.Select(X[first + i] < T.float32(0), T.float32(0), X[first + i])
            else:
                magnitude = X[first + i] & T.int16(0x7FFF)
                below = (X[first + i] < T.int16(0)) & (magnitude > T.int16(0)) & (magnitude <= T.int16(INFINITY[dtype]))
                Y[first + i] = T.Select(below, T.int16(0), X[first + i])

    @T.prim_func
    def into_another(X: T.Tensor[(n,), storage], Y: T.Tensor[(n,), storage]):
        with T.Kernel(T.ceildiv(n, BLOCK)) as block:
            first = T.cast(block, "int64") * BLOCK
            transform(X, Y, first, T.min(T.int64(BLOCK), n - first))

    @T.prim_func
    def in_place(X: T.Tensor[(n,), storage]):
        with T.Kernel(T.ceildiv(n, BLOCK)) as block:
            first = T.cast(block, "int64") * BLOCK
            transform(X, X, first, T.min(T.int64(BLOCK), n - first))

    if inplace:
        return in_place, RowSplit("n", {"X": 1}, work=1)
    return into_another, RowSplit("n", {"X": 1, "Y": 1}, work=1)
