"""BatchNorm on CUDA: partial statistics of each channel, their merge, and the pass that normalises.

x is seen as (batch, channels, length, vector): `length` vectors of `vector` elements make a channel's plane, its
elements of one batch entry. A block has `slots * lanes` threads; its lanes lie along a plane and its slots along the
batch, so that short planes fill a block too. All sizes are dynamic, and offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_moments import add_vectors, clear_moments, merge_moments, moments_over_lanes
from tileops_kernels.macros.cuda_rows import warps_of

WARP = 32
GROUP = 4
"""Channels whose partial statistics one block merges, a warp for each."""


@T.macro
def read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, present):
    """x[k, :] = vector first + k * lanes of a plane, where it has that many and the batch that entry (`present`)."""
    for k in T.unroll(unroll):
        if present and first + k * lanes < length:
            for v in T.vectorized(vector):
                x[k, v] = X[entry, channel, first + k * lanes, v]


@T.macro
def normalize_planes(X, W, B, S, Q, Y, eps, flags, batch, channels, length, sizes, dtype, squared):
    """Y = (X - mean) * scale * W + B in parts of planes; `sizes` is (vector, lanes, slots, unroll).

    S holds the means. Q holds the variances where they are `squared` deviations to which eps is added, else the scales.
    """
    vector, lanes, slots, unroll = sizes
    planes = batch * channels
    parts = T.ceildiv(length, lanes * unroll)
    with T.Kernel(T.ceildiv(planes, slots) * parts, threads=slots * lanes) as block:
        thread = T.get_thread_binding(0)
        slot, lane = thread // lanes, thread % lanes
        plane = T.truncdiv(T.cast(block, "int64"), parts) * slots + slot
        first = T.truncmod(T.cast(block, "int64"), parts) * (lanes * unroll) + lane
        channel = T.truncmod(plane, channels)
        entry = T.truncdiv(plane, channels)
        x = T.alloc_local((unroll, vector), dtype)
        affine = T.alloc_local((4,), "float32")
        if plane < planes:
            read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, True)
            affine[0] = S[channel]
            affine[1] = Q[channel]
            affine[2] = T.float32(1)
            affine[3] = T.float32(0)
            if squared:
                affine[1] = T.rsqrt(affine[1] + eps)
            if flags & 1 != 0:
                affine[2] = W[channel]
            if flags & 2 != 0:
                affine[3] = B[channel]
            for k in T.unroll(unroll):
                if first + k * lanes < length:
                    for v in T.unroll(vector):
                        scaled = (T.cast(x[k, v], "float32") - affine[0]) * affine[1]
                        x[k, v] = T.cast(scaled * affine[2] + affine[3], dtype)
                    for v in T.vectorized(vector):
                        Y[entry, channel, first + k * lanes, v] = x[k, v]


def batch_norm_inference(dtype, vector, lanes, slots, unroll):
    """Normalise by given statistics; parameters X, mean, variance, W, B, Y, eps, flags.

    `flags` has bit 1 set where W is to be read, and bit 2 where B is; a tensor that is not may be any of its shape.
    """
    batch = T.dynamic("batch", "int64")
    channels = T.dynamic("channels", "int64")
    length = T.dynamic("length", "int64")

    @T.prim_func
    def normalize(
        X: T.Tensor[(batch, channels, length, vector), dtype],
        S: T.Tensor[(channels,), "float32"],
        Q: T.Tensor[(channels,), "float32"],
        W: T.Tensor[(channels,), "float32"],
        B: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[(batch, channels, length, vector), dtype],
        eps: T.float32,
        flags: T.int32,
    ):
        normalize_planes(
            X, W, B, S, Q, Y, eps, flags, batch, channels, length, (vector, lanes, slots, unroll), dtype, True
        )

    return normalize


def batch_norm_training(dtype, vector, lanes, slots, unroll):
    """Normalise by the batch's own statistics; parameters X, W, B, M, V, P, S, Q, Y, eps, momentum, flags.

    P (splits, channels, 3), S (channels,) and Q (channels,), all float32, are for the partial statistics, the means and
    the scales. Where bit 4 of `flags` is set, the running statistics M and V are moved by `momentum`. The other bits
    are as in batch_norm_inference.
    """
    batch = T.dynamic("batch", "int64")
    channels = T.dynamic("channels", "int64")
    length = T.dynamic("length", "int64")
    splits = T.dynamic("splits", "int64")
    threads = slots * lanes

    @T.prim_func
    def normalize(
        X: T.Tensor[(batch, channels, length, vector), dtype],
        W: T.Tensor[(channels,), "float32"],
        B: T.Tensor[(channels,), "float32"],
        M: T.Tensor[(channels,), "float32"],
        V: T.Tensor[(channels,), "float32"],
        P: T.Tensor[(splits, channels, 3), "float32"],
        S: T.Tensor[(channels,), "float32"],
        Q: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[(batch, channels, length, vector), dtype],
        eps: T.float32,
        momentum: T.float32,
        flags: T.int32,
    ):
        with T.Kernel(splits * channels, threads=threads) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            split = T.truncdiv(T.cast(block, "int64"), channels)
            channel = T.truncmod(T.cast(block, "int64"), channels)
            parts = T.ceildiv(length, lanes * unroll)
            pieces = T.ceildiv(batch, slots) * parts
            x = T.alloc_local((unroll, vector), dtype)
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            means = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            squares = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            clear_moments(moments)
            for turn in T.serial(T.truncdiv(pieces - split + splits - 1, splits)):
                piece = turn * splits + split
                entry = T.truncdiv(piece, parts) * slots + slot
                first = T.truncmod(piece, parts) * (lanes * unroll) + lane
                read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, entry < batch)
                add_vectors(moments, chunk, x, unroll, vector, first, lanes, length, False, entry < batch, False)
            moments_over_lanes(moments, sums, means, squares, 0, thread, threads)
            if thread == 0:
                P[split, channel, 0] = moments[0]
                P[split, channel, 1] = moments[1] + sums[1]
                P[split, channel, 2] = moments[2]
        with T.Kernel(T.ceildiv(channels, GROUP), threads=GROUP * WARP) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // WARP, thread % WARP
            channel = T.cast(block, "int64") * GROUP + slot
            moments = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            means = T.alloc_shared((GROUP, 2), "float32")
            squares = T.alloc_shared((GROUP, 2), "float32")
            clear_moments(moments)
            if channel < channels:
                for turn in T.serial(T.truncdiv(splits - lane + WARP - 1, WARP)):
                    split = turn * WARP + lane
                    merge_moments(moments, P[split, channel, 0], P[split, channel, 1], P[split, channel, 2])
            moments_over_lanes(moments, sums, means, squares, slot, lane, WARP)
            if channel < channels and lane == 0:
                mean = moments[1] + sums[1]
                S[channel] = mean
                Q[channel] = T.rsqrt(moments[2] / moments[0] + eps)
                if flags & 4 != 0:
                    variance = moments[2] / (moments[0] - T.float32(1))
                    M[channel] = momentum * mean + (T.float32(1) - momentum) * M[channel]
                    V[channel] = momentum * variance + (T.float32(1) - momentum) * V[channel]
        normalize_planes(
            X, W, B, S, Q, Y, eps, flags, batch, channels, length, (vector, lanes, slots, unroll), dtype, False
        )

    return normalize
