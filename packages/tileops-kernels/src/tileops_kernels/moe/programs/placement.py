"""Placing pairs of token and expert on CUDA: each expert's pairs in order, in rows of its own.

Pairs are dealt to blocks in chunks, and a chunk to the warps of its block, in order. `count_pairs` counts each chunk's
pairs by expert; `place_pairs` adds up what stands before its own chunk, and takes rows for its pairs from there. So the
result does not depend on which block or thread is first. A chunk that is the only one needs no counts.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_rows import WARP, scan_over_lanes

WARPS = 8
"""Warps of a block; each takes `steps` times WARP pairs of the block's chunk."""

THREADS = WARPS * WARP


@T.macro
def count_ids(I, first, step, steps, n, low, beyond, counts, slot, expert):
    """counts[slot, e - low] += the ids I[first + s * step] that are e, for s below steps and e from low to beyond."""
    for s in T.serial(steps):
        if first + s * step < n:
            expert[0] = I[first + s * step]
            if expert[0] >= low and expert[0] < beyond:
                T.atomic_add(counts[slot, expert[0] - low], 1)


def count_pairs(window):
    """C[c, e] = how many ids of chunk c are e; parameters I (n,), C (chunks, experts), steps.

    `window` experts are counted at a time, so that shared memory holds the counts of any number of them.
    """
    n, experts, chunks = T.dynamic("n", "int64"), T.dynamic("experts", "int32"), T.dynamic("chunks", "int32")

    @T.prim_func
    def count(I: T.Tensor[(n,), "int32"], C: T.Tensor[(chunks, experts), "int32"], steps: T.int32):
        with T.Kernel(chunks, threads=THREADS) as chunk:
            thread = T.get_thread_binding(0)
            counts = T.alloc_shared((1, window), "int32")
            expert = T.alloc_local((1,), "int32")
            first = T.cast(chunk, "int64") * steps * THREADS + thread
            for w in T.serial(T.ceildiv(experts, window)):
                low, beyond = w * window, T.min(w * window + window, experts)
                for k in T.unroll(window // THREADS):
                    counts[0, k * THREADS + thread] = 0
                T.sync_threads()
                count_ids(I, first, THREADS, steps, n, low, beyond, counts, 0, expert)
                T.sync_threads()
                for k in T.unroll(window // THREADS):
                    if low + k * THREADS + thread < experts:
                        C[chunk, low + k * THREADS + thread] = counts[0, k * THREADS + thread]
                T.sync_threads()

    return count


def place_pairs(form, window, alignment):
    """Give each pair a row: experts in order, each beginning at a multiple of `alignment`, its pairs in order.

    Parameters I (n,), the pairs' ids; C, a table of counts; outputs by `form`; steps. A pair whose id is no expert's
    has no row. Form "blocks": S (rows,), the pair of each row, n where there is none; X (blocks,), the expert of each
    `alignment` rows, -1 where there is none; N (1,), the rows of experts. Form "ends": M (experts,), the row after
    each expert's last pair; V (n,), the row of each pair, -1 where it has none. Form "per_row": M (rows,), the expert
    of each row, `experts` behind the last expert's; V.
    """
    n, experts, chunks = T.dynamic("n", "int64"), T.dynamic("experts", "int32"), T.dynamic("chunks", "int32")
    rows, blocks = T.dynamic("rows", "int64"), T.dynamic("blocks", "int64")
    slots = window // THREADS
    padded = alignment > 1 and form != "ends"

    @T.macro
    def add_up(C, chunk, low, thread, counts, size, before, padding, value):
        """size[k] = the pairs of expert low + k * THREADS + thread, before[k] = those of earlier chunks.

        counts[v, .] becomes the pairs of earlier warps.
        """
        for k in T.unroll(slots):
            size[k] = 0
            before[k] = 0
            for v in T.unroll(WARPS):
                value[0] = counts[v, k * THREADS + thread]
                counts[v, k * THREADS + thread] = size[k]
                size[k] += value[0]
            if low + k * THREADS + thread < experts:
                for c in T.serial(chunks):
                    if c != chunk:
                        value[0] = C[c, low + k * THREADS + thread]
                        size[k] += value[0]
                        if c < chunk:
                            before[k] += value[0]
            padding[k] = T.ceildiv(size[k], alignment) * alignment

    @T.macro
    def write_padding(A, chunk, thread, low, finish, stop):
        """Fill the rows between each expert's last pair and the next expert."""
        for j in T.serial(T.ceildiv(T.min(window, experts - low) * alignment, chunks * THREADS)):
            place = (j * chunks + chunk) * THREADS + thread
            slot = place // alignment
            if slot < T.min(window, experts - low) and finish[slot] + place % alignment < stop[slot]:
                A[finish[slot] + place % alignment] = T.cast(n, "int32") if form == "blocks" else low + slot

    @T.macro
    def take_rows(I, A, B, first, steps, warp, lane, w, low, beyond, counts, expert, alike, earlier, row):
        """Give this warp's pairs their rows, WARP pairs at a time."""
        for s in T.serial(steps):
            place = first + s * WARP
            expert[0] = -1
            if place < n:
                expert[0] = I[place]
            alike[0] = T.match_any_sync(expert[0])
            earlier[0] = T.cast(T.popcount(alike[0] & ((T.uint32(1) << T.cast(lane, "uint32")) - T.uint32(1))), "int32")
            row[0] = -1
            if expert[0] >= low and expert[0] < beyond:
                row[0] = counts[warp, expert[0] - low] + earlier[0]
            T.sync_warp()
            if row[0] >= 0 and earlier[0] == 0:
                counts[warp, expert[0] - low] += T.cast(T.popcount(alike[0]), "int32")
            T.sync_warp()
            if form == "blocks":
                if row[0] >= 0:
                    A[row[0]] = T.cast(place, "int32")
                    if row[0] % alignment == 0:
                        B[row[0] // alignment] = expert[0]
            else:
                if row[0] >= 0:
                    B[place] = row[0]
                    if form == "per_row":
                        A[row[0]] = expert[0]
                if w == 0 and place < n and (expert[0] < 0 or expert[0] >= experts):
                    B[place] = -1

    @T.macro
    def body(I, C, A, B, N, steps):
        with T.Kernel(chunks, threads=THREADS) as chunk:
            thread = T.get_thread_binding(0)
            warp, lane = thread // WARP, thread % WARP
            counts = T.alloc_shared((WARPS, window), "int32")
            finish = T.alloc_shared((window,), "int32")
            stop = T.alloc_shared((window,), "int32")
            partial = T.alloc_shared((1, 2 * slots * WARPS), "int32")
            size = T.alloc_local((slots,), "int32")
            before = T.alloc_local((slots,), "int32")
            padding = T.alloc_local((slots,), "int32")
            start = T.alloc_local((slots,), "int32")
            carry = T.alloc_local((1,), "int32")
            value = T.alloc_local((1,), "int32")
            expert = T.alloc_local((1,), "int32")
            alike = T.alloc_local((1,), "uint32")
            earlier = T.alloc_local((1,), "int32")
            row = T.alloc_local((1,), "int32")
            first = (T.cast(chunk, "int64") * WARPS + warp) * steps * WARP + lane
            carry[0] = 0
            for w in T.serial(T.ceildiv(experts, window)):
                low, beyond = w * window, T.min(w * window + window, experts)
                for k in T.unroll(WARPS * slots):
                    counts[k // slots, k % slots * THREADS + thread] = 0
                T.sync_threads()
                count_ids(I, first, WARP, steps, n, low, beyond, counts, warp, expert)
                T.sync_threads()
                add_up(C, chunk, low, thread, counts, size, before, padding, value)
                scan_over_lanes("sum", padding, start, carry, partial, 0, w % 2, thread, THREADS, slots)
                for k in T.unroll(slots):
                    for v in T.unroll(WARPS):
                        counts[v, k * THREADS + thread] += start[k] + before[k]
                    if padded:
                        finish[k * THREADS + thread] = start[k] + size[k]
                        stop[k * THREADS + thread] = start[k] + T.ceildiv(size[k], alignment) * alignment
                    if form == "ends" and chunk == 0 and low + k * THREADS + thread < experts:
                        A[low + k * THREADS + thread] = start[k] + size[k]
                T.sync_threads()
                if padded:
                    write_padding(A, chunk, thread, low, finish, stop)
                take_rows(I, A, B, first, steps, warp, lane, w, low, beyond, counts, expert, alike, earlier, row)
                T.sync_threads()
            if form != "ends":
                for j in T.serial(T.ceildiv(rows - carry[0], T.cast(chunks, "int64") * THREADS)):
                    place = carry[0] + (T.cast(j, "int64") * chunks + chunk) * THREADS + thread
                    if place < rows:
                        A[place] = T.cast(n, "int32") if form == "blocks" else experts
            if form == "blocks":
                filled = carry[0] // alignment
                for j in T.serial(T.ceildiv(blocks - filled, T.cast(chunks, "int64") * THREADS)):
                    place = filled + (T.cast(j, "int64") * chunks + chunk) * THREADS + thread
                    if place < blocks:
                        B[place] = -1
                if chunk == 0 and thread == 0:
                    N[0] = carry[0]

    if form == "blocks":

        @T.prim_func
        def aligned_blocks(
            I: T.Tensor[(n,), "int32"],
            C: T.Tensor[(chunks, experts), "int32"],
            S: T.Tensor[(rows,), "int32"],
            X: T.Tensor[(blocks,), "int32"],
            N: T.Tensor[(1,), "int32"],
            steps: T.int32,
        ):
            body(I, C, S, X, N, steps)

        return aligned_blocks

    @T.prim_func
    def expert_rows(
        I: T.Tensor[(n,), "int32"],
        C: T.Tensor[(chunks, experts), "int32"],
        M: T.Tensor[(experts,) if form == "ends" else (rows,), "int32"],
        V: T.Tensor[(n,), "int32"],
        steps: T.int32,
    ):
        body(I, C, M, V, None, steps)

    return expert_rows
