"""Rows to and from their experts on a CPU: threads share tokens."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, load_block, storage_dtype, store_block


def copy_rows(dtype):
    """Y[V[t, k]] = X[t] for each token t and each k; parameters X (tokens, h), V (tokens, top_k), Y (rows, h).

    A place of V that is no row of Y is left out. Sizes h, rows, tokens, top_k.
    """
    storage = storage_dtype(dtype)
    tokens, h, rows, top_k = (T.dynamic(name, "int64") for name in ("tokens", "h", "rows", "top_k"))

    @T.prim_func
    def copy(X: T.Tensor[(tokens, h), storage], V: T.Tensor[(tokens, top_k), "int32"], Y: T.Tensor[(rows, h), storage]):
        with T.Kernel(1):
            for token in T.serial(tokens):
                for k in T.serial(top_k):
                    if V[token, k] >= 0 and T.cast(V[token, k], "int64") < rows:
                        for c in T.serial(h):
                            Y[V[token, k], c] = X[token, c]

    return copy, RowSplit("tokens", {"X": "h", "V": "top_k"}, work="h * (top_k + 1)")


def sum_rows(dtype, out_dtype, weighted):
    """Y[t] = scale times the sum of X[V[t, k]] over k, each times W[t, k] if `weighted`; summed in float32.

    Parameters X (rows, h), W (tokens, top_k) if `weighted`, V (tokens, top_k), Y (tokens, h), scale. Sums are in the
    order of k; a place of V that is no row of X contributes nothing. Sizes h, rows, tokens, top_k.
    """
    storage, out_storage = storage_dtype(dtype), storage_dtype(out_dtype)
    tokens, h, rows, top_k = (T.dynamic(name, "int64") for name in ("tokens", "h", "rows", "top_k"))

    @T.macro
    def sum_block(X, W, V, Y, scale, token, column, x, total, width):
        for c in T.serial(width):
            total[c] = T.float32(0)
        for k in T.serial(top_k):
            if V[token, k] >= 0 and T.cast(V[token, k], "int64") < rows:
                load_block(X, V[token, k], column, x, width, dtype)
                for c in T.serial(width):
                    if weighted:
                        total[c] += W[token, k] * x[c]
                    else:
                        total[c] += x[c]
        for c in T.serial(width):
            total[c] = total[c] * scale
        store_block(total, Y, token, column, width, out_dtype)

    @T.macro
    def body(X, W, V, Y, scale):
        with T.Kernel(1):
            x = T.alloc_local((BLOCK,), "float32")
            total = T.alloc_local((BLOCK,), "float32")
            for token in T.serial(tokens):
                for b in T.serial(h // BLOCK):
                    sum_block(X, W, V, Y, scale, token, b * BLOCK, x, total, BLOCK)
                sum_block(X, W, V, Y, scale, token, h // BLOCK * BLOCK, x, total, h % BLOCK)

    split = {"V": "top_k", "Y": "h"}
    if weighted:

        @T.prim_func
        def weighted_sum(
            X: T.Tensor[(rows, h), storage],
            W: T.Tensor[(tokens, top_k), "float32"],
            V: T.Tensor[(tokens, top_k), "int32"],
            Y: T.Tensor[(tokens, h), out_storage],
            scale: T.float32,
        ):
            body(X, W, V, Y, scale)

        return weighted_sum, RowSplit("tokens", {"W": "top_k", **split}, work="h * (top_k + 1)")

    @T.prim_func
    def plain_sum(
        X: T.Tensor[(rows, h), storage],
        V: T.Tensor[(tokens, top_k), "int32"],
        Y: T.Tensor[(tokens, h), out_storage],
        scale: T.float32,
    ):
        body(X, None, V, Y, scale)

    return plain_sum, RowSplit("tokens", split, work="h * (top_k + 1)")
