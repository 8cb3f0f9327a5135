"""Norms over rows on CUDA: rows held in registers, and rows read twice in chunks.

`rows` rows share a block of `rows * lanes` threads; vector `k` of a row belongs to thread `k % lanes`. Row offsets are
64 bits wide. A mean is kept in two parts, so that rows whose mean is large against their spread lose no digits.

What is normalised is X, or where `added` X + R in float32, which is also written to S, rounded. A row is divided by its
standard deviation about the mean where `centered`, else by its root mean square; then come the product with W if
`weighted`, the sum with B if `biased` and the product with G if `gated`. Each of these has a row for every row of X
where `modulated`, or where a row consists of `span` channels an element for each channel, in rows for the groups of
channels that follow each other; else it has one row that all share. Their dtype is `scales`, or that of the rows.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_moments import (
    add_differences_of_vectors,
    add_vectors,
    clear_moments,
    moments_over_lanes,
)
from tileops_kernels.macros.cuda_rows import (
    KEEP_PACKED,
    KEEP_RESULTS,
    READ_ONCE,
    add_over_lanes,
    add_squares,
    fills_access,
    keep_packed,
    read_parameter,
    read_vectors,
    result_policy,
    warps_of,
    write_vector,
)
from tileops_kernels.macros.row_signatures import program_of_rows


@T.macro
def read_sums(x, a, r, steps, vector, X, R, row, first, step, n, whole, present, once):
    """x[k, :] = X + R in float32, of the elements that read_vectors reads; `a` and `r` are for those."""
    read_vectors(a, steps, vector, X, row, first, step, n, whole, present, once)
    read_vectors(r, steps, vector, R, row, first, step, n, whole, present, once)
    for k in T.unroll(steps):
        if (whole or first + k * step < n) and present:
            for v in T.unroll(vector):
                x[k, v] = T.cast(a[k, v], "float32") + T.cast(r[k, v], "float32")


@T.macro
def write_sums(x, a, steps, vector, S, row, first, step, n, whole, present, dtype, policy=None):
    """Write x, rounded by way of `a`, to where read_vectors reads it."""
    for k in T.unroll(steps):
        for v in T.unroll(vector):
            a[k, v] = T.cast(x[k, v], dtype)
        write_vector(a, k, vector, S, row, first, step, n, whole, present, policy)


@T.macro
def read_scales(w, steps, vector, source, row, first, step, n, whole, present, modulated, span):
    """w[k, :] = what `source` has for the elements that read_vectors reads; of `span` channels w[k, 0] alone."""
    if modulated:
        read_vectors(w, steps, vector, source, row, first, step, n, whole, present)
    elif span:
        group = T.truncmod(row, source.shape[0])
        for k in T.unroll(steps):
            if whole or first + k * step < n:
                w[k, 0] = source[group, T.truncdiv(first + k * step, n // span)]
    else:
        read_parameter(w, steps, vector, source, first, step, n, whole)


@T.macro
def spread_over_lanes(moments, sums, means, squares, slot, lane, lanes, n, centered):
    """moments[2] = the sum of squares over all threads of a row, about the mean moments[1] + sums[1] if `centered`.

    As for add_over_lanes, every thread of the block must arrive here. Without a mean, sums[0] has a thread's squares.
    """
    if centered:
        moments_over_lanes(moments, sums, means, squares, slot, lane, lanes, T.float32(n))
    else:
        add_over_lanes(sums, squares, slot, lane, lanes)
        moments[2] = sums[0]


@T.macro
def scale_vector(
    y, x, k, vector, moments, sums, scale, w, b, g, dtype, weighted, biased, gated, centered, span, lean=False
):
    """y[k, :] = x[k, :] normalised, scaled, shifted and gated, in float32 and rounded once; y may be x.

    A vector has one weight and one bias where a row is made of `span` channels. Where `lean`, sums[1], the second part
    of the mean, has been multiplied by the scale.
    """
    for v in T.unroll(vector):
        value = T.cast(x[k, v], "float32")
        if lean:
            value = (value - moments[1]) * scale - sums[1]
        else:
            if centered:
                value = value - moments[1] - sums[1]
            value = value * scale
        if weighted:
            value = value * T.cast(w[k, 0 if span else v], "float32")
        if biased:
            value = value + T.cast(b[k, 0 if span else v], "float32")
        if gated:
            value = value * T.cast(g[k, v], "float32")
        y[k, v] = T.cast(value, dtype)


def _parameter_shape(m, n, modulated, span):
    """The shape of what scales, shifts and gates."""
    if span:
        return T.dynamic("groups", "int64"), span
    return (m, n) if modulated else (n,)


def row_norm_on_chip(
    n,
    dtype,
    vector,
    lanes,
    rows,
    blocks,
    weighted,
    biased=False,
    gated=False,
    centered=True,
    added=False,
    modulated=False,
    span=0,
    scales=None,
    lean=False,
    late=False,
):
    """Rows of `n` elements in registers; the parameters are those of program_of_rows, and the size is m.

    `vector` elements take at most 16 bytes. At least `blocks` blocks fit on a multiprocessor, which bounds the
    registers of a thread. Scales and shifts are read before the sums are known, which hides their latency, or else
    `late`. Where `lean`, means are those of differences from an element, which takes fewer instructions; no sum is then
    `added`.
    """
    m = T.dynamic("m", "int64")
    steps = -(-n // (vector * lanes))
    step = vector * lanes
    whole = n % step == 0
    scales = scales or dtype
    each = 1 if span else vector
    packed = not added and fills_access(vector, dtype)

    @T.macro
    def normalize(X, R, W, B, G, Y, S, eps):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes, prelude=KEEP_PACKED + KEEP_RESULTS) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            first = lane * vector
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((steps, vector), "float32" if added else dtype)
            a = T.alloc_local((steps, vector), dtype)
            w = T.alloc_local((steps, each), scales)
            b = T.alloc_local((steps, each), scales)
            g = T.alloc_local((steps, vector), scales)
            r = b if scales == dtype else T.alloc_local((steps, vector), dtype)
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            means = T.alloc_shared((rows, 2 * warps_of(lanes)), "float32")
            squares = T.alloc_shared((rows, 2 * warps_of(lanes)), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            policy = result_policy(m * n, vector, dtype)
            if added:
                read_sums(x, a, r, steps, vector, X, R, row, first, step, n, whole, rows == 1 or row < m, False)
                write_sums(x, a, steps, vector, S, row, first, step, n, whole, rows == 1 or row < m, dtype, policy)
            else:
                read_vectors(x, steps, vector, X, row, first, step, n, whole, rows == 1 or row < m)
            if weighted and not late:
                read_scales(w, steps, vector, W, row, first, step, n, whole, rows == 1 or row < m, modulated, span)
            if biased and not late:
                read_scales(b, steps, vector, B, row, first, step, n, whole, rows == 1 or row < m, modulated, span)
            if gated:
                read_scales(g, steps, vector, G, row, first, step, n, whole, rows == 1 or row < m, modulated, span)
            clear_moments(moments)
            sums[0] = T.float32(0)
            if centered and lean:
                add_differences_of_vectors(moments, chunk, x, steps, vector, first, step, n, whole, True)
            elif centered:
                add_vectors(moments, chunk, x, steps, vector, first, step, n, whole, True, packed, apart=True)
            else:
                add_squares(sums, x, steps, vector, first, step, n, whole)
            spread_over_lanes(moments, sums, means, squares, slot, lane, lanes, n, centered)
            scale = T.rsqrt(moments[2] / n + eps)
            if lean:
                sums[1] *= scale
            if weighted and late:
                read_scales(w, steps, vector, W, row, first, step, n, whole, rows == 1 or row < m, modulated, span)
            if biased and late:
                read_scales(b, steps, vector, B, row, first, step, n, whole, rows == 1 or row < m, modulated, span)
            for k in T.unroll(steps):
                if added:
                    scale_vector(
                        a, x, k, vector, moments, sums, scale, w, b, g, dtype, weighted, biased, gated, centered, span
                    )
                    write_vector(a, k, vector, Y, row, first, step, n, whole, rows == 1 or row < m, policy)
                else:
                    if packed:
                        keep_packed(x, k)
                    scale_vector(
                        x,
                        x,
                        k,
                        vector,
                        moments,
                        sums,
                        scale,
                        w,
                        b,
                        g,
                        dtype,
                        weighted,
                        biased,
                        gated,
                        centered,
                        span,
                        lean,
                    )
                    write_vector(x, k, vector, Y, row, first, step, n, whole, rows == 1 or row < m, policy)

    parameter = _parameter_shape(m, n, modulated, span)
    return program_of_rows(normalize, (m, n), parameter, dtype, scales, weighted, biased, added, gated)


def row_norm_streaming(
    n,
    dtype,
    vector,
    lanes,
    rows,
    unroll,
    weighted,
    biased=False,
    gated=False,
    centered=True,
    added=False,
    modulated=False,
    span=0,
    scales=None,
):
    """Rows of `n` elements read twice, `unroll` vectors a thread at a time; otherwise as row_norm_on_chip.

    The second reading goes backwards, so that it begins with what the caches still hold.
    """
    m = T.dynamic("m", "int64")
    step = vector * lanes
    length = step * unroll
    chunks = -(-n // length)
    whole = n % length == 0
    once = fills_access(vector, dtype)
    scales = scales or dtype
    each = 1 if span else vector

    @T.macro
    def normalize(X, R, W, B, G, Y, S, eps):
        with T.Kernel(T.ceildiv(m, rows), threads=rows * lanes, prelude=READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            row = T.cast(block, "int64") * rows + slot
            x = T.alloc_local((unroll, vector), "float32" if added else dtype)
            a = T.alloc_local((unroll, vector), dtype)
            w = T.alloc_local((unroll, each), scales)
            b = T.alloc_local((unroll, each), scales)
            g = T.alloc_local((unroll, vector), scales)
            r = b if scales == dtype else T.alloc_local((unroll, vector), dtype)
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            means = T.alloc_shared((rows, 2 * warps_of(lanes)), "float32")
            squares = T.alloc_shared((rows, 2 * warps_of(lanes)), "float32")
            clear_moments(moments)
            sums[0] = T.float32(0)
            for c in T.serial(chunks):
                first = c * length + lane * vector
                if added:
                    read_sums(x, a, r, unroll, vector, X, R, row, first, step, n, whole, rows == 1 or row < m, False)
                    write_sums(x, a, unroll, vector, S, row, first, step, n, whole, rows == 1 or row < m, dtype)
                else:
                    read_vectors(x, unroll, vector, X, row, first, step, n, whole, rows == 1 or row < m)
                if centered:
                    add_vectors(moments, chunk, x, unroll, vector, first, step, n, whole, True, False)
                else:
                    add_squares(sums, x, unroll, vector, first, step, n, whole)
            spread_over_lanes(moments, sums, means, squares, slot, lane, lanes, n, centered)
            scale = T.rsqrt(moments[2] / n + eps)
            for back in T.serial(chunks):
                first = (chunks - 1 - back) * length + lane * vector
                if added:
                    read_sums(x, a, r, unroll, vector, X, R, row, first, step, n, whole, rows == 1 or row < m, once)
                else:
                    read_vectors(x, unroll, vector, X, row, first, step, n, whole, rows == 1 or row < m, once)
                if weighted:
                    read_scales(w, unroll, vector, W, row, first, step, n, whole, rows == 1 or row < m, modulated, span)
                if biased:
                    read_scales(b, unroll, vector, B, row, first, step, n, whole, rows == 1 or row < m, modulated, span)
                if gated:
                    read_scales(g, unroll, vector, G, row, first, step, n, whole, rows == 1 or row < m, modulated, span)
                for k in T.unroll(unroll):
                    scale_vector(
                        a, x, k, vector, moments, sums, scale, w, b, g, dtype, weighted, biased, gated, centered, span
                    )
                    write_vector(a, k, vector, Y, row, first, step, n, whole, rows == 1 or row < m)

    parameter = _parameter_shape(m, n, modulated, span)
    return program_of_rows(normalize, (m, n), parameter, dtype, scales, weighted, biased, added, gated)
