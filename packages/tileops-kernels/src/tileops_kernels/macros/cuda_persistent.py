"""Matrix products on Hopper by blocks that stay: warps that fetch run ahead of those that multiply and write.

A block that takes one tile begins it with nothing fetched and ends it with nothing under way; here the next tile's
terms are fetched while a tile is written.
"""

import tilelang.language as T  # noqa: N812

FETCHERS = 128
"""Threads of a block that fetch: a warp group, of which one thread asks and the others give their registers away."""

STRIP_BYTES = 128
"""Bytes of a tile's rows that are written at a time, the most that lie in shared memory without conflicts."""

DIVISIONS = """
static __device__ __forceinline__ int tileops_quotient(int number, int by) { return number / by; }
static __device__ __forceinline__ int tileops_remainder(int number, int by) { return number % by; }
"""
"""CUDA text of divisions that TileLang does not widen to 64 bits."""


def quotient(number, by):
    """The quotient of two int32 that are not negative."""
    return T.call_pure_extern("int32", "tileops_quotient", number, by)


def remainder(number, by):
    """The remainder of two int32 that are not negative."""
    return T.call_pure_extern("int32", "tileops_remainder", number, by)


def place_in_bands(index, tall, wide, band):
    """Row tile and column tile at `index` of an order in bands of `band` row tiles, all of a column before the next."""
    strip = quotient(index, band * wide)
    within = remainder(index, band * wide)
    height = T.min(tall - strip * band, band)
    return strip * band + remainder(within, height), quotient(within, height)


def operand_stages(extent, depth, stages, depth_first, dtype):
    """Shared memory for `stages` tiles of an operand, of `extent` rows or columns and `depth` terms."""
    return T.alloc_shared((stages, depth, extent) if depth_first else (stages, extent, depth), dtype)


def full_barriers(stages):
    """One barrier for each stage, which says that it is fetched."""
    return T.alloc_barrier([FETCHERS] * stages)


def free_barriers(stages, threads):
    """One barrier for each stage, at which a thread of each warp that multiplies says that it is done with it."""
    return T.alloc_barrier([threads // 32] * stages)


@T.macro
def fetch_tiles(A, B, a, b, full, free, count, row, column, first, steps, trans_a, trans_b, shape, stages):
    """Fetch `steps` tiles of A at `row` and of B at `column`, from term `first` on, as stages become free.

    `count` is the number of steps fetched before, and `shape` (rows, columns, depth). All FETCHERS run this.
    """
    rows, columns, depth = shape
    for step in T.serial(steps):
        stage = count[0] % stages
        term = T.cast(first + step * depth, "int32")
        T.mbarrier_wait_parity(free[stage], (count[0] // stages + 1) % 2)
        if trans_a:
            T.tma_copy(A[term : term + depth, row : row + rows], a[stage, :, :], barrier=full[stage])
        else:
            T.tma_copy(A[row : row + rows, term : term + depth], a[stage, :, :], barrier=full[stage])
        if trans_b:
            T.tma_copy(B[column : column + columns, term : term + depth], b[stage, :, :], barrier=full[stage])
        else:
            T.tma_copy(B[term : term + depth, column : column + columns], b[stage, :, :], barrier=full[stage])
        T.mbarrier_arrive(full[stage])
        count[0] += 1


@T.macro
def multiply_fetched(a, b, full, free, count, sums, steps, trans_a, trans_b, stages):
    """Sums = the products of `steps` tiles as they are fetched; see fetch_tiles."""
    T.clear(sums)
    for _ in T.serial(steps):
        stage = count[0] % stages
        T.mbarrier_wait_parity(full[stage], count[0] // stages % 2)
        T.gemm(
            a[stage, :, :],
            b[stage, :, :],
            sums,
            transpose_A=trans_a,
            transpose_B=trans_b,
            policy=T.GemmWarpPolicy.FullRow,
        )
        if T.get_thread_binding(0) % 32 == 0:
            T.mbarrier_arrive(free[stage])
        count[0] += 1


@T.macro
def store_tile(made, D, sums, row, column, shape, dtype, threads):
    """D[row :, column :] = sums, of which the accelerator writes what lies within D.

    `made` holds two strips of columns: one is written while the next is made. The last strip may overlap the one before
    it, and both write the same there.
    """
    rows, columns = shape[0], shape[1]
    across = strip_columns(dtype)
    for strip in T.unroll(-(-columns // across), explicit=True):
        T.tma_store_wait(1)
        T.sync_threads(1, threads)
        for i, j in T.Parallel(rows, across):
            made[strip % 2, i, j] = T.cast(sums[i, T.min(strip * across, columns - across) + j], dtype)
        T.fence_proxy_async()
        T.sync_threads(1, threads)
        start = column + T.min(strip * across, columns - across)
        T.tma_copy(made[strip % 2, :, :], D[row : row + rows, start : start + across])


def strip_columns(dtype):
    """Columns of a tile that are written at a time."""
    return STRIP_BYTES // (4 if dtype == "float32" else 2)


@T.macro
def give_registers(threads):
    """Let threads that fetch give registers away, where those that multiply need more than all have at first."""
    if threads > 128:
        T.dec_max_nreg(24)


@T.macro
def take_registers(threads):
    """Let the `threads` that multiply take what those that fetch gave away."""
    if threads > 128:
        T.inc_max_nreg(240 if threads == 256 else 160)


def product_persistent(dtype, trans_a, trans_b, vector, rows, columns, depth, stages, threads, band):
    """The program D = A B, summed in float32; parameters A, B, D, and grid, the blocks.

    A is stored (m, k), or (k, m) if trans_a; B (k, n), or (n, k) if trans_b; D (m, n). The extent along which each of
    them is stored is a multiple of `vector` elements. Block b takes the tiles b, b + grid and so on of the order of
    `place_in_bands`. `threads` multiply and write, and FETCHERS beside them fetch.
    """
    m, n, k = T.dynamic("m", "int64"), T.dynamic("n", "int64"), T.dynamic("k", "int64")
    shape = (rows, columns, depth)

    @T.prim_func
    def persistent(
        A: T.Tensor[((k, m) if trans_a else (m, k)), dtype],
        B: T.Tensor[((n, k) if trans_b else (k, n)), dtype],
        D: T.Tensor[(m, n), dtype],
        grid: T.int32,
    ):
        with T.Kernel(grid, threads=threads + FETCHERS, prelude=DIVISIONS) as block:
            T.assume((m if trans_a else k) % vector == 0)
            T.assume((k if trans_b else n) % vector == 0)
            T.assume(n % vector == 0)
            a = operand_stages(rows, depth, stages, trans_a, dtype)
            b = operand_stages(columns, depth, stages, not trans_b, dtype)
            made = T.alloc_shared((2, rows, strip_columns(dtype)), dtype)
            full, free = full_barriers(stages), free_barriers(stages, threads)
            sums = T.alloc_fragment((rows, columns), "float32")
            row = T.alloc_local((1,), "int32")
            column = T.alloc_local((1,), "int32")
            count = T.alloc_local((1,), "int32")
            tall = T.cast(T.ceildiv(m, rows), "int32")
            wide = T.cast(T.ceildiv(n, columns), "int32")
            steps = T.cast(T.ceildiv(k, depth), "int32")
            turns = quotient(tall * wide - block + grid - 1, grid)
            count[0] = 0
            if T.get_thread_binding(0) >= threads:
                give_registers(threads)
                for turn in T.serial(turns):
                    high, over = place_in_bands(block + turn * grid, tall, wide, band)
                    row[0] = high * rows
                    column[0] = over * columns
                    fetch_tiles(
                        A, B, a, b, full, free, count, row[0], column[0], 0, steps, trans_a, trans_b, shape, stages
                    )
            else:
                take_registers(threads)
                for turn in T.serial(turns):
                    high, over = place_in_bands(block + turn * grid, tall, wide, band)
                    row[0] = high * rows
                    column[0] = over * columns
                    multiply_fetched(a, b, full, free, count, sums, steps, trans_a, trans_b, stages)
                    store_tile(made, D, sums, row[0], column[0], shape, dtype, threads)
                T.tma_store_wait(0)

    return persistent
