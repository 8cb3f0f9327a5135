"""Choosing experts on a CPU: threads share tokens."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, load_block, storage_dtype
from tileops_kernels.macros.ordering import NONE, key_of


def choose_experts(dtype, scoring, renormalize, biased):
    """W[m, :], O[m, :] = the largest scores of row m and where they stand, as `choose_experts` on CUDA.

    Parameters G (rows, experts), C (experts,) if `biased`, S (rows, experts) and Q (rows, experts), which are
    overwritten, W and O (rows, top_k). Sizes experts, rows, top_k.
    """
    storage = storage_dtype(dtype)
    rows, experts, top_k = (T.dynamic(name, "int64") for name in ("rows", "experts", "top_k"))

    @T.macro
    def read_block(G, S, row, first, block, folded, width):
        """S's part of a row = G's as float32; folded[0] takes in the greatest."""
        load_block(G, row, first, block, width, dtype)
        for c in T.serial(width):
            S[row, first + c] = block[c]
            folded[0] = T.max(block[c], folded[0])

    @T.macro
    def score_block(S, row, first, block, folded, width):
        """S's part of a row = its powers, or with a sigmoid its scores; folded[1] takes in their sum, added up apart.

        Whole blocks are computed: a rest would be by other code, which rounds equal elements differently.
        """
        for c in T.serial(width):
            block[c] = S[row, first + c]
        for c in T.serial(BLOCK):
            if scoring == "softmax":
                block[c] = T.exp(block[c] - folded[0])
            else:
                block[c] = T.float32(1) / (T.float32(1) + T.exp(-block[c]))
        folded[2] = T.float32(0)
        for c in T.serial(width):
            S[row, first + c] = block[c]
            folded[2] += block[c]
        folded[1] += folded[2]

    @T.macro
    def score_row(G, S, row, block, folded):
        folded[0] = -T.infinity("float32")
        folded[1] = T.float32(0)
        for b in T.serial(experts // BLOCK):
            read_block(G, S, row, b * BLOCK, block, folded, BLOCK)
        read_block(G, S, row, experts // BLOCK * BLOCK, block, folded, experts % BLOCK)
        for b in T.serial(experts // BLOCK):
            score_block(S, row, b * BLOCK, block, folded, BLOCK)
        score_block(S, row, experts // BLOCK * BLOCK, block, folded, experts % BLOCK)
        if scoring == "softmax":
            for e in T.serial(experts):
                S[row, e] = S[row, e] / folded[1]

    @T.macro
    def choose(S, Q, W, O, row, best, total):
        total[0] = T.float32(0)
        for k in T.serial(top_k):
            best[0] = NONE
            best[1] = 0
            for e in T.serial(experts):
                if Q[row, e] > best[0]:
                    best[0] = Q[row, e]
                    best[1] = T.cast(e, "int32")
            O[row, k] = best[1]
            W[row, k] = S[row, best[1]]
            total[0] += S[row, best[1]]
            Q[row, best[1]] = NONE
        if renormalize:
            for k in T.serial(top_k):
                W[row, k] = W[row, k] / total[0]

    @T.macro
    def body(G, C, S, Q, W, O):
        with T.Kernel(1):
            block = T.alloc_local((BLOCK,), "float32")
            folded = T.alloc_local((3,), "float32")
            best = T.alloc_local((2,), "int32")
            value = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            for c in T.serial(BLOCK):
                block[c] = T.float32(0)
            for row in T.serial(rows):
                score_row(G, S, row, block, folded)
                for e in T.serial(experts):
                    value[0] = S[row, e]
                    if biased:
                        value[0] += C[e]
                    Q[row, e] = key_of(value[0])
                choose(S, Q, W, O, row, best, total)

    split = RowSplit(
        "rows",
        {"G": "experts", "S": "experts", "Q": "experts", "W": "top_k", "O": "top_k"},
        work="experts * (top_k + 4)",
    )
    if biased:

        @T.prim_func
        def choose_biased(
            G: T.Tensor[(rows, experts), storage],
            C: T.Tensor[(experts,), "float32"],
            S: T.Tensor[(rows, experts), "float32"],
            Q: T.Tensor[(rows, experts), "int32"],
            W: T.Tensor[(rows, top_k), "float32"],
            O: T.Tensor[(rows, top_k), "int32"],
        ):
            body(G, C, S, Q, W, O)

        return choose_biased, split

    @T.prim_func
    def choose_plain(
        G: T.Tensor[(rows, experts), storage],
        S: T.Tensor[(rows, experts), "float32"],
        Q: T.Tensor[(rows, experts), "int32"],
        W: T.Tensor[(rows, top_k), "float32"],
        O: T.Tensor[(rows, top_k), "int32"],
    ):
        body(G, None, S, Q, W, O)

    return choose_plain, split
