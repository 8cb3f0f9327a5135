# mypy: ignore-errors
"""Small programs that the tests of the build modules build."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import exponential, load_block, storage_dtype, store_block


def scale_rows(n, factor):
    """Y = X * factor + shift for rows of `n` float32 values, shared among threads; X, Y, shift; size m."""
    m = T.dynamic("m", "int64")

    @T.prim_func
    def scaled(X: T.Tensor[(m, n), "float32"], Y: T.Tensor[(m, n), "float32"], shift: T.float32):
        with T.Kernel(m) as row:
            for j in T.serial(n):
                Y[row, j] = X[row, j] * T.float32(factor) + shift

    return scaled, RowSplit("m", {"X": n, "Y": n}, work=n)


def number_rows():
    """Y = start, start + 1, ... for rows of n float32 values each, shared among threads; Y, start; sizes m, n."""
    m, n = T.dynamic("m, n", "int64")

    @T.prim_func
    def numbered(Y: T.Tensor[(m, n), "float32"], start: T.int64):
        with T.Kernel(m) as row:
            for j in T.serial(n):
                Y[row, j] = T.cast(start + row, "float32")

    return numbered, RowSplit("m", {"Y": "n"}, work="n", start="start")


def add_constant(n):
    """Y = X + 1 for `n` float32 values on the calling thread; X, Y."""

    @T.prim_func
    def added(X: T.Tensor[(n,), "float32"], Y: T.Tensor[(n,), "float32"]):
        with T.Kernel(1) as _:
            for j in T.serial(n):
                Y[j] = X[j] + T.float32(1)

    return added


def unused_parameter(n):
    """A program that leaves its second parameter out."""

    @T.prim_func
    def idle(X: T.Tensor[(n,), "float32"], Z: T.Tensor[(n,), "float32"], Y: T.Tensor[(n,), "float32"]):
        with T.Kernel(1) as _:
            for j in T.serial(n):
                Y[j] = X[j]

    return idle


def wrong_split(n):
    """A program whose builder returns a number where its RowSplit belongs."""
    return add_constant(n), 3


def untraceable():
    """A builder that fails as TileLang's front end does."""
    raise ValueError("no layout\nfound for this buffer")


def unknown_function(n):
    """Calls a C function that nothing defines, so that the C++ compiler refuses it."""

    @T.prim_func
    def broken(X: T.Tensor[(n,), "float32"], Y: T.Tensor[(n,), "float32"]):
        with T.Kernel(1) as _:
            for j in T.serial(n):
                Y[j] = T.call_pure_extern("float32", "not_a_function", X[j])

    return broken


def cuda_copy(n, threads):
    """Y = X for rows of `n` float16 values on CUDA; X, Y; size m."""
    m = T.dynamic("m", "int64")

    @T.prim_func
    def copied(X: T.Tensor[(m, n), "float16"], Y: T.Tensor[(m, n), "float16"]):
        with T.Kernel(m, threads=threads) as row:
            for j in T.Parallel(n):
                Y[row, j] = X[row, j]

    return copied


def through_blocks(dtype):
    """Parameters X (1, count), F (1, count) float32 and Y (1, count): F holds X widened, and Y is F rounded again."""
    count = T.dynamic("count", "int64")
    storage = storage_dtype(dtype)

    @T.prim_func
    def convert(X: T.Tensor[(1, count), storage], F: T.Tensor[(1, count), "float32"], Y: T.Tensor[(1, count), storage]):
        with T.Kernel(1) as row:
            x = T.alloc_local((64,), "float32")
            width = T.cast(count, "int32")
            load_block(X, row, 0, x, width, dtype)
            store_block(x, F, row, 0, width, "float32")
            load_block(F, row, 0, x, width, "float32")
            store_block(x, Y, row, 0, width, dtype)

    return convert, None


def exponentials():
    """Y[i] = the exponential of X[i]; parameters X and Y (1, count) float32; size count."""
    count = T.dynamic("count", "int64")

    @T.prim_func
    def exponentiate(X: T.Tensor[(1, count), "float32"], Y: T.Tensor[(1, count), "float32"]):
        with T.Kernel(1) as row:
            for i in T.serial(count):
                Y[row, i] = exponential(X[row, i])

    return exponentiate, None
