"""BatchNorm on CUDA: a block for each channel, or partial statistics, their merge, and the pass that normalises.

x is seen as `macros/cuda_planes.py` says. All sizes are dynamic, and offsets are 64 bits wide. Weights and biases are
of dtype `scales`.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_channels import (
    move_statistics,
    move_to_means,
    normalize_vector,
    read_affine,
    read_running,
    settle_affine,
    unbiased,
)
from tileops_kernels.macros.cuda_moments import add_vectors, clear_moments, merge_moments, moments_over_lanes
from tileops_kernels.macros.cuda_planes import (
    LARGE_LANES,
    grid_place,
    plane_blocks,
    plane_grid,
    plane_place,
    read_channel,
    read_plane,
    split_place,
    split_turns,
    turn_place,
    write_channel,
    write_plane,
)
from tileops_kernels.macros.cuda_rows import KEEP_PACKED, READ_ONCE, fills_access, warps_of

WARP = 32
GROUP = 4
"""Channels whose partial statistics one block merges, a warp for each."""
INSTANCE_WARPS = 8
"""Warps that merge those of the instances of one channel, each in turn."""
LARGE_UNROLL = 1
"""Vectors of a thread that normalises a large map."""


@T.macro
def normalize_part(X, W, B, S, Q, Y, eps, flags, entry, channel, first, length, sizes, dtype, squared, instances, once):
    """Y = (X - mean) * scale * W + B of a thread's vectors of one plane; `sizes` is (vector, lanes, unroll).

    The others are as in normalize_planes; vectors are read past the caches where `once`, which takes 16 bytes.
    """
    vector, lanes, unroll = sizes
    x = T.alloc_local((unroll, vector), dtype)
    affine = T.alloc_local((4,), "float32")
    given = T.alloc_local((2,), W.dtype)
    read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, True, once)
    affine[0] = S[channel]
    affine[1] = Q[channel]
    read_affine(given, W, B, T.truncmod(channel, W.shape[0]) if instances else channel, flags)
    if squared:
        affine[1] = T.rsqrt(affine[1] + eps)
    settle_affine(affine, given)
    for k in T.unroll(unroll):
        if first + k * lanes < length:
            normalize_vector(x, k, vector, affine, dtype)
            write_plane(x, k, vector, Y, entry, channel, first, lanes)


@T.macro
def normalize_planes(
    X, W, B, S, Q, Y, eps, flags, batch, channels, length, sizes, dtype, squared, large, instances=False, prelude=None
):
    """Y = (X - mean) * scale * W + B in parts of planes; `sizes` is (vector, lanes, slots, unroll).

    Of `instances` each is a channel of its own in X, and W and B go through those of one after those of another.

    S holds the means. Q holds the variances where they are `squared` deviations to which eps is added, else the scales.
    A program has the text of read_once once: `prelude` is that text where no launch before has it.
    Of a `large` map whose planes have a block each at least, blocks go through memory in its order, by plane_grid.
    """
    vector, lanes, slots, unroll = sizes
    if large and slots == 1:
        grid = plane_grid(batch, channels, length, LARGE_UNROLL)
        with T.Kernel(*grid, threads=LARGE_LANES) as (part, across, down):
            entry, channel, first = grid_place(part, across, down, T.get_thread_binding(0), LARGE_UNROLL)
            part_sizes = (vector, LARGE_LANES, LARGE_UNROLL)
            normalize_part(
                X,
                W,
                B,
                S,
                Q,
                Y,
                eps,
                flags,
                entry,
                channel,
                first,
                length,
                part_sizes,
                dtype,
                squared,
                instances,
                False,
            )
    else:
        once = fills_access(vector, dtype)
        blocks = plane_blocks(batch, channels, length, lanes, slots, unroll)
        with T.Kernel(blocks, threads=slots * lanes, prelude=prelude) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            entry, channel, first = plane_place(block, slot, lane, batch, channels, length, lanes, slots, unroll)
            part_sizes = (vector, lanes, unroll)
            if entry < batch:
                normalize_part(
                    X,
                    W,
                    B,
                    S,
                    Q,
                    Y,
                    eps,
                    flags,
                    entry,
                    channel,
                    first,
                    length,
                    part_sizes,
                    dtype,
                    squared,
                    instances,
                    once,
                )


def batch_norm_inference(dtype, scales, vector, lanes, slots, unroll, large):
    """Normalise by given statistics; parameters X, mean, variance, W, B, Y, eps, flags.

    `flags` has bit 1 set where W is to be read, and bit 2 where B is; a tensor that is not may be any of its shape. A
    `large` map has at most 65535 channels, and as many entries.
    """
    batch = T.dynamic("batch", "int64")
    channels = T.dynamic("channels", "int64")
    length = T.dynamic("length", "int64")

    @T.prim_func
    def normalize(
        X: T.Tensor[(batch, channels, length, vector), dtype],
        S: T.Tensor[(channels,), "float32"],
        Q: T.Tensor[(channels,), "float32"],
        W: T.Tensor[(channels,), scales],
        B: T.Tensor[(channels,), scales],
        Y: T.Tensor[(batch, channels, length, vector), dtype],
        eps: T.float32,
        flags: T.int32,
    ):
        normalize_planes(
            X,
            W,
            B,
            S,
            Q,
            Y,
            eps,
            flags,
            batch,
            channels,
            length,
            (vector, lanes, slots, unroll),
            dtype,
            True,
            large,
            prelude=READ_ONCE,
        )

    return normalize


def batch_norm_channels(dtype, scales, vector, threads, unroll, blocks):
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
        W: T.Tensor[(channels,), scales],
        B: T.Tensor[(channels,), scales],
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
            given = T.alloc_local((2,), scales)
            running = T.alloc_local((2,), "float32")
            means = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            squares = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            read_affine(given, W, B, channel, flags)
            if flags & 4 != 0:
                read_running(running, M, V, channel)
            clear_moments(moments)
            for turn in T.serial(turns):
                first = turn * (threads * unroll) + thread
                read_channel(x, unroll, vector, X, channel, first, threads, plane, count)
                add_vectors(moments, chunk, x, unroll, vector, first, threads, count, False, True, packed)
            moments_over_lanes(
                moments, sums, means, squares, 0, thread, threads, T.cast(batch * length * vector, "float32")
            )
            affine[0] = moments[1] + sums[1]
            affine[1] = T.rsqrt(moments[2] / moments[0] + eps)
            settle_affine(affine, given)
            if flags & 4 != 0 and thread == 0:
                move_statistics(M, V, running, channel, affine[0], unbiased(moments), momentum)
            for turn in T.serial(turns):
                first = (turns - 1 - turn) * (threads * unroll) + thread
                if turn > 0:
                    read_channel(x, unroll, vector, X, channel, first, threads, plane, count)
                for k in T.unroll(unroll):
                    if first + k * threads < count:
                        normalize_vector(x, k, vector, affine, dtype)
                        write_channel(x, k, vector, Y, channel, first, threads, plane)

    return normalize


def batch_norm_training(dtype, scales, vector, lanes, slots, unroll, depth, large, instances=False):
    """Normalise by the batch's own statistics; parameters X, W, B, M, V, P, S, Q, Y, eps, momentum, flags.

    Of `instances`, W, B, M and V are of `given` channels, and those of X are theirs of one instance after those of
    another; the running statistics then move to the mean over instances, whatever `flags` says of them. Else the
    channels are one and the same.

    P (splits, channels, 3), S (channels,) and Q (channels,), all float32, are for the partial statistics, the means and
    the scales. `flags` is as in batch_norm_channels. A thread that forms statistics reads `depth` vectors at a time,
    and four of its blocks fit on a multiprocessor. Blocks go through channels before they go along them. Of `large`
    maps, of which caches hold little, they go along channels first and read statistics past the caches; those have at
    most 65535 channels, and as many entries.
    """
    batch = T.dynamic("batch", "int64")
    channels = T.dynamic("channels", "int64")
    length = T.dynamic("length", "int64")
    splits = T.dynamic("splits", "int64")
    given = T.dynamic("given", "int64") if instances else channels
    warps = INSTANCE_WARPS if instances else GROUP
    threads = slots * lanes
    packed = fills_access(vector, dtype)

    @T.prim_func
    def normalize(
        X: T.Tensor[(batch, channels, length, vector), dtype],
        W: T.Tensor[(given,), scales],
        B: T.Tensor[(given,), scales],
        M: T.Tensor[(given,), "float32"],
        V: T.Tensor[(given,), "float32"],
        P: T.Tensor[(splits, channels, 3), "float32"],
        S: T.Tensor[(channels,), "float32"],
        Q: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[(batch, channels, length, vector), dtype],
        eps: T.float32,
        momentum: T.float32,
        flags: T.int32,
    ):
        with T.Kernel(splits * channels, threads=threads, prelude=KEEP_PACKED + READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            split, channel = split_place(block, splits, channels, large)
            turns = split_turns(split, splits, batch, length, slots, lanes, depth, large)
            x = T.alloc_local((depth, vector), dtype)
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            means = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            squares = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            T.annotate_min_blocks_per_sm(4)
            clear_moments(moments)
            for turn in T.serial(turns):
                entry, first = turn_place(turn, turns, split, splits, slot, lane, length, slots, lanes, depth, large)
                once = large and packed
                read_plane(x, depth, vector, X, entry, channel, first, lanes, length, entry < batch, once)
                add_vectors(moments, chunk, x, depth, vector, first, lanes, length, False, entry < batch, packed)
            moments_over_lanes(moments, sums, means, squares, 0, thread, threads)
            if thread == 0:
                P[split, channel, 0] = moments[0]
                P[split, channel, 1] = moments[1] + sums[1]
                P[split, channel, 2] = moments[2]
        with T.Kernel(given if instances else T.ceildiv(channels, GROUP), threads=warps * WARP) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // WARP, thread % WARP
            channel = T.cast(block, "int64") if instances else T.cast(block, "int64") * GROUP + slot
            moments = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            totals = T.alloc_local((2,), "float32")
            running = T.alloc_local((2,), "float32")
            means = T.alloc_shared((warps, 2), "float32")
            squares = T.alloc_shared((warps, 2), "float32")
            shares = T.alloc_shared((warps, 2), "float32")
            elements = T.cast(batch * length * vector, "float32")
            if instances or (flags & 4 != 0 and channel < channels):
                read_running(running, M, V, channel)
            for i in T.unroll(2):
                totals[i] = T.float32(0)
            for turn in T.serial(T.ceildiv(channels, given * warps) if instances else 1):
                place = (turn * warps + slot) * given + channel if instances else channel
                clear_moments(moments)
                if place < channels:
                    for step in T.serial(T.truncdiv(splits - lane + WARP - 1, WARP)):
                        split = step * WARP + lane
                        merge_moments(moments, P[split, place, 0], P[split, place, 1], P[split, place, 2])
                moments_over_lanes(moments, sums, means, squares, slot, lane, WARP, elements)
                if place < channels:
                    totals[0] += moments[1] + sums[1]
                    totals[1] += unbiased(moments)
                    if lane == 0:
                        S[place] = moments[1] + sums[1]
                        Q[place] = T.rsqrt(moments[2] / moments[0] + eps)
            if instances:
                count = T.cast(T.truncdiv(channels, given), "float32")
                move_to_means(M, V, running, channel, totals, shares, slot, lane, warps, count, momentum)
            elif flags & 4 != 0 and channel < channels and lane == 0:
                move_statistics(M, V, running, channel, totals[0], totals[1], momentum)
        sizes = (vector, lanes, slots, unroll)
        normalize_planes(X, W, B, S, Q, Y, eps, flags, batch, channels, length, sizes, dtype, False, large, instances)

    return normalize
