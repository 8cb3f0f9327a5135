"""Grouped matrix product on Hopper whose blocks stay: warps that fetch run ahead of those that multiply and write.

The blocks of `grouped_gemm` begin each tile with nothing fetched and end it with nothing under way; here the next
tile's terms are fetched while a tile is written.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.moe.programs.grouped_gemm import PRELUDE, quotient, remainder

FETCHERS = 128
"""Threads of a block that fetch: a warp group, of which one thread asks and the others give their registers away."""

PART = 64
"""Columns of a tile that are written at a time."""

WRITE = """
static __device__ __forceinline__ int tileops_write_access(void *target, const void *source) {
  __stcg((uint4 *)target, *(const uint4 *)source);
  return 0;
}
"""
"""CUDA text of a write of 16 bytes that the compiler does not take apart."""


def grouped_gemm_persistent(dtype, out_dtype, vector, rows, columns, depth, stages, threads, band, early):
    """D's rows = A's rows times their expert's B transposed; parameters A, B, S, D, wide and grid, the blocks.

    As `grouped_gemm_tiles` for layout "scheduled", stream "tma" and no activation: block b takes tiles b, b + grid and
    so on, in the same order of tiles. `threads` multiply and write, and FETCHERS beside them fetch.
    """
    m, weights, tiles = T.dynamic("m", "int64"), T.dynamic("weights", "int64"), T.dynamic("tiles", "int32")
    n, k = T.dynamic("n", "int64"), T.dynamic("k", "int64")
    access = 4 if out_dtype == "float32" else 8

    @T.macro
    def locate(index, wide, place, column):
        """Row tile and column of the tile at `index` of the order of tiles."""
        strip = quotient(index, band * wide)
        within = remainder(index, band * wide)
        height = T.min(tiles - strip * band, band)
        place[0] = strip * band + remainder(within, height)
        column[0] = T.cast(quotient(within, height), "int64") * columns

    @T.macro
    def write(made, D, ready, row, last, column, thread):
        """D[row : last, column :] = PART columns in shared memory, 16 bytes at a time where D's rows are whole."""
        for t in T.serial(rows * PART // access // threads):
            i = (t * threads + thread) // (PART // access)
            j = (t * threads + thread) % (PART // access) * access
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
        with T.Kernel(grid, threads=threads + FETCHERS, prelude=PRELUDE + WRITE) as block:
            T.assume(k % vector == 0)
            a = T.alloc_shared((stages, rows, depth), dtype)
            b = T.alloc_shared((stages, columns, depth), dtype)
            made = T.alloc_shared((rows, PART + access), out_dtype)
            full = T.alloc_barrier([FETCHERS] * stages)
            free = T.alloc_barrier([threads] * stages)
            sums = T.alloc_fragment((rows, columns), "float32")
            ready = T.alloc_local((access,), out_dtype)
            place = T.alloc_local((1,), "int32")
            line = T.alloc_local((1,), "int32")
            column = T.alloc_local((1,), "int64")
            count = T.alloc_local((1,), "int32")
            thread = T.get_thread_binding(0)
            steps = T.cast(T.ceildiv(k, depth), "int32")
            count[0] = 0
            if early:
                T.pdl_sync()
            if thread >= threads:
                T.dec_max_nreg(24)
                for turn in T.serial(T.max(T.ceildiv(tiles * wide - block, grid), 0)):
                    locate(block + turn * grid, wide, place, column)
                    row = S[1, place[0]]
                    if row < S[2, place[0]]:
                        line[0] = T.cast(S[0, place[0]] * n + column[0], "int32")
                        for step in T.serial(steps):
                            stage = count[0] % stages
                            T.mbarrier_wait_parity(free[stage], (count[0] // stages + 1) % 2)
                            T.tma_copy(
                                A[row : row + rows, step * depth : (step + 1) * depth],
                                a[stage, :, :],
                                barrier=full[stage],
                            )
                            T.tma_copy(
                                B[line[0] : line[0] + columns, step * depth : (step + 1) * depth],
                                b[stage, :, :],
                                barrier=full[stage],
                            )
                            T.mbarrier_arrive(full[stage])
                            count[0] += 1
            else:
                T.inc_max_nreg(240)
                for turn in T.serial(T.max(T.ceildiv(tiles * wide - block, grid), 0)):
                    locate(block + turn * grid, wide, place, column)
                    row, last = T.cast(S[1, place[0]], "int64"), T.cast(S[2, place[0]], "int64")
                    if row < last:
                        T.clear(sums)
                        for _ in T.serial(steps):
                            stage = count[0] % stages
                            T.mbarrier_wait_parity(full[stage], count[0] // stages % 2)
                            T.gemm(
                                a[stage, :, :],
                                b[stage, :, :],
                                sums,
                                transpose_B=True,
                                policy=T.GemmWarpPolicy.FullRow,
                            )
                            T.mbarrier_arrive(free[stage])
                            count[0] += 1
                        for part in T.unroll(columns // PART, explicit=True):
                            for i, j in T.Parallel(rows, PART):
                                made[i, j] = T.cast(sums[i, part * PART + j], out_dtype)
                            T.sync_threads(1, threads)
                            write(made, D, ready, row, last, column[0] + part * PART, thread)
                            T.sync_threads(1, threads)

    return persistent
