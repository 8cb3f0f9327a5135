"""Activations on CUDA: each thread moves whole vectors of neighbouring elements, and the last ones one by one."""

import tilelang.language as T  # noqa: N812


@T.macro
def relu(x, dtype):
    """x[0] where it is not below zero, else zero; NaN and negative zero are not below zero."""
    x[0] = T.if_then_else(x[0] < T.cast(0, dtype), T.cast(0, dtype), x[0])


def relu_elements(dtype, vector, unroll, threads, inplace):
    """Elements in a row; parameters X (n,) and, unless `inplace`, Y (n,); size n.

    Addresses are multiples of `vector` elements; a thread handles `unroll` vectors.
    """
    n = T.dynamic("n", "int64")
    block_elements = vector * unroll * threads

    @T.macro
    def transform(X, Y, block, thread):
        x = T.alloc_local((vector,), dtype)
        one = T.alloc_local((1,), dtype)
        for k in T.unroll(unroll):
            j = T.cast(block, "int64") * block_elements + (k * threads + thread) * vector
            if j + vector <= n:
                for v in T.vectorized(vector):
                    x[v] = X[j + v]
                for v in T.unroll(vector):
                    one[0] = x[v]
                    relu(one, dtype)
                    x[v] = one[0]
                for v in T.vectorized(vector):
                    Y[j + v] = x[v]
            else:
                for v in T.serial(vector):
                    if j + v < n:
                        one[0] = X[j + v]
                        relu(one, dtype)
                        Y[j + v] = one[0]

    @T.prim_func
    def into_another(X: T.Tensor[(n,), dtype], Y: T.Tensor[(n,), dtype]):
        with T.Kernel(T.ceildiv(n, block_elements), threads=threads) as block:
            transform(X, Y, block, T.get_thread_binding(0))

    @T.prim_func
    def in_place(X: T.Tensor[(n,), dtype]):
        with T.Kernel(T.ceildiv(n, block_elements), threads=threads) as block:
            transform(X, X, block, T.get_thread_binding(0))

    return in_place if inplace else into_another
