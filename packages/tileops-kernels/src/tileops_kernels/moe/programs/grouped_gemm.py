"""Grouped matrix product on CUDA: each block multiplies some rows of one expert with some rows of its weights.

Where experts' rows lie in slabs of their own, a block finds its expert by its place in the grid. Where they follow one
another, a schedule of row tiles is made first.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_persistent import DIVISIONS, place_in_bands, quotient, remainder
from tileops_kernels.macros.cuda_products import (
    gate_tile,
    gated,
    multiply_stacked_tiles,
    multiply_tile_pairs,
    multiply_tiles,
    operand_tile,
)
from tileops_kernels.macros.cuda_rows import scan_over_lanes, warps_of

SCHEDULERS = 1024
"""Threads of the block that makes a schedule; each counts the tiles of one expert at a time."""

AHEAD = 4
"""Rows whose experts a thread of the schedule reads at a time."""

PRELUDE = (
    DIVISIONS
    + """
static __device__ __forceinline__ int tileops_store_access(void *target, const void *source) {
  *(uint4 *)target = *(const uint4 *)source;
  return 0;
}
"""
)
"""CUDA text of the tiles' programs: divisions, and a write of 16 bytes."""


@T.macro
def _find_ends(L, entries, experts, low, ends, given, thread):
    """ends[1 + e] = the row after the last one of expert low + e, for SCHEDULERS experts; L names each row's expert."""
    for step in T.serial(T.ceildiv(entries, SCHEDULERS * AHEAD)):
        for r in T.unroll(AHEAD + 1):
            given[r] = experts
            if (step * SCHEDULERS + thread) * AHEAD + r < entries:
                given[r] = L[(step * SCHEDULERS + thread) * AHEAD + r]
        if step == 0 and thread == 0:
            for e in T.serial(T.min(given[0], experts) - low):
                if e < SCHEDULERS:
                    ends[1 + e] = 0
        for r in T.unroll(AHEAD):
            row = (step * SCHEDULERS + thread) * AHEAD + r
            if row < entries and given[r] < given[r + 1]:
                for e in T.serial(T.max(given[r] - low, 0), T.min(T.min(given[r + 1], experts) - low, SCHEDULERS)):
                    ends[1 + e] = row + 1


def tile_schedule(layout, alignment, rows, early):
    """For each row tile its expert, first row and the row after its last; parameters L, S (3, tiles), experts.

    Tiles beyond those needed have no rows. `layout` is "ends", with L the row after each expert's last one, every
    expert beginning at a multiple of `alignment`; or "per_row", with L the expert of each row, ascending. Threads count
    the tiles of an expert each, and the sum over those before says where they go. `early`: the program that waits for
    this one may be launched when it begins.
    """
    entries, tiles = T.dynamic("entries", "int32"), T.dynamic("tiles", "int32")

    @T.macro
    def write(S, tile, expert, first, last):
        S[0, tile] = expert
        S[1, tile] = first
        S[2, tile] = last

    @T.prim_func
    def schedule(L: T.Tensor[(entries,), "int32"], S: T.Tensor[(3, tiles), "int32"], experts: T.int32):
        with T.Kernel(1, threads=SCHEDULERS) as _:
            if early:
                T.pdl_trigger()
            thread = T.get_thread_binding(0)
            partial = T.alloc_shared((1, 2 * warps_of(SCHEDULERS)), "int32")
            ends = T.alloc_shared((SCHEDULERS + 1,), "int32")
            given = T.alloc_local((AHEAD + 1,), "int32")
            first = T.alloc_local((1,), "int32")
            last = T.alloc_local((1,), "int32")
            count = T.alloc_local((1,), "int32")
            own = T.alloc_local((1,), "int32")
            before = T.alloc_local((1,), "int32")
            carry = T.alloc_local((1,), "int32")
            carry[0] = 0
            if layout == "per_row" and thread == 0:
                ends[0] = 0
            for window in T.serial(T.ceildiv(experts, SCHEDULERS)):
                expert = window * SCHEDULERS + thread
                first[0] = 0
                last[0] = 0
                if layout == "per_row":
                    _find_ends(L, entries, experts, window * SCHEDULERS, ends, given, thread)
                    T.sync_threads()
                    if expert < experts:
                        first[0] = ends[thread]
                        last[0] = ends[thread + 1]
                    T.sync_threads()
                    if thread == SCHEDULERS - 1:
                        ends[0] = last[0]
                elif expert < experts:
                    if expert > 0:
                        first[0] = T.ceildiv(L[expert - 1], alignment) * alignment
                    last[0] = L[expert]
                count[0] = T.max(last[0] - first[0] + rows - 1, 0) // rows
                own[0] = count[0]
                scan_over_lanes("sum", count, before, carry, partial, 0, window % 2, thread, SCHEDULERS, 1)
                for t in T.serial(T.min(own[0], tiles - before[0])):
                    start = first[0] + t * rows
                    write(S, before[0] + t, expert, start, T.min(start + rows, last[0]))
            for t in T.serial(T.ceildiv(T.max(tiles - carry[0], 0), SCHEDULERS)):
                if carry[0] + t * SCHEDULERS + thread < tiles:
                    write(S, carry[0] + t * SCHEDULERS + thread, 0, 0, 0)

    return schedule


@T.macro
def _write_rows(made, D, row, last, column, ready, n, rows, columns, threads, gates, dtype):
    """D[row : last, column :] = a tile in shared memory, 16 bytes at a time where D's rows are whole accesses.

    `gates` is the activation of the tile's first `columns` columns, whose factors are behind them, or None.
    """
    access = 4 if dtype == "float32" else 8
    thread = T.get_thread_binding(0)
    for t in T.serial(T.ceildiv(rows * columns // access, threads)):
        i = (t * threads + thread) // (columns // access)
        j = (t * threads + thread) % (columns // access) * access
        if i < rows and row + i < last and column + j < n:
            for v in T.unroll(access):
                if gates is None:
                    ready[v] = made[i, j + v]
                else:
                    ready[v] = T.cast(gated(gates, made[i, j + v], made[i, columns + j + v]), dtype)
            if n % access == 0:
                T.evaluate(
                    T.call_extern(
                        "int32", "tileops_store_access", T.address_of(D[row + i, column + j]), T.address_of(ready[0])
                    )
                )
            else:
                for v in T.unroll(access):
                    if column + j + v < n:
                        D[row + i, column + j + v] = ready[v]


def grouped_gemm_tiles(
    layout,
    dtype,
    out_dtype,
    activation,
    stream,
    n,
    k,
    vector,
    rows,
    columns,
    depth,
    stages,
    threads,
    turned,
    stacked,
    blocks,
    band,
    early,
):
    """D's rows = A's rows times their expert's B transposed, summed in float32; parameters A, B, L or S, D, wide.

    A is (m, k), B the experts' weights one below the other, each (n, k), D (m, n). With an activation each expert's
    weights are (2 n, k), gates above: D = activation(gate) * up. `layout` "masked" takes L, the rows that count of each
    expert's slab, and after `wide` the rows of a slab; "scheduled" takes S, a tile_schedule. `wide` is the tiles of
    columns, ceil(n / columns). Sizes m, weights (B's rows), tiles or experts, and n and k where they are given as 0.
    Rows of D that are no expert's are not written.

    `turned`: weights take the place of rows in the tensor cores' instructions, which have 64 of those at least, so that
    tiles may have as few as 8 rows. `stacked`: the tiles of gates and their factors are multiplied as one. `blocks` is
    how many a multiprocessor is to hold. These three are for stream "tma". Blocks run in bands of `band` row tiles of
    S, all of a column's before the next column's. `early`: they are launched while S is made, on Hopper, and wait for
    it.
    """
    m, weights = T.dynamic("m", "int64"), T.dynamic("weights", "int64")
    tiles, experts = T.dynamic("tiles", "int32"), T.dynamic("experts", "int32")
    n, k = n or T.dynamic("n", "int64"), k or T.dynamic("k", "int64")
    halves = 1 if activation == "none" else 2
    shape = (rows, columns, depth)
    across = (columns, rows) if turned else (rows, columns)
    access = 4 if out_dtype == "float32" else 8
    stacked = stacked and halves == 2
    kept = ("float32", 2 * columns + 8) if stacked else (out_dtype, columns + access)

    @T.macro
    def multiply(A, B, D, row, last, expert, column):
        """D[row : last, column :] = the rows of A times as many rows of the expert's weights as a tile has columns."""
        T.assume(k % vector == 0)
        a = operand_tile(rows, depth, stages, stream, False, dtype)
        b = operand_tile(2 * columns if stacked else columns, depth, stages, stream, False, dtype)
        sums = T.alloc_fragment((rows, 2 * columns) if stacked else across, "float32")
        made = T.alloc_shared((rows, kept[1]), kept[0])
        ready = T.alloc_local((access,), out_dtype)
        line = expert * halves * n + column
        terms = T.if_then_else(last > row, T.cast(k, "int64"), T.int64(0))
        T.clear(sums)
        if stacked:
            multiply_stacked_tiles(A, B, a, b, sums, row, line, line + n, terms, shape, stages)
        elif halves == 2:
            c = operand_tile(columns, depth, stages, stream, False, dtype)
            others = T.alloc_fragment(across, "float32")
            T.clear(others)
            multiply_tile_pairs(A, B, a, b, c, sums, others, row, line, line + n, terms, shape, stages, stream, turned)
            gate_tile(activation, sums, others, across[0], across[1])
        elif turned:
            multiply_tiles(
                B,
                A,
                b,
                a,
                sums,
                line,
                row,
                terms,
                False,
                True,
                (columns, rows, depth),
                stages,
                stream,
                policy=T.GemmWarpPolicy.FullRow,
            )
        else:
            multiply_tiles(
                A,
                B,
                a,
                b,
                sums,
                row,
                line,
                terms,
                False,
                True,
                shape,
                stages,
                stream,
                policy=T.GemmWarpPolicy.FullRow if stream == "tma" else T.GemmWarpPolicy.Square,
            )
        if turned:
            for i, j in T.Parallel(columns, rows):
                made[j, i] = T.cast(sums[i, j], out_dtype)
        else:
            T.copy(sums, made[:, 0 : kept[1] - (8 if stacked else access)])
        T.sync_threads()
        gates = activation if stacked else None
        _write_rows(made, D, row, last, column, ready, n, rows, columns, threads, gates, out_dtype)

    @T.macro
    def share(blocks):
        """Let a multiprocessor hold `blocks` blocks, whose warps keep the registers that they begin with."""
        if blocks > 1:
            T.annotate_min_blocks_per_sm(blocks)
            T.no_set_max_nreg()

    @T.prim_func
    def masked(
        A: T.Tensor[(m, k), dtype],
        B: T.Tensor[(weights, k), dtype],
        L: T.Tensor[(experts,), "int32"],
        D: T.Tensor[(m, n), out_dtype],
        wide: T.int32,
        slab: T.int32,
    ):
        with T.Kernel(experts * T.ceildiv(slab, rows) * wide, threads=threads, prelude=PRELUDE) as block:
            share(blocks)
            each = T.ceildiv(slab, rows)
            expert = quotient(block, each * wide)
            within = remainder(block, each * wide)
            first = T.cast(expert, "int64") * slab
            row = first + T.cast(remainder(within, each), "int64") * rows
            last = first + T.min(L[expert], slab)
            column = T.cast(quotient(within, each), "int64") * columns
            multiply(A, B, D, row, last, T.cast(expert, "int64"), column)

    @T.prim_func
    def scheduled(
        A: T.Tensor[(m, k), dtype],
        B: T.Tensor[(weights, k), dtype],
        S: T.Tensor[(3, tiles), "int32"],
        D: T.Tensor[(m, n), out_dtype],
        wide: T.int32,
    ):
        with T.Kernel(tiles * wide, threads=threads, prelude=PRELUDE) as block:
            share(blocks)
            tile, across = place_in_bands(block, tiles, wide, band)
            if early:
                T.pdl_sync()
            column = T.cast(across, "int64") * columns
            row, last = T.cast(S[1, tile], "int64"), T.cast(S[2, tile], "int64")
            multiply(A, B, D, row, last, T.cast(S[0, tile], "int64"), column)

    return masked if layout == "masked" else scheduled
