"""RMSNorm on CUDA: a row kept in registers and read once, by few threads or by many, or read twice in chunks.

A block of `rows * lanes` threads takes `rows` rows, `lanes` threads each; few rows have a thread for every access. A
thread moves `vector` elements at a time, which must divide the row; vector `k` of a row belongs to thread `k % lanes`.
Row offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_rows import (
    KEEP_PACKED,
    KEEP_RESULTS,
    READ_ONCE,
    WARP,
    add_over_lanes,
    fills_access,
    fits_access,
    keep_packed,
    read_once,
    result_policy,
    warps_of,
    write_result,
)


@T.macro
def read_weights(W, j, w, k, vector):
    """w[k, :] = `vector` elements of W, in as many accesses of 16 bytes as they take."""
    if fits_access(vector, W.dtype):
        for v in T.vectorized(vector):
            w[k, v] = W[j + v]
    else:
        for part in T.unroll(vector // 4):
            for v in T.vectorized(4):
                w[k, part * 4 + v] = W[j + part * 4 + v]


@T.macro
def add_squares(x, k, total, vector):
    """total[0] += the sum of the squares of x[k, :], `vector` elements."""
    squares = T.alloc_local((1,), "float32")
    squares[0] = T.float32(0)
    for v in T.unroll(vector):
        squares[0] += T.cast(x[k, v], "float32") * T.cast(x[k, v], "float32")
    total[0] += squares[0]


def rms_norm_on_chip(n, dtype, weighted, vector, lanes, rows, blocks, scales=None):
    """Rows of `n` elements in registers; parameters X (m, n), W (n,) if weighted, Y (m, n), eps; size m.

    W is of dtype `scales`, or that of the rows.

    `vector` elements take 16 bytes. At least `blocks` blocks fit on a multiprocessor, which bounds the registers of a
    thread. The weight is read before the sum is known, which hides its latency. Squares are added up access by access,
    which `rms_norm_spread` does too, so that both give the same bits.
    """
    m = T.dynamic("m", "int64")
    scales = scales or dtype
    steps = -(-n // (vector * lanes))
    whole = n % (vector * lanes) == 0

    @T.macro
    def read_row(X, row, lane, x):
        for k in T.unroll(steps):
            j = (k * lanes + lane) * vector
            if (whole or j < n) and (rows == 1 or row < m):
                for v in T.vectorized(vector):
                    x[k, v] = X[row, j + v]

    @T.macro
    def read_weight(W, lane, w):
        for k in T.unroll(steps):
            j = (k * lanes + lane) * vector
            if whole or j < n:
                read_weights(W, j, w, k, vector)

    @T.macro
    def reciprocal_root(x, slot, lane, scale, partial, eps):
        scale[0] = T.float32(0)
        for k in T.unroll(steps):
            if whole or (k * lanes + lane) * vector < n:
                add_squares(x, k, scale, vector)
        add_over_lanes(scale, partial, slot, lane, lanes)
        scale[0] = T.rsqrt(scale[0] / n + eps)

    @T.macro
    def write_vector(Y, row, lane, x, k, policy):
        j = (k * lanes + lane) * vector
        if (whole or j < n) and (rows == 1 or row < m):
            write_result(x, k, vector, Y, (row, j), policy)

    @T.prim_func
    def weighted_rows(
        X: T.Tensor[(m, n), dtype], W: T.Tensor[(n,), scales], Y: T.Tensor[(m, n), dtype], eps: T.float32
    ):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes, prelude=KEEP_PACKED + KEEP_RESULTS) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((steps, vector), dtype)
            w = T.alloc_local((steps, vector), scales)
            scale = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((rows, warps_of(lanes)), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            policy = result_policy(m * n, vector, dtype)
            read_row(X, row, lane, x)
            read_weight(W, lane, w)
            reciprocal_root(x, slot, lane, scale, partial, eps)
            for k in T.unroll(steps):
                keep_packed(x, k)
                for v in T.unroll(vector):
                    x[k, v] = T.cast(T.cast(x[k, v], "float32") * scale[0] * T.cast(w[k, v], "float32"), dtype)
                write_vector(Y, row, lane, x, k, policy)

    @T.prim_func
    def plain_rows(X: T.Tensor[(m, n), dtype], Y: T.Tensor[(m, n), dtype], eps: T.float32):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes, prelude=KEEP_PACKED + KEEP_RESULTS) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((steps, vector), dtype)
            scale = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((rows, warps_of(lanes)), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            policy = result_policy(m * n, vector, dtype)
            read_row(X, row, lane, x)
            reciprocal_root(x, slot, lane, scale, partial, eps)
            for k in T.unroll(steps):
                keep_packed(x, k)
                for v in T.unroll(vector):
                    x[k, v] = T.cast(T.cast(x[k, v], "float32") * scale[0], dtype)
                write_vector(Y, row, lane, x, k, policy)

    return weighted_rows if weighted else plain_rows


def rms_norm_spread(n, dtype, weighted, vector, lanes, scales=None):
    """Rows of `n` elements, a block for each and a thread for each access; parameters as in rms_norm_on_chip.

    What `lanes` threads of that program add up one access after another is added up in the same order here: each thread
    gives the sum of squares of its access, and of those the first `lanes` threads form the sums of lanes and of warps.
    """
    m = T.dynamic("m", "int64")
    scales = scales or dtype
    steps = -(-n // (vector * lanes))
    whole = n % (vector * lanes) == 0
    warps = warps_of(lanes)

    @T.macro
    def read(X, row, thread, x):
        if whole or thread * vector < n:
            for v in T.vectorized(vector):
                x[0, v] = X[row, thread * vector + v]

    @T.macro
    def reciprocal_root(x, thread, scale, sums, partial, eps):
        scale[0] = T.float32(0)
        if whole or thread * vector < n:
            add_squares(x, 0, scale, vector)
        sums[thread] = scale[0]
        T.sync_threads()
        if thread < lanes:
            scale[0] = T.float32(0)
            for k in T.unroll(steps):
                scale[0] += sums[k * lanes + thread]
            for step in T.unroll(5):
                scale[0] += T.shfl_xor(scale[0], 1 << step)
            if thread % WARP == 0:
                partial[thread // WARP] = scale[0]
        T.sync_threads()
        scale[0] = T.float32(0)
        for warp in T.unroll(warps):
            scale[0] += partial[warp]
        scale[0] = T.rsqrt(scale[0] / n + eps)

    @T.macro
    def write(Y, row, thread, x):
        if whole or thread * vector < n:
            for v in T.vectorized(vector):
                Y[row, thread * vector + v] = x[0, v]

    @T.prim_func
    def weighted_rows(
        X: T.Tensor[(m, n), dtype], W: T.Tensor[(n,), scales], Y: T.Tensor[(m, n), dtype], eps: T.float32
    ):
        with T.Kernel(m, threads=steps * lanes) as row:
            thread = T.get_thread_binding(0)
            x = T.alloc_local((1, vector), dtype)
            w = T.alloc_local((1, vector), scales)
            scale = T.alloc_local((1,), "float32")
            sums = T.alloc_shared((steps * lanes,), "float32")
            partial = T.alloc_shared((warps,), "float32")
            read(X, row, thread, x)
            if whole or thread * vector < n:
                read_weights(W, thread * vector, w, 0, vector)
            reciprocal_root(x, thread, scale, sums, partial, eps)
            for v in T.unroll(vector):
                x[0, v] = T.cast(T.cast(x[0, v], "float32") * scale[0] * T.cast(w[0, v], "float32"), dtype)
            write(Y, row, thread, x)

    @T.prim_func
    def plain_rows(X: T.Tensor[(m, n), dtype], Y: T.Tensor[(m, n), dtype], eps: T.float32):
        with T.Kernel(m, threads=steps * lanes) as row:
            thread = T.get_thread_binding(0)
            x = T.alloc_local((1, vector), dtype)
            scale = T.alloc_local((1,), "float32")
            sums = T.alloc_shared((steps * lanes,), "float32")
            partial = T.alloc_shared((warps,), "float32")
            read(X, row, thread, x)
            reciprocal_root(x, thread, scale, sums, partial, eps)
            for v in T.unroll(vector):
                x[0, v] = T.cast(T.cast(x[0, v], "float32") * scale[0], dtype)
            write(Y, row, thread, x)

    return weighted_rows if weighted else plain_rows


def rms_norm_streaming(n, dtype, weighted, vector, lanes, rows, unroll, scales=None):
    """Rows of `n` elements read twice, `unroll` vectors a thread at a time; parameters as in rms_norm_on_chip.

    The second reading goes backwards, so that it begins with what the caches still hold, which are to drop it first.
    """
    m = T.dynamic("m", "int64")
    scales = scales or dtype
    chunk = vector * lanes * unroll
    chunks = -(-n // chunk)
    whole = n % chunk == 0
    again = fills_access(vector, dtype)

    @T.macro
    def read_chunk(X, row, lane, c, x, once):
        for k in T.unroll(unroll):
            j = c * chunk + (k * lanes + lane) * vector
            if (whole or j < n) and (rows == 1 or row < m):
                if once:
                    read_once(x, k * vector, X, row * n + j)
                else:
                    for v in T.vectorized(vector):
                        x[k, v] = X[row, j + v]

    @T.macro
    def reciprocal_root(X, row, slot, lane, x, scale, partial, eps):
        scale[0] = T.float32(0)
        for c in T.serial(chunks):
            read_chunk(X, row, lane, c, x, False)
            for k in T.unroll(unroll):
                if whole or c * chunk + (k * lanes + lane) * vector < n:
                    for v in T.unroll(vector):
                        scale[0] += T.cast(x[k, v], "float32") * T.cast(x[k, v], "float32")
        add_over_lanes(scale, partial, slot, lane, lanes)
        scale[0] = T.rsqrt(scale[0] / n + eps)

    @T.macro
    def read_weight(W, lane, c, w):
        for k in T.unroll(unroll):
            j = c * chunk + (k * lanes + lane) * vector
            if whole or j < n:
                read_weights(W, j, w, k, vector)

    @T.macro
    def write_vector(Y, row, lane, c, k, x):
        j = c * chunk + (k * lanes + lane) * vector
        if (whole or j < n) and (rows == 1 or row < m):
            for v in T.vectorized(vector):
                Y[row, j + v] = x[k, v]

    @T.prim_func
    def weighted_rows(
        X: T.Tensor[(m, n), dtype], W: T.Tensor[(n,), scales], Y: T.Tensor[(m, n), dtype], eps: T.float32
    ):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes, prelude=READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((unroll, vector), dtype)
            w = T.alloc_local((unroll, vector), scales)
            scale = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((rows, warps_of(lanes)), "float32")
            reciprocal_root(X, row, slot, lane, x, scale, partial, eps)
            for back in T.serial(chunks):
                c = chunks - 1 - back
                read_chunk(X, row, lane, c, x, again)
                read_weight(W, lane, c, w)
                for k in T.unroll(unroll):
                    for v in T.unroll(vector):
                        x[k, v] = T.cast(T.cast(x[k, v], "float32") * scale[0] * T.cast(w[k, v], "float32"), dtype)
                    write_vector(Y, row, lane, c, k, x)

    @T.prim_func
    def plain_rows(X: T.Tensor[(m, n), dtype], Y: T.Tensor[(m, n), dtype], eps: T.float32):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes, prelude=READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((unroll, vector), dtype)
            scale = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((rows, warps_of(lanes)), "float32")
            reciprocal_root(X, row, slot, lane, x, scale, partial, eps)
            for back in T.serial(chunks):
                c = chunks - 1 - back
                read_chunk(X, row, lane, c, x, again)
                for k in T.unroll(unroll):
                    for v in T.unroll(vector):
                        x[k, v] = T.cast(T.cast(x[k, v], "float32") * scale[0], dtype)
                    write_vector(Y, row, lane, c, k, x)

    return weighted_rows if weighted else plain_rows
