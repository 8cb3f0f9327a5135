"""Grouped matrix product on Hopper whose blocks stay: warps that fetch run ahead of those that multiply and write.

The blocks of `grouped_gemm` begin each tile with nothing fetched and end it with nothing under way; here the next
tile's terms are fetched while a tile is written.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_persistent import (
    DIVISIONS,
    FETCHERS,
    fetch_tiles,
    free_barriers,
    full_barriers,
    give_registers,
    multiply_fetched,
    operand_stages,
    place_in_bands,
    quotient,
    take_registers,
)

STRIP = 64
"""Columns of a tile that are written at a time."""

PRELUDE = (
    DIVISIONS
    + """
static __device__ __forceinline__ int tileops_write_access(void *target, const void *source) {
  __stcg((uint4 *)target, *(const uint4 *)source);
  return 0;
}
"""
)
"""CUDA text of the program: divisions, and a write of 16 bytes that the compiler does not take apart."""


def grouped_gemm_persistent(dtype, out_dtype, vector, rows, columns, depth, stages, threads, band, early):
    """D's rows = A's rows times their expert's B transposed; parameters A, B, S, D, wide and grid, the blocks.

    As `grouped_gemm_tiles` for layout "scheduled", stream "tma" and no activation: block b takes tiles b, b + grid and
    so on, in the same order of tiles. `threads` multiply and write, and FETCHERS beside them fetch.
    """
    m, weights, tiles = T.dynamic("m", "int64"), T.dynamic("weights", "int64"), T.dynamic("tiles", "int32")
    n, k = T.dynamic("n", "int64"), T.dynamic("k", "int64")
    access = 4 if out_dtype == "float32" else 8
    shape = (rows, columns, depth)

    @T.macro
    def write(made, D, ready, row, last, column, thread):
        """D[row : last, column :] = STRIP columns in shared memory, 16 bytes at a time where D's rows are whole."""
        for t in T.serial(rows * STRIP // access // threads):
            i = (t * threads + thread) // (STRIP // access)
            j = (t * threads + thread) % (STRIP // access) * access
            if row + i < last and column + j < n:
                for v in T.unroll(access):
                    ready[v] = made[i, j + v]
                if n % access == 0:
                    T.evaluate(
                        T.call_extern(
                            "int32",
                            "tileops_write_access",
                            T.address_of(D[row + i, column + j]),
                            T.address_of(ready[0]),
                        )
                    )
                else:
                    for v in T.unroll(access):
                        if column + j + v < n:
                            D[row + i, column + j + v] = ready[v]

    @T.prim_func
    def persistent(
        A: T.Tensor[(m, k), dtype],
        B: T.Tensor[(weights, k), dtype],
        S: T.Tensor[(3, tiles), "int32"],
        D: T.Tensor[(m, n), out_dtype],
        wide: T.int32,
        grid: T.int32,
    ):
        with T.Kernel(grid, threads=threads + FETCHERS, prelude=PRELUDE) as block:
            T.assume(k % vector == 0)
            a = operand_stages(rows, depth, stages, False, dtype)
            b = operand_stages(columns, depth, stages, False, dtype)
            made = T.alloc_shared((rows, STRIP + access), out_dtype)
            full, free = full_barriers(stages), free_barriers(stages, threads)
            sums = T.alloc_fragment((rows, columns), "float32")
            ready = T.alloc_local((access,), out_dtype)
            place = T.alloc_local((1,), "int32")
            line = T.alloc_local((1,), "int32")
            column = T.alloc_local((1,), "int64")
            count = T.alloc_local((1,), "int32")
            thread = T.get_thread_binding(0)
            steps = T.cast(T.ceildiv(k, depth), "int32")
            turns = quotient(T.max(tiles * wide - block + grid - 1, 0), grid)
            count[0] = 0
            if early:
                T.pdl_sync()
            if thread >= threads:
                give_registers(threads)
                for turn in T.serial(turns):
                    tile, across = place_in_bands(block + turn * grid, tiles, wide, band)
                    place[0] = tile
                    column[0] = T.cast(across, "int64") * columns
                    row = S[1, place[0]]
                    if row < S[2, place[0]]:
                        line[0] = T.cast(S[0, place[0]] * n + column[0], "int32")
                        fetch_tiles(A, B, a, b, full, free, count, row, line[0], 0, steps, False, True, shape, stages)
            else:
                take_registers(threads)
                for turn in T.serial(turns):
                    tile, across = place_in_bands(block + turn * grid, tiles, wide, band)
                    place[0] = tile
                    column[0] = T.cast(across, "int64") * columns
                    row, last = T.cast(S[1, place[0]], "int64"), T.cast(S[2, place[0]], "int64")
                    if row < last:
                        multiply_fetched(a, b, full, free, count, sums, steps, False, True, stages)
                        for strip in T.unroll(columns // STRIP, explicit=True):
                            for i, j in T.Parallel(rows, STRIP):
                                made[i, j] = T.cast(sums[i, strip * STRIP + j], out_dtype)
                            T.sync_threads(1, threads)
                            write(made, D, ready, row, last, column[0] + strip * STRIP, thread)
                            T.sync_threads(1, threads)

    return persistent
