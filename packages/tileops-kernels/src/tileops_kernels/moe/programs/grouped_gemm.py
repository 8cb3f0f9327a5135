"""Grouped matrix product on CUDA: a schedule of row tiles, then a tile of one expert's result in each block."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_products import (
    column_grid,
    column_of,
    gate_tile,
    multiply_tile_pairs,
    multiply_tiles,
    operand_tile,
)

SCHEDULERS = 128
"""Threads of a block that makes the schedule; each settles one tile."""


def tile_schedule(layout, alignment, rows):
    """For each row tile its expert, first row and the row after its last; parameters L, S (3, tiles).

    Tiles beyond those needed have no rows. `layout` is "masked", with L the rows that count of each expert's slab and
    `slab` the rows of a slab; "ends", with L the row after each expert's last one, every expert beginning at a
    multiple of `alignment`; or "per_row", with L the expert of each row, ascending. Both take the number of experts.
    """
    entries, tiles = T.dynamic("entries", "int32"), T.dynamic("tiles", "int32")

    @T.macro
    def write(S, tile, expert, first, last):
        S[0, tile] = expert
        S[1, tile] = first
        S[2, tile] = last

    @T.macro
    def end_of(L, expert, low, high):
        low[0] = 0
        high[0] = entries
        while low[0] < high[0]:
            if L[(low[0] + high[0]) // 2] <= expert:
                low[0] = (low[0] + high[0]) // 2 + 1
            else:
                high[0] = (low[0] + high[0]) // 2

    @T.prim_func
    def masked(L: T.Tensor[(entries,), "int32"], S: T.Tensor[(3, tiles), "int32"], slab: T.int32):
        with T.Kernel(T.ceildiv(tiles, SCHEDULERS), threads=SCHEDULERS) as block:
            tile = block * SCHEDULERS + T.get_thread_binding(0)
            if tile < tiles:
                each = T.ceildiv(slab, rows)
                expert = T.truncdiv(tile, each)
                first = expert * slab + T.truncmod(tile, each) * rows
                write(S, tile, expert, first, T.min(first + rows, expert * slab + L[expert]))

    @T.prim_func
    def contiguous(L: T.Tensor[(entries,), "int32"], S: T.Tensor[(3, tiles), "int32"], experts: T.int32):
        with T.Kernel(T.ceildiv(tiles, SCHEDULERS), threads=SCHEDULERS) as block:
            tile = block * SCHEDULERS + T.get_thread_binding(0)
            low = T.alloc_local((1,), "int32")
            high = T.alloc_local((1,), "int32")
            before = T.alloc_local((1,), "int32")
            first = T.alloc_local((1,), "int32")
            last = T.alloc_local((1,), "int32")
            if tile < tiles:
                before[0] = 0
                last[0] = 0
                write(S, tile, 0, 0, 0)
                for expert in T.serial(experts):
                    if layout == "per_row":
                        first[0] = last[0]
                        end_of(L, expert, low, high)
                        last[0] = low[0]
                    else:
                        first[0] = T.ceildiv(last[0], alignment) * alignment
                        last[0] = L[expert]
                    count = T.max(last[0] - first[0] + rows - 1, 0) // rows
                    if tile >= before[0] and tile < before[0] + count:
                        start = first[0] + (tile - before[0]) * rows
                        write(S, tile, expert, start, T.min(start + rows, last[0]))
                    before[0] += count

    return masked if layout == "masked" else contiguous


def grouped_gemm_tiles(dtype, out_dtype, activation, stream, n, k, vector, rows, columns, depth, stages, threads):
    """D's rows = A's rows times their expert's B transposed, summed in float32; parameters A, B, S, D.

    A is (m, k), B the experts' weights one below the other, each (n, k), D (m, n), S a tile_schedule. With an
    activation each expert's weights are (2 n, k), gates above: D = activation(gate) * up. Sizes m, weights (B's rows),
    tiles, and n and k where they are given as 0. Rows of D in no tile of S are not written.
    """
    m, weights, tiles = T.dynamic("m", "int64"), T.dynamic("weights", "int64"), T.dynamic("tiles", "int32")
    n, k = n or T.dynamic("n", "int64"), k or T.dynamic("k", "int64")
    halves = 1 if activation == "none" else 2
    shape = (rows, columns, depth)

    @T.macro
    def write_rows(sums, D, row, column, last):
        for i, j in T.Parallel(rows, columns):
            if row + i < last and column + j < n:
                D[row + i, column + j] = T.cast(sums[i, j], out_dtype)

    @T.prim_func
    def grouped(
        A: T.Tensor[(m, k), dtype],
        B: T.Tensor[(weights, k), dtype],
        S: T.Tensor[(3, tiles), "int32"],
        D: T.Tensor[(m, n), out_dtype],
    ):
        with T.Kernel(tiles, *column_grid(n, columns), threads=threads) as (tile, near, far):
            T.assume(k % vector == 0)
            a = operand_tile(rows, depth, stages, stream, False, dtype)
            b = operand_tile(columns, depth, stages, stream, False, dtype)
            sums = T.alloc_fragment((rows, columns), "float32")
            column = column_of(near, far, columns)
            row = T.cast(S[1, tile], "int64")
            line = T.cast(S[0, tile], "int64") * halves * n + column
            terms = T.if_then_else(S[2, tile] > S[1, tile], T.cast(k, "int64"), T.int64(0))
            T.clear(sums)
            if halves == 2:
                c = operand_tile(columns, depth, stages, stream, False, dtype)
                others = T.alloc_fragment((rows, columns), "float32")
                T.clear(others)
                multiply_tile_pairs(A, B, a, b, c, sums, others, row, line, line + n, terms, shape, stages, stream)
                gate_tile(activation, sums, others, rows, columns)
            else:
                multiply_tiles(A, B, a, b, sums, row, line, terms, False, True, shape, stages, stream)
            write_rows(sums, D, row, column, T.cast(S[2, tile], "int64"))

    return grouped
