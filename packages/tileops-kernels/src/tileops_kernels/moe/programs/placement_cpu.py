"""Placing pairs of token and expert on a CPU: one pass counts, one gives rows."""

import tilelang.language as T  # noqa: N812


def place_pairs(form, alignment):
    """Give each pair a row, as `place_pairs` on CUDA does; parameters I (n,), C (experts,), outputs by `form`.

    C is overwritten. Form "blocks": S (rows,), X (blocks,), N (1,); sizes blocks, experts, n, rows. Form "ends":
    M (experts,), V (n,); sizes experts, n. Form "per_row": M (rows,), V (n,); sizes experts, n, rows.
    """
    n, experts, rows, blocks = (T.dynamic(name, "int64") for name in ("n", "experts", "rows", "blocks"))

    @T.macro
    def fill(A, first, count, value):
        for r in T.serial(count):
            A[first + r] = value

    @T.macro
    def body(I, C, A, B, N):
        with T.Kernel(1):
            start = T.alloc_local((1,), "int64")
            finish = T.alloc_local((1,), "int64")
            stop = T.alloc_local((1,), "int64")
            start[0] = 0
            for e in T.serial(experts):
                C[e] = 0
            for i in T.serial(n):
                if I[i] >= 0 and T.cast(I[i], "int64") < experts:
                    C[I[i]] += 1
            for e in T.serial(experts):
                finish[0] = start[0] + T.cast(C[e], "int64")
                stop[0] = (finish[0] + alignment - 1) // alignment * alignment
                C[e] = T.cast(start[0], "int32")
                if form == "ends":
                    A[e] = T.cast(finish[0], "int32")
                elif form == "per_row":
                    fill(A, start[0], stop[0] - start[0], T.cast(e, "int32"))
                else:
                    fill(A, finish[0], stop[0] - finish[0], T.cast(n, "int32"))
                    fill(B, start[0] // alignment, (stop[0] - start[0]) // alignment, T.cast(e, "int32"))
                start[0] = stop[0]
            if form == "per_row":
                fill(A, start[0], rows - start[0], T.cast(experts, "int32"))
            elif form == "blocks":
                fill(A, start[0], rows - start[0], T.cast(n, "int32"))
                fill(B, start[0] // alignment, blocks - start[0] // alignment, -1)
                N[0] = T.cast(start[0], "int32")
            for i in T.serial(n):
                if I[i] >= 0 and T.cast(I[i], "int64") < experts:
                    if form == "blocks":
                        A[C[I[i]]] = T.cast(i, "int32")
                    else:
                        B[i] = C[I[i]]
                    C[I[i]] += 1
                elif form != "blocks":
                    B[i] = -1

    if form == "blocks":

        @T.prim_func
        def aligned_blocks(
            I: T.Tensor[(n,), "int32"],
            C: T.Tensor[(experts,), "int32"],
            S: T.Tensor[(rows,), "int32"],
            X: T.Tensor[(blocks,), "int32"],
            N: T.Tensor[(1,), "int32"],
        ):
            body(I, C, S, X, N)

        return aligned_blocks

    @T.prim_func
    def expert_rows(
        I: T.Tensor[(n,), "int32"],
        C: T.Tensor[(experts,), "int32"],
        M: T.Tensor[(experts,) if form == "ends" else (rows,), "int32"],
        V: T.Tensor[(n,), "int32"],
    ):
        body(I, C, M, V, None)

    return expert_rows
