"""Experts' MLPs of few tokens on CUDA: rows of weights found by index and read once, then weighted sums of results."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_dots import BLOCKS, dot_rows, write_dots
from tileops_kernels.macros.cuda_products import column_grid, column_of
from tileops_kernels.macros.cuda_rows import READ_ONCE, WARP

AHEAD = 4
"""Results that a thread of the weighted sum reads at a time."""


@T.macro
def seek(I, count, identity, place, hits, lane):
    """place[0] = where I, of `count` entries, next is `identity` from place[0] on, or count; a warp looks together."""
    hits[0] = T.uint32(0)
    while place[0] < count and hits[0] == T.uint32(0):
        hits[0] = T.ballot_sync(
            T.if_then_else(place[0] + lane < count, I[place[0] + lane] == identity, False), T.uint32(0xFFFFFFFF)
        )
        if hits[0] == T.uint32(0):
            place[0] += WARP
    nearest = T.__ffs(hits[0]) - 1  # noqa: SLF001 - CUDA's name
    place[0] = T.if_then_else(hits[0] == T.uint32(0), count, place[0] + nearest)


def expert_dots(dtype, out_dtype, gated, vector, unroll, group, columns, threads):
    """D[p] = the row p // each of X times the weights of expert I[p], for each pair p of a token and an expert.

    Parameters X (rows, k), W (experts' weights one below the other, k), I (pairs,), D (pairs, n), experts, each. An
    expert's weights have n rows, or if `gated` 2 n, gates above: D = silu(gate) * factor. An id that is no expert's
    leaves its row of D as it is.

    The first pair of an expert answers for all of them, `group` at a time, so that its weights are read once for as
    many. A warp makes `columns` columns, and the block at (p, tile) of the grid those of its warps.
    """
    rows, pairs, weights = T.dynamic("rows", "int64"), T.dynamic("pairs", "int32"), T.dynamic("weights", "int64")
    n, k = T.dynamic("n", "int64"), T.dynamic("k", "int64")
    halves = 2 if gated else 1
    warps = threads // WARP

    @T.prim_func
    def dots(
        X: T.Tensor[(rows, k), dtype],
        W: T.Tensor[(weights, k), dtype],
        I: T.Tensor[(pairs,), "int32"],
        D: T.Tensor[(pairs, n), out_dtype],
        experts: T.int32,
        each: T.int32,
    ):
        with T.Kernel(pairs, *column_grid(n, warps * columns), threads=threads, prelude=READ_ONCE) as (pair, near, far):
            T.annotate_min_blocks_per_sm(BLOCKS)
            T.assume(k % vector == 0)
            place = T.alloc_local((1,), "int32")
            hits = T.alloc_local((1,), "uint32")
            found = T.alloc_local((1,), "int32")
            pair_of = T.alloc_local((group,), "int32")
            row = T.alloc_local((group,), "int64")
            line = T.alloc_local((halves * columns,), "int64")
            sums = T.alloc_local((halves * columns * group,), "float32")
            w = T.alloc_local((unroll * halves * columns, vector), dtype)
            x = T.alloc_local((vector,), dtype)
            thread = T.get_thread_binding(0)
            lane = thread % WARP
            expert = I[pair]
            column = column_of(near, far, warps * columns) + thread // WARP * columns
            if expert >= 0 and expert < experts and column < n:
                place[0] = 0
                seek(I, pairs, expert, place, hits, lane)
                if place[0] == pair:
                    for c in T.unroll(halves * columns):
                        line[c] = (expert * halves + c // columns) * n + T.min(column + c % columns, n - 1)
                    while place[0] < pairs:
                        found[0] = 0
                        for r in T.unroll(group):
                            if place[0] < pairs:
                                found[0] += 1
                                pair_of[r] = place[0]
                                row[r] = T.cast(T.truncdiv(place[0], each), "int64")
                                place[0] += 1
                                seek(I, pairs, expert, place, hits, lane)
                            elif r > 0:
                                row[r] = row[0]
                        dot_rows(
                            X, W, row, found[0], line, sums, w, x, halves * columns, group, k, lane, unroll, vector
                        )
                        for r in T.unroll(group):
                            if r < found[0] and lane == r:
                                write_dots(sums, D, pair_of[r], r, column, columns, group, n, gated, out_dtype)

    return dots


def weighted_sums(dtype, vector, threads):
    """D[m] = scale times the sum of V[p] Y[p] over the pairs p of token m whose id is an expert's, rounded once.

    Parameters Y (pairs, n) float32, V (pairs,) float32, I (pairs,), D (rows, n), experts, each (pairs of a token),
    scale. A thread makes `vector` columns, and n is a multiple of them.
    """
    rows, pairs, n = T.dynamic("rows", "int64"), T.dynamic("pairs", "int64"), T.dynamic("n", "int64")

    @T.prim_func
    def sums(
        Y: T.Tensor[(pairs, n), "float32"],
        V: T.Tensor[(pairs,), "float32"],
        I: T.Tensor[(pairs,), "int32"],
        D: T.Tensor[(rows, n), dtype],
        experts: T.int32,
        each: T.int32,
        scale: T.float32,
    ):
        with T.Kernel(rows, *column_grid(n, vector * threads), threads=threads) as (token, near, far):
            T.assume(n % vector == 0)
            total = T.alloc_local((vector,), "float32")
            y = T.alloc_local((AHEAD, vector), "float32")
            expert = T.alloc_local((AHEAD,), "int32")
            column = column_of(near, far, vector * threads) + T.get_thread_binding(0) * vector
            if column < n:
                for v in T.unroll(vector):
                    total[v] = T.float32(0)
                for k in T.serial(T.ceildiv(each, AHEAD)):
                    for j in T.unroll(AHEAD):
                        expert[j] = -1
                        if k * AHEAD + j < each:
                            expert[j] = I[T.cast(token, "int64") * each + k * AHEAD + j]
                        if expert[j] >= 0 and expert[j] < experts:
                            for v in T.vectorized(vector):
                                y[j, v] = Y[T.cast(token, "int64") * each + k * AHEAD + j, column + v]
                    for j in T.unroll(AHEAD):
                        if expert[j] >= 0 and expert[j] < experts:
                            for v in T.unroll(vector):
                                total[v] += V[T.cast(token, "int64") * each + k * AHEAD + j] * y[j, v]
                for v in T.vectorized(vector):
                    D[token, column + v] = T.cast(total[v] * scale, dtype)

    return sums
