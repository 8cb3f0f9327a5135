"""Experts' MLPs of few tokens on a CPU: rows of weights found by index and read once, then weighted sums of results."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, load_block, storage_dtype
from tileops_kernels.macros.cpu_products import store

COLUMNS = 4
"""Rows of weights that are multiplied with a block of a token's row while it is at hand."""


def expert_dots(dtype, out_dtype, gated):
    """D[p] = the row p // each of X times the weights of expert I[p], for each pair p of a token and an expert.

    Parameters X (rows, k), W (lines of all experts, k), I (pairs,), D (pairs, ldd), n, experts, each, lines. An expert
    has `lines` rows of weights, of which the n from the first on are used and, if `gated`, those half of them further:
    D = silu(gate) * factor. An id that is no expert's leaves its row of D as it is. Threads share the columns of D.
    """
    rows, weights, pairs = (T.dynamic(name, "int64") for name in ("rows", "weights", "pairs"))
    k, ldd = T.dynamic("k", "int64"), T.dynamic("ldd", "int64")
    halves = 2 if gated else 1

    @T.macro
    def dot(X, W, row, line, count, x, w, sums, total, slot):
        """total[slot + c] = row `row` of X times row line + c of W, for c below count, which is at most COLUMNS."""
        for i in T.serial(COLUMNS * LANES):
            sums[i] = T.float32(0)
        for block in T.serial((k + BLOCK - 1) // BLOCK):
            width = T.min(k - block * BLOCK, BLOCK)
            for i in T.serial(BLOCK):
                x[i] = T.float32(0)
            load_block(X, row, block * BLOCK, x, width, dtype)
            for c in T.serial(count):
                for i in T.serial(BLOCK):
                    w[i] = T.float32(0)
                load_block(W, line + c, block * BLOCK, w, width, dtype)
                for j in T.serial(BLOCK // LANES):
                    for i in T.serial(LANES):
                        sums[c * LANES + i] += w[j * LANES + i] * x[j * LANES + i]
        for c in T.serial(COLUMNS):
            total[slot + c] = T.float32(0)
            for i in T.serial(LANES):
                total[slot + c] += sums[c * LANES + i]

    @T.prim_func
    def dots(
        X: T.Tensor[(rows, k), storage_dtype(dtype)],
        W: T.Tensor[(weights, k), storage_dtype(dtype)],
        I: T.Tensor[(pairs,), "int32"],
        D: T.Tensor[(pairs, ldd), storage_dtype(out_dtype)],
        n: T.int64,
        experts: T.int32,
        each: T.int64,
        lines: T.int64,
    ):
        with T.Kernel(1):
            x = T.alloc_local((BLOCK,), "float32")
            w = T.alloc_local((BLOCK,), "float32")
            sums = T.alloc_local((COLUMNS * LANES,), "float32")
            total = T.alloc_local((halves * COLUMNS,), "float32")
            first = T.alloc_local((1,), "int32")
            for pair in T.serial(pairs):
                first[0] = 1
                for before in T.serial(pair):
                    if I[before] == I[pair]:
                        first[0] = 0
                if first[0] == 1 and I[pair] >= 0 and I[pair] < experts:
                    for tile in T.serial((n + COLUMNS - 1) // COLUMNS):
                        line = T.cast(I[pair], "int64") * lines + tile * COLUMNS
                        count = T.min(n - tile * COLUMNS, COLUMNS)
                        for other in T.serial(pairs - pair):
                            if I[pair + other] == I[pair]:
                                row = (pair + other) // each
                                dot(X, W, row, line, count, x, w, sums, total, 0)
                                if gated:
                                    dot(X, W, row, line + lines // 2, count, x, w, sums, total, COLUMNS)
                                    for c in T.serial(COLUMNS):
                                        total[c] = total[c] / (T.float32(1) + T.exp(-total[c])) * total[COLUMNS + c]
                                store(total, 0, D, pair + other, tile * COLUMNS, count, out_dtype)

    return dots, RowSplit("n", {"W": "k", "D": 1}, work="k * pairs")


def weighted_sums(dtype):
    """D[m] = scale times the sum of V[p] Y[p] over the pairs p of token m whose id is an expert's, rounded once.

    Parameters Y (pairs, n) float32, V (pairs,) float32, I (pairs,), D (rows, n), m, experts, each (pairs of a token),
    scale. Threads share the tokens.
    """
    rows, pairs, n = (T.dynamic(name, "int64") for name in ("rows", "pairs", "n"))

    @T.prim_func
    def sums(
        Y: T.Tensor[(pairs, n), "float32"],
        V: T.Tensor[(pairs,), "float32"],
        I: T.Tensor[(pairs,), "int32"],
        D: T.Tensor[(rows, n), storage_dtype(dtype)],
        m: T.int64,
        experts: T.int32,
        each: T.int64,
        scale: T.float32,
    ):
        with T.Kernel(1):
            total = T.alloc_local((BLOCK,), "float32")
            for token in T.serial(m):
                for block in T.serial((n + BLOCK - 1) // BLOCK):
                    width = T.min(n - block * BLOCK, BLOCK)
                    for i in T.serial(width):
                        total[i] = T.float32(0)
                    for j in T.serial(each):
                        pair = token * each + j
                        if I[pair] >= 0 and I[pair] < experts:
                            for i in T.serial(width):
                                total[i] += V[pair] * Y[pair, block * BLOCK + i]
                    for i in T.serial(width):
                        total[i] = total[i] * scale
                    store(total, 0, D, token, block * BLOCK, width, dtype)

    return sums, RowSplit("m", {"Y": "each * n", "V": "each", "I": "each", "D": "n"}, work="n * (each + 1)")
