"""Rows to and from their experts on CUDA: a thread has one vector of a token's row."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_products import column_grid, column_of


def copy_rows(dtype, vector, threads):
    """Y[V[t * top_k + k]] = X[t] for each token t and k below top_k; parameters X, V (n,), Y, top_k.

    X is (tokens, vectors, vector) and Y (rows, vectors, vector). A place of V that is no row of Y is left out.
    """
    tokens, rows, n = (T.dynamic(name, "int64") for name in ("tokens", "rows", "n"))
    vectors = T.dynamic("vectors", "int64")

    @T.prim_func
    def copy(
        X: T.Tensor[(tokens, vectors, vector), dtype],
        V: T.Tensor[(n,), "int32"],
        Y: T.Tensor[(rows, vectors, vector), dtype],
        top_k: T.int32,
    ):
        with T.Kernel(tokens, *column_grid(vectors, threads), threads=threads) as (token, near, far):
            j = column_of(near, far, threads) + T.get_thread_binding(0)
            x = T.alloc_local((vector,), dtype)
            row = T.alloc_local((1,), "int32")
            if j < vectors:
                for v in T.vectorized(vector):
                    x[v] = X[token, j, v]
                for k in T.serial(top_k):
                    row[0] = V[T.cast(token, "int64") * top_k + k]
                    if row[0] >= 0 and row[0] < rows:
                        for v in T.vectorized(vector):
                            Y[row[0], j, v] = x[v]

    return copy


def sum_rows(dtype, out_dtype, weighted, vector, threads, ahead):
    """Y[t] = scale times the sum of X[V[t, k]] over k, each times W[t, k] if `weighted`; summed in float32.

    Parameters X (rows, vectors, vector), W (tokens, top_k) if `weighted`, V (tokens, top_k), Y (tokens, vectors,
    vector), scale. Sums are in the order of k; a place of V that is no row of X contributes nothing. `ahead` rows are
    read before the first of them is added.
    """
    tokens, rows, vectors = (T.dynamic(name, "int64") for name in ("tokens", "rows", "vectors"))
    top_k = T.dynamic("top_k", "int32")

    @T.macro
    def body(X, W, V, Y, scale):
        with T.Kernel(tokens, *column_grid(vectors, threads), threads=threads) as (token, near, far):
            j = column_of(near, far, threads) + T.get_thread_binding(0)
            x = T.alloc_local((ahead, vector), dtype)
            y = T.alloc_local((vector,), out_dtype)
            total = T.alloc_local((vector,), "float32")
            row = T.alloc_local((ahead,), "int32")
            factor = T.alloc_local((ahead,), "float32")
            if j < vectors:
                for v in T.unroll(vector):
                    total[v] = T.float32(0)
                for c in T.serial(T.ceildiv(top_k, ahead)):
                    for a in T.unroll(ahead):
                        row[a] = -1
                        if c * ahead + a < top_k:
                            row[a] = V[token, c * ahead + a]
                            if weighted:
                                factor[a] = W[token, c * ahead + a]
                    for a in T.unroll(ahead):
                        if row[a] >= 0 and row[a] < rows:
                            for v in T.vectorized(vector):
                                x[a, v] = X[row[a], j, v]
                    for a in T.unroll(ahead):
                        if row[a] >= 0 and row[a] < rows:
                            for v in T.unroll(vector):
                                if weighted:
                                    total[v] += factor[a] * T.cast(x[a, v], "float32")
                                else:
                                    total[v] += T.cast(x[a, v], "float32")
                for v in T.unroll(vector):
                    y[v] = T.cast(total[v] * scale, out_dtype)
                for v in T.vectorized(vector):
                    Y[token, j, v] = y[v]

    if weighted:

        @T.prim_func
        def weighted_sum(
            X: T.Tensor[(rows, vectors, vector), dtype],
            W: T.Tensor[(tokens, top_k), "float32"],
            V: T.Tensor[(tokens, top_k), "int32"],
            Y: T.Tensor[(tokens, vectors, vector), out_dtype],
            scale: T.float32,
        ):
            body(X, W, V, Y, scale)

        return weighted_sum

    @T.prim_func
    def plain_sum(
        X: T.Tensor[(rows, vectors, vector), dtype],
        V: T.Tensor[(tokens, top_k), "int32"],
        Y: T.Tensor[(tokens, vectors, vector), out_dtype],
        scale: T.float32,
    ):
        body(X, None, V, Y, scale)

    return plain_sum
