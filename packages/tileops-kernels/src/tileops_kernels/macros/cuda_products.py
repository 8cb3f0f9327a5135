"""Matrix products on CUDA: tiles of two operands streamed through shared memory and multiplied by the tensor cores.

How operands reach shared memory is one of STREAMS: "tma" on Hopper, "async" (cp.async) from Ampere on, both for rows of
whole 16-byte accesses, and "plain" for rows of any length.
"""

import tilelang.language as T  # noqa: N812

STREAMS = ("tma", "async", "plain")

GRID = 32768
"""Blocks along the second axis of a grid, which holds no more than 65535; the third axis takes what is beyond."""


def column_grid(n, columns):
    """The second and third extents of a grid whose blocks take `columns` of n columns each; see column_of."""
    return T.min(T.ceildiv(n, columns), GRID), T.ceildiv(n, columns * GRID)


def column_of(near, far, columns):
    """The first column of the block at (near, far) of `column_grid`."""
    return (T.cast(far, "int64") * GRID + near) * columns


def operand_tile(extent, depth, stages, stream, depth_first, dtype):
    """Shared memory for a tile of an operand, `extent` rows or columns of `depth` terms; for "async" `stages` tiles."""
    shape = (depth, extent) if depth_first else (extent, depth)
    return T.alloc_shared((stages, *shape) if stream == "async" else shape, dtype)


@T.macro
def _fetch(A, target, line, term, depth_first, stream):
    """Target = the tile of A at `line` (a row or column) and `term`, zero beyond A's extents."""
    if stream == "tma":  # whose coordinates are 32 bits wide
        if depth_first:
            T.copy(A[term, T.cast(line, "int32")], target)
        else:
            T.copy(A[T.cast(line, "int32"), term], target)
    elif depth_first:
        T.copy(A[term, line], target, disable_tma=True)
    else:
        T.copy(A[line, term], target, disable_tma=True)


@T.macro
def _fetch_stage(A, target, stage, line, term, extent, depth, depth_first):
    """The same into `stage` of target, on its way when this returns."""
    if depth_first:
        T.async_copy(A[term : term + depth, line : line + extent], target[stage, :, :])
    else:
        T.async_copy(A[line : line + extent, term : term + depth], target[stage, :, :])


@T.macro
def multiply_tiles(
    A,
    B,
    a,
    b,
    sums,
    row,
    column,
    k,
    trans_a,
    trans_b,
    shape,
    stages,
    stream,
    first=0,
    policy=T.GemmWarpPolicy.Square,
):
    """Sums += A[row :, :] B[:, column :] over k terms from `first` on, in tiles of `shape`, (rows, columns, depth).

    A is stored (m, k), or (k, m) if trans_a; B (k, n), or (n, k) if trans_b. a and b are made by operand_tile.
    """
    steps = T.cast(T.ceildiv(k, shape[2]), "int32")
    if stream == "async":
        for stage in T.unroll(stages - 1):
            _fetch_stage(A, a, stage, row, first + stage * shape[2], shape[0], shape[2], trans_a)
            _fetch_stage(B, b, stage, column, first + stage * shape[2], shape[1], shape[2], not trans_b)
        for step in T.serial(steps):
            ahead = step + stages - 1
            _fetch_stage(A, a, ahead % stages, row, first + ahead * shape[2], shape[0], shape[2], trans_a)
            _fetch_stage(B, b, ahead % stages, column, first + ahead * shape[2], shape[1], shape[2], not trans_b)
            T.ptx_wait_group(2 * (stages - 1))
            T.sync_threads()
            T.gemm(a[step % stages, :, :], b[step % stages, :, :], sums, transpose_A=trans_a, transpose_B=trans_b)
            T.sync_threads()
    else:
        for step in T.Pipelined(steps, num_stages=stages):
            _fetch(A, a, row, first + step * shape[2], trans_a, stream)
            _fetch(B, b, column, first + step * shape[2], not trans_b, stream)
            T.gemm(a, b, sums, transpose_A=trans_a, transpose_B=trans_b, policy=policy)


@T.macro
def multiply_tile_pairs(A, B, a, b, c, sums, others, row, column, other, k, shape, stages, stream, turned=False):
    """Sums += A[row :, :] B[column :, :]^T and others += A[row :, :] B[other :, :]^T; A is read once for both.

    `turned`: both sums are transposed; not for "async".
    """
    steps = T.cast(T.ceildiv(k, shape[2]), "int32")
    if stream == "async":
        for stage in T.unroll(stages - 1):
            _fetch_stage(A, a, stage, row, stage * shape[2], shape[0], shape[2], False)
            _fetch_stage(B, b, stage, column, stage * shape[2], shape[1], shape[2], False)
            _fetch_stage(B, c, stage, other, stage * shape[2], shape[1], shape[2], False)
        for step in T.serial(steps):
            ahead = step + stages - 1
            _fetch_stage(A, a, ahead % stages, row, ahead * shape[2], shape[0], shape[2], False)
            _fetch_stage(B, b, ahead % stages, column, ahead * shape[2], shape[1], shape[2], False)
            _fetch_stage(B, c, ahead % stages, other, ahead * shape[2], shape[1], shape[2], False)
            T.ptx_wait_group(3 * (stages - 1))
            T.sync_threads()
            T.gemm(a[step % stages, :, :], b[step % stages, :, :], sums, transpose_B=True)
            T.gemm(a[step % stages, :, :], c[step % stages, :, :], others, transpose_B=True)
            T.sync_threads()
    else:
        for step in T.Pipelined(steps, num_stages=stages):
            _fetch(A, a, row, step * shape[2], False, stream)
            _fetch(B, b, column, step * shape[2], False, stream)
            _fetch(B, c, other, step * shape[2], False, stream)
            if turned:
                T.gemm(b, a, sums, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.gemm(c, a, others, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            else:
                T.gemm(a, b, sums, transpose_B=True)
                T.gemm(a, c, others, transpose_B=True)


@T.macro
def multiply_stacked_tiles(A, B, a, b, sums, row, column, other, k, shape, stages):
    """Sums += A[row :, :] times as many rows of B from `column` on and, behind them, from `other` on, transposed.

    On Hopper. `shape` is (rows, columns, depth) with `columns` of each; b and sums hold both, so that one instruction
    multiplies 256 columns of two tiles of 128.
    """
    for step in T.Pipelined(T.cast(T.ceildiv(k, shape[2]), "int32"), num_stages=stages):
        T.copy(A[T.cast(row, "int32"), step * shape[2]], a)
        T.copy(B[T.cast(column, "int32"), step * shape[2]], b[0 : shape[1], :])
        T.copy(B[T.cast(other, "int32"), step * shape[2]], b[shape[1] : 2 * shape[1], :])
        T.gemm(a, b, sums, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)


def gated(activation, gate, factor):
    """activation(gate) * factor: silu, or the exact gelu, whose erfc keeps the accuracy of its tail."""
    if activation == "silu_and_mul":
        return gate / (T.float32(1) + T.exp(-gate)) * factor
    tail = T.call_pure_extern("float32", "erfcf", gate * T.float32(-0.7071067811865476))
    return gate * T.float32(0.5) * tail * factor


@T.macro
def gate_tile(activation, sums, others, rows, columns):
    """Sums = activation(sums) * others; see gated."""
    for i, j in T.Parallel(rows, columns):
        sums[i, j] = gated(activation, sums[i, j], others[i, j])


def product_tiles(
    dtype, trans_a, trans_b, stream, n, k, vector, rows, columns, depth, stages, threads, activation="none"
):
    """The program D = A B, summed in float32; parameters A, B, D; size m, and n and k where they are given as 0.

    A is stored (m, k), or (k, m) if trans_a; B (k, n), or (n, k) if trans_b; D (m, n). The extent along which each of
    them is stored is a multiple of `vector` elements. A block makes `rows` x `columns` of D from `depth` terms at a
    time, of which `stages` are in shared memory or on their way there. With an activation B, under trans_b, is
    (2 n, k), gates above: D = activation(gate) * up.
    """
    paired = activation != "none"
    lines = T.dynamic("lines", "int64") if paired and not n else 2 * n if paired else 0
    m, n, k = T.dynamic("m", "int64"), n or T.dynamic("n", "int64"), k or T.dynamic("k", "int64")
    shape = (rows, columns, depth)

    @T.prim_func
    def tiles(
        A: T.Tensor[((k, m) if trans_a else (m, k)), dtype],
        B: T.Tensor[((lines if paired else n, k) if trans_b else (k, n)), dtype],
        D: T.Tensor[(m, n), dtype],
    ):
        with T.Kernel(T.ceildiv(m, rows), *column_grid(n, columns), threads=threads) as (row_tile, near, far):
            T.assume((m if trans_a else k) % vector == 0)
            T.assume((k if trans_b else n) % vector == 0)
            T.assume(n % vector == 0)
            a = operand_tile(rows, depth, stages, stream, trans_a, dtype)
            b = operand_tile(columns, depth, stages, stream, not trans_b, dtype)
            sums = T.alloc_fragment((rows, columns), "float32")
            row = T.cast(row_tile, "int64") * rows
            column = column_of(near, far, columns)
            T.clear(sums)
            if paired:
                c = operand_tile(columns, depth, stages, stream, False, dtype)
                others = T.alloc_fragment((rows, columns), "float32")
                T.clear(others)
                multiply_tile_pairs(A, B, a, b, c, sums, others, row, column, column + n, k, shape, stages, stream)
                gate_tile(activation, sums, others, rows, columns)
            else:
                multiply_tiles(A, B, a, b, sums, row, column, k, trans_a, trans_b, shape, stages, stream)
            T.copy(sums, D[row, column])

    return tiles


def product_parts(dtype, trans_a, trans_b, stream, vector, rows, columns, depth, stages, threads):
    """The program P[s] = part s of A B, for a product of few tiles; parameters A, B, P (parts, m, n) float32, each.

    As product_tiles, but blocks share the terms of a tile: part s has the terms from s * each on, `each` of them or as
    many as there are. `each` is a multiple of `depth`.
    """
    parts = T.dynamic("parts", "int32")
    m, n, k = T.dynamic("m", "int64"), T.dynamic("n", "int64"), T.dynamic("k", "int64")
    shape = (rows, columns, depth)

    @T.prim_func
    def tiles(
        A: T.Tensor[((k, m) if trans_a else (m, k)), dtype],
        B: T.Tensor[((n, k) if trans_b else (k, n)), dtype],
        P: T.Tensor[(parts, m, n), "float32"],
        each: T.int32,
    ):
        with T.Kernel(T.ceildiv(m, rows) * parts, *column_grid(n, columns), threads=threads) as (index, near, far):
            T.assume((m if trans_a else k) % vector == 0)
            T.assume((k if trans_b else n) % vector == 0)
            T.assume(n % vector == 0)
            a = operand_tile(rows, depth, stages, stream, trans_a, dtype)
            b = operand_tile(columns, depth, stages, stream, not trans_b, dtype)
            sums = T.alloc_fragment((rows, columns), "float32")
            part = T.cast(T.truncmod(index, parts), "int32")
            row = T.cast(T.truncdiv(index, parts), "int64") * rows
            column = column_of(near, far, columns)
            first = part * each
            terms = T.max(T.min(k - first, each), 0)
            T.clear(sums)
            multiply_tiles(A, B, a, b, sums, row, column, terms, trans_a, trans_b, shape, stages, stream, first)
            for i, j in T.Parallel(rows, columns):
                if row + i < m and column + j < n:
                    P[part, row + i, column + j] = sums[i, j]

    return tiles


def add_parts(dtype, vector, threads):
    """The program D = the sum of P's parts, in their order, rounded once; parameters P (parts, count) float32, D."""
    parts, count = T.dynamic("parts", "int32"), T.dynamic("count", "int64")

    @T.prim_func
    def add(P: T.Tensor[(parts, count), "float32"], D: T.Tensor[(count,), dtype]):
        with T.Kernel(T.ceildiv(count, vector * threads), threads=threads) as block:
            T.assume(count % vector == 0)
            total = T.alloc_local((vector,), "float32")
            place = (T.cast(block, "int64") * threads + T.get_thread_binding(0)) * vector
            if place < count:
                for v in T.unroll(vector):
                    total[v] = T.float32(0)
                for part in T.serial(parts):
                    for v in T.vectorized(vector):
                        total[v] += P[part, place + v]
                for v in T.vectorized(vector):
                    D[place + v] = T.cast(total[v], dtype)

    return add
