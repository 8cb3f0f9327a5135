"""BatchNorm on CUDA: a block for each channel, or partial statistics, their merge, and the pass that normalises.

x is seen as `macros/cuda_planes.py` says. All sizes are dynamic, and offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_moments import add_vectors, clear_moments, merge_moments, moments_over_lanes
from tileops_kernels.macros.cuda_planes import plane_blocks, plane_place, read_channel, read_plane, write_channel
from tileops_kernels.macros.cuda_rows import KEEP_PACKED, READ_ONCE, WRITE_ONCE, fills_access, warps_of, write_once

WARP = 32
GROUP = 4
"""Channels whose partial statistics one block merges, a warp for each."""


@T.macro
def read_affine(affine, W, B, channel, flags):
    """affine[2:4] = the weight and the bias of a channel, 1 and 0 where `flags` says that they are not to be read."""
    affine[2] = T.float32(1)
    affine[3] = T.float32(0)
    if flags & 1 != 0:
        affine[2] = W[channel]
    if flags & 2 != 0:
        affine[3] = B[channel]


@T.macro
def normalize_vector(x, k, vector, affine, dtype):
    """x[k, :] = (x[k, :] - mean) * scale * weight + bias; `affine` holds these four."""
    for v in T.unroll(vector):
        scaled = (T.cast(x[k, v], "float32") - affine[0]) * affine[1]
        x[k, v] = T.cast(scaled * affine[2] + affine[3], dtype)


@T.macro
def move_statistics(M, V, channel, moments, mean, momentum):
    """Move running statistics by `momentum` to the mean, and to the variance divided by one element less."""
    variance = moments[2] / (moments[0] - T.float32(1))
    M[channel] = momentum * mean + (T.float32(1) - momentum) * M[channel]
    V[channel] = momentum * variance + (T.float32(1) - momentum) * V[channel]


@T.macro
def normalize_planes(X, W, B, S, Q, Y, eps, flags, batch, channels, length, sizes, dtype, squared, large=False):
    """Y = (X - mean) * scale * W + B in parts of planes; `sizes` is (vector, lanes, slots, unroll).

    S holds the means. Q holds the variances where they are `squared` deviations to which eps is added, else the scales.
    Of a `large` map blocks go along channels before they go through them, and results are written past the caches.
    """
    vector, lanes, slots, unroll = sizes
    blocks = plane_blocks(batch, channels, length, lanes, slots, unroll)
    with T.Kernel(blocks, threads=slots * lanes, prelude=READ_ONCE + WRITE_ONCE) as block:
        thread = T.get_thread_binding(0)
        slot, lane = thread // lanes, thread % lanes
        entry, channel, first = plane_place(block, slot, lane, batch, channels, length, lanes, slots, unroll, large)
        x = T.alloc_local((unroll, vector), dtype)
        affine = T.alloc_local((4,), "float32")
        if entry < batch:
            read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, True, fills_access(vector, dtype))
            affine[0] = S[channel]
            affine[1] = Q[channel]
            if squared:
                affine[1] = T.rsqrt(affine[1] + eps)
            read_affine(affine, W, B, channel, flags)
            for k in T.unroll(unroll):
                if first + k * lanes < length:
                    normalize_vector(x, k, vector, affine, dtype)
                    if large and fills_access(vector, dtype):
                        offset = ((entry * channels + channel) * length + first + k * lanes) * vector
                        write_once(x, k * vector, Y, offset)
                    else:
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


def batch_norm_channels(dtype, vector, threads, unroll, blocks):
    """Training with a block for each channel; parameters X, W, B, M, V, Y, eps, momentum, flags.

    A channel is read in turns, and again in the other order; what the last turn has read stays in registers, so that a
    channel of one turn is read once. Where bit 4 of `flags` is set, the running statistics M and V are moved by
    `momentum`; the other bits are as in batch_norm_inference. A channel has fewer vectors than int32 counts, and at
    least `blocks` blocks fit on a multiprocessor, which bounds the registers of a thread.
    """
    batch = T.dynamic("batch", "int64")
    channels = T.dynamic("channels", "int64")
    length = T.dynamic("length", "int64")
    packed = fills_access(vector, dtype)

    @T.prim_func
    def normalize(
        X: T.Tensor[(batch, channels, length, vector), dtype],
        W: T.Tensor[(channels,), "float32"],
        B: T.Tensor[(channels,), "float32"],
        M: T.Tensor[(channels,), "float32"],
        V: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[(batch, channels, length, vector), dtype],
        eps: T.float32,
        momentum: T.float32,
        flags: T.int32,
    ):
        with T.Kernel(channels, threads=threads, prelude=KEEP_PACKED) as block:
            thread = T.get_thread_binding(0)
            channel = T.cast(block, "int64")
            plane = T.cast(length, "int32")
            count = T.cast(batch * length, "int32")
            turns = T.ceildiv(count, threads * unroll)
            x = T.alloc_local((unroll, vector), dtype)
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            affine = T.alloc_local((4,), "float32")
            means = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            squares = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            read_affine(affine, W, B, channel, flags)
            clear_moments(moments)
            for turn in T.serial(turns):
                first = turn * (threads * unroll) + thread
                read_channel(x, unroll, vector, X, channel, first, threads, plane, count)
                add_vectors(moments, chunk, x, unroll, vector, first, threads, count, False, True, packed)
            moments_over_lanes(moments, sums, means, squares, 0, thread, threads)
            affine[0] = moments[1] + sums[1]
            affine[1] = T.rsqrt(moments[2] / moments[0] + eps)
            if flags & 4 != 0 and thread == 0:
                move_statistics(M, V, channel, moments, affine[0], momentum)
            for turn in T.serial(turns):
                first = (turns - 1 - turn) * (threads * unroll) + thread
                if turn > 0:
                    read_channel(x, unroll, vector, X, channel, first, threads, plane, count)
                for k in T.unroll(unroll):
                    if first + k * threads < count:
                        normalize_vector(x, k, vector, affine, dtype)
                        write_channel(x, k, vector, Y, channel, first, threads, plane)

    return normalize


def batch_norm_training(dtype, vector, lanes, slots, unroll, depth, large):
    """Normalise by the batch's own statistics; parameters X, W, B, M, V, P, S, Q, Y, eps, momentum, flags.

    P (splits, channels, 3), S (channels,) and Q (channels,), all float32, are for the partial statistics, the means and
    the scales. `flags` is as in batch_norm_channels. A thread that forms statistics reads `depth` vectors at a time,
    and four of its blocks fit on a multiprocessor. Blocks go through channels before they go along them. Of `large`
    maps, of which caches hold little, they go along channels first, read statistics past the caches and write so too.
    """
    batch = T.dynamic("batch", "int64")
    channels = T.dynamic("channels", "int64")
    length = T.dynamic("length", "int64")
    splits = T.dynamic("splits", "int64")
    threads = slots * lanes
    packed = fills_access(vector, dtype)

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
        with T.Kernel(splits * channels, threads=threads, prelude=KEEP_PACKED) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            between = T.cast(splits if large else channels, "int32")
            quotient = T.truncdiv(T.cast(block, "int32"), between)
            remainder = T.truncmod(T.cast(block, "int32"), between)
            split = remainder if large else quotient
            channel = T.cast(quotient if large else remainder, "int64")
            parts = T.cast(T.ceildiv(length, lanes * depth), "int32")
            pieces = T.cast(T.ceildiv(batch, slots), "int32") * parts
            step = T.cast(splits, "int32")
            turns = T.truncdiv(pieces + step - 1 - (0 if large else split), step)
            x = T.alloc_local((depth, vector), dtype)
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            means = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            squares = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            T.annotate_min_blocks_per_sm(4)
            clear_moments(moments)
            for turn in T.serial(turns):
                piece = split * turns + turn if large else turn * step + split
                entry = T.cast(T.truncdiv(piece, parts), "int64") * slots + slot
                first = T.cast(T.truncmod(piece, parts), "int64") * (lanes * depth) + lane
                once = large and packed
                read_plane(x, depth, vector, X, entry, channel, first, lanes, length, entry < batch, once)
                add_vectors(moments, chunk, x, depth, vector, first, lanes, length, False, entry < batch, packed)
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
                    move_statistics(M, V, channel, moments, mean, momentum)
        sizes = (vector, lanes, slots, unroll)
        normalize_planes(X, W, B, S, Q, Y, eps, flags, batch, channels, length, sizes, dtype, False, large)

    return normalize
