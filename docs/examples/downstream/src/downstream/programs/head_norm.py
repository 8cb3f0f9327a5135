"""RMSNorm of heads on a CPU: a head fits one block, which is read once."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import LANES, load_block, storage_dtype, store_block


def head_norm_rows(n, dtype, weighted):
    """Rows of `n` elements; parameters X (m, n), W (1, n) if weighted, Y (m, n), eps; size m."""
    m = T.dynamic("m", "int64")
    storage = storage_dtype(dtype)

    @T.macro
    def normalize(X, W, Y, eps):
        with T.Kernel(m) as row:
            x = T.alloc_local((n,), "float32")
            w = T.alloc_local((n,), "float32")
            sums = T.alloc_local((LANES,), "float32")
            scale = T.alloc_local((1,), "float32")
            load_block(X, row, 0, x, n, dtype)
            for lane in T.serial(LANES):
                sums[lane] = T.float32(0)
            for k in T.serial(n // LANES):
                for lane in T.serial(LANES):
                    sums[lane] += x[k * LANES + lane] * x[k * LANES + lane]
            for lane in T.serial(n % LANES):
                sums[lane] += x[n // LANES * LANES + lane] * x[n // LANES * LANES + lane]
            scale[0] = T.float32(0)
            for lane in T.serial(LANES):
                scale[0] += sums[lane]
            scale[0] = T.rsqrt(scale[0] / n + eps)
            for k in T.serial(n):
                x[k] = x[k] * scale[0]
            if weighted:
                load_block(W, 0, 0, w, n, dtype)
                for k in T.serial(n):
                    x[k] = x[k] * w[k]
            store_block(x, Y, row, 0, n, dtype)

    @T.prim_func
    def weighted_rows(
        X: T.Tensor[(m, n), storage], W: T.Tensor[(1, n), storage], Y: T.Tensor[(m, n), storage], eps: T.float32
    ):
        normalize(X, W, Y, eps)

    @T.prim_func
    def bare_rows(X: T.Tensor[(m, n), storage], Y: T.Tensor[(m, n), storage], eps: T.float32):
        normalize(X, X, Y, eps)

    return (weighted_rows if weighted else bare_rows), RowSplit("m", {"X": n, "Y": n}, work=n)
