"""Tables that are computed from positions alone, on a CPU, row by row; rows are shared among threads."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, storage_dtype, store_block


def alibi_rows(dtype):
    """Rows of all heads, one after another; parameters SLOPES (heads,) float32, Y (m, n), start; sizes heads, m, n.

    Row i of a head has position i, and n is the number of positions. `start` is the first row's place.
    """
    m, n, heads = T.dynamic("m", "int64"), T.dynamic("n", "int64"), T.dynamic("heads", "int64")

    @T.prim_func
    def biases(SLOPES: T.Tensor[(heads,), "float32"], Y: T.Tensor[(m, n), storage_dtype(dtype)], start: T.int64):
        with T.Kernel(m) as row:
            y = T.alloc_local((BLOCK,), "float32")
            slope = T.alloc_local((1,), "float32")
            place = T.alloc_local((1,), "int64")
            slope[0] = SLOPES[T.truncdiv(start + row, n)]
            place[0] = T.truncmod(start + row, n)
            for block in T.serial(T.ceildiv(n, BLOCK)):
                first = T.cast(block, "int64") * BLOCK
                width = T.cast(T.min(T.int64(BLOCK), n - first), "int32")
                nearest = T.cast(place[0] - first, "int32")
                for k in T.serial(width):
                    y[k] = slope[0] * T.cast(T.min(nearest - k, k - nearest), "float32")
                store_block(y, Y, row, first, width, dtype)

    return biases, RowSplit("m", {"Y": "n"}, work="n", start="start")


def sinusoidal_rows(dtype):
    """Rows of positions start, start + 1, ..., a sine and a cosine for each of p frequencies.

    Parameters FREQUENCIES (p,) float64, Y (m, 2 * p), start; sizes m, p.
    """
    m, p = T.dynamic("m", "int64"), T.dynamic("p", "int64")
    half = BLOCK // 2

    @T.prim_func
    def waves(FREQUENCIES: T.Tensor[(p,), "float64"], Y: T.Tensor[(m, 2 * p), storage_dtype(dtype)], start: T.int64):
        with T.Kernel(m) as row:
            y = T.alloc_local((BLOCK,), "float32")
            sines = T.alloc_local((half,), "float32")
            cosines = T.alloc_local((half,), "float32")
            angles = T.alloc_local((half,), "float64")
            position = T.alloc_local((1,), "float64")
            position[0] = T.cast(start + row, "float64")
            for block in T.serial(T.ceildiv(p, half)):
                first = T.cast(block, "int64") * half
                width = T.cast(T.min(T.int64(half), p - first), "int32")
                for k in T.serial(width):
                    angles[k] = position[0] * FREQUENCIES[first + k]
                for k in T.serial(width):
                    sines[k] = T.cast(T.sin(angles[k]), "float32")
                for k in T.serial(width):
                    cosines[k] = T.cast(T.cos(angles[k]), "float32")
                for k in T.serial(width):
                    y[2 * k] = sines[k]
                    y[2 * k + 1] = cosines[k]
                store_block(y, Y, row, 2 * first, 2 * width, dtype)

    return waves, RowSplit("m", {"Y": "2 * p"}, work="2 * p", start="start")
