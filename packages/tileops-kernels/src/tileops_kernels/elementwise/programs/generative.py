"""Tables that are computed from positions alone, on CUDA: a block takes a row, a thread some vectors of it.

Rows have a run-time length of `q` vectors; the offset of a vector is a multiple of its own length, so that it is
written in one access.
"""

import tilelang.language as T  # noqa: N812


def alibi_rows(dtype, vector, threads):
    """Rows of all heads, one after another; parameters SLOPES (heads,) float32, Y (m, q, vector); sizes m, q.

    Row i of a head has position i, and m is heads times the row's length.
    """
    m, q, heads = T.dynamic("m", "int64"), T.dynamic("q", "int64"), T.dynamic("heads", "int64")

    @T.prim_func
    def biases(SLOPES: T.Tensor[(heads,), "float32"], Y: T.Tensor[(m, q, vector), dtype]):
        with T.Kernel(m, threads=threads) as block:
            thread = T.get_thread_binding(0)
            row = T.cast(block, "int64")
            head = T.truncdiv(row, q * vector)
            i = row - head * (q * vector)
            slope = T.alloc_local((1,), "float32")
            y = T.alloc_local((vector,), dtype)
            slope[0] = SLOPES[head]
            for step in T.serial(T.ceildiv(q, threads)):
                c = T.cast(step, "int64") * threads + thread
                if c < q:
                    for v in T.unroll(vector):
                        nearness = T.min(i - (c * vector + v), c * vector + v - i)
                        y[v] = T.cast(slope[0] * T.cast(nearness, "float32"), dtype)
                    for v in T.vectorized(vector):
                        Y[row, c, v] = y[v]

    return biases


def sinusoidal_rows(dtype, vector, threads):
    """Rows of positions 0, 1, ...; parameters FREQUENCIES (q, vector // 2) float64, Y (m, q, vector); sizes m, q.

    `vector` is even: pairs of a sine and a cosine.
    """
    m, q = T.dynamic("m", "int64"), T.dynamic("q", "int64")

    @T.prim_func
    def waves(FREQUENCIES: T.Tensor[(q, vector // 2), "float64"], Y: T.Tensor[(m, q, vector), dtype]):
        with T.Kernel(m, threads=threads) as block:
            thread = T.get_thread_binding(0)
            row = T.cast(block, "int64")
            y = T.alloc_local((vector,), dtype)
            angle = T.alloc_local((1,), "float64")
            for step in T.serial(T.ceildiv(q, threads)):
                c = T.cast(step, "int64") * threads + thread
                if c < q:
                    for p in T.unroll(vector // 2):
                        angle[0] = T.cast(row, "float64") * FREQUENCIES[c, p]
                        y[2 * p] = T.cast(T.cast(T.sin(angle[0]), "float32"), dtype)
                        y[2 * p + 1] = T.cast(T.cast(T.cos(angle[0]), "float32"), dtype)
                    for v in T.vectorized(vector):
                        Y[row, c, v] = y[v]

    return waves
