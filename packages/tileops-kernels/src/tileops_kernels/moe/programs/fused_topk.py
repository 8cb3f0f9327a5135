"""Choosing experts on CUDA: a warp for each token, and no barrier."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_rows import WARP
from tileops_kernels.macros.ordering import FIRST, NONE, key_of

REDUCTIONS = """
static __device__ __forceinline__ int tileops_greatest(int value) { return __reduce_max_sync(0xffffffffu, value); }
static __device__ __forceinline__ int tileops_least(int value) { return __reduce_min_sync(0xffffffffu, value); }
"""
"""CUDA text: what a warp's lanes have together, in one instruction of architectures from 80 on."""


def choose_experts(dtype, scoring, renormalize, biased, held, tokens):
    """W[m, :], O[m, :] = the largest scores of row m and where they stand, largest first, equal ones by place.

    Parameters G (rows, experts), C (experts,) if `biased`, W and O (rows, top_k). Scores are a "softmax" or "sigmoid"
    of a row in float32; `biased` adds C to them to choose, not to what is written; `renormalize` divides a row's
    weights by their sum. `held` elements of a row are in registers of each lane, or with 0 the row is read and scored
    again for every choice. A block has `tokens` rows.
    """
    rows, experts, top_k = T.dynamic("rows", "int64"), T.dynamic("experts", "int32"), T.dynamic("top_k", "int32")

    def power(x, highest):
        """What a softmax divides by the sum, or the score itself."""
        if scoring == "softmax":
            return T.exp(x - highest)
        return T.float32(1) / (T.float32(1) + T.exp(-x))

    def score(x, highest, total):
        return power(x, highest) / total if scoring == "softmax" else power(x, highest)

    @T.macro
    def consider(key, e, chosen, best):
        """Take an element that follows the last chosen one, if it goes before the best of those."""
        if (key < chosen[0] or (key == chosen[0] and e > chosen[1])) and key > best[0]:
            best[0] = key
            best[1] = e

    @T.macro
    def fold(G, row, lane, x, highest, total):
        """The greatest of a row and the sum of its powers; x[:] = this lane's powers where they are held."""
        highest[0] = -T.infinity("float32")
        total[0] = T.float32(0)
        if held:
            for j in T.unroll(held):
                x[j] = -T.infinity("float32")
                if j * WARP + lane < experts:
                    x[j] = T.cast(G[row, j * WARP + lane], "float32")
                if scoring == "softmax":
                    highest[0] = T.max(highest[0], x[j])
        elif scoring == "softmax":
            for j in T.serial(T.ceildiv(experts - lane, WARP)):
                highest[0] = T.max(highest[0], T.cast(G[row, j * WARP + lane], "float32"))
        if scoring == "softmax":
            highest[0] = T.warp_reduce_max(highest[0])
        if held:
            for j in T.unroll(held):
                if j * WARP + lane < experts:
                    x[j] = power(x[j], highest[0])
                    total[0] += x[j]
        elif scoring == "softmax":
            for j in T.serial(T.ceildiv(experts - lane, WARP)):
                total[0] += power(T.cast(G[row, j * WARP + lane], "float32"), highest[0])
        if scoring == "softmax":
            total[0] = T.warp_reduce_sum(total[0])

    @T.macro
    def score_held(C, lane, x, total, keys, value):
        """keys[:] = the order of this lane's elements, below all others where there is none."""
        for j in T.unroll(held):
            keys[j] = NONE
            if j * WARP + lane < experts:
                value[0] = x[j] / total[0] if scoring == "softmax" else x[j]
                if biased:
                    value[0] += C[j * WARP + lane]
                keys[j] = key_of(value[0])

    @T.macro
    def score_again(G, C, row, lane, highest, total, value, chosen, best, key):
        for j in T.serial(T.ceildiv(experts - lane, WARP)):
            value[0] = score(T.cast(G[row, j * WARP + lane], "float32"), highest[0], total[0])
            if biased:
                value[0] += C[j * WARP + lane]
            key[0] = key_of(value[0])
            consider(key[0], j * WARP + lane, chosen, best)

    @T.macro
    def choose(G, C, row, lane, keys, highest, total, value, chosen, best, key):
        """chosen[:] = the key and the place of the element that follows it in the order of the row."""
        best[0] = NONE
        best[1] = FIRST
        if held:
            for j in T.unroll(held):
                consider(keys[j], j * WARP + lane, chosen, best)
        else:
            score_again(G, C, row, lane, highest, total, value, chosen, best, key)
        chosen[0] = T.call_extern("int32", "tileops_greatest", best[0])
        best[1] = T.if_then_else(best[0] == chosen[0], best[1], FIRST)
        chosen[1] = T.call_extern("int32", "tileops_least", best[1])

    @T.macro
    def body(G, C, W, O):
        with T.Kernel(T.ceildiv(rows, tokens), threads=tokens * WARP, prelude=REDUCTIONS) as block:
            thread = T.get_thread_binding(0)
            lane = thread % WARP
            row = T.cast(block, "int64") * tokens + thread // WARP
            x = T.alloc_local((max(held, 1),), "float32")
            keys = T.alloc_local((max(held, 1),), "int32")
            key = T.alloc_local((1,), "int32")
            highest = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            value = T.alloc_local((1,), "float32")
            weight = T.alloc_local((1,), "float32")
            weights = T.alloc_local((1,), "float32")
            chosen = T.alloc_local((2,), "int32")
            best = T.alloc_local((2,), "int32")
            mine = T.alloc_local((1,), "int32")
            if row < rows:
                fold(G, row, lane, x, highest, total)
                if held:
                    score_held(C, lane, x, total, keys, value)
                chosen[0] = FIRST
                chosen[1] = -1
                weights[0] = T.float32(0)
                for part in T.serial(T.ceildiv(top_k, WARP)):
                    mine[0] = 0
                    for r in T.serial(T.min(top_k - part * WARP, WARP)):
                        choose(G, C, row, lane, keys, highest, total, value, chosen, best, key)
                        if lane == r:
                            mine[0] = chosen[1]
                    if part * WARP + lane < top_k:
                        weight[0] = score(T.cast(G[row, mine[0]], "float32"), highest[0], total[0])
                        weights[0] += weight[0]
                        O[row, part * WARP + lane] = mine[0]
                        W[row, part * WARP + lane] = weight[0]
                if renormalize:
                    weights[0] = T.warp_reduce_sum(weights[0])
                    for part in T.serial(T.ceildiv(top_k, WARP)):
                        if part * WARP + lane < top_k:
                            if part * WARP + WARP < top_k:
                                weight[0] = W[row, part * WARP + lane]
                            else:
                                weight[0] = score(T.cast(G[row, mine[0]], "float32"), highest[0], total[0])
                            W[row, part * WARP + lane] = weight[0] / weights[0]

    if biased:

        @T.prim_func
        def choose_biased(
            G: T.Tensor[(rows, experts), dtype],
            C: T.Tensor[(experts,), "float32"],
            W: T.Tensor[(rows, top_k), "float32"],
            O: T.Tensor[(rows, top_k), "int32"],
        ):
            body(G, C, W, O)

        return choose_biased

    @T.prim_func
    def choose_plain(
        G: T.Tensor[(rows, experts), dtype],
        W: T.Tensor[(rows, top_k), "float32"],
        O: T.Tensor[(rows, top_k), "int32"],
    ):
        body(G, None, W, O)

    return choose_plain
