"""The gradients of BatchNorm in training on CUDA: a block for each channel, or partial sums, their merge, and a pass.

grad_out, x and grad_x are seen as `macros/cuda_planes.py` says. All sizes are dynamic, and offsets are 64 bits wide. A
channel's `sums` are that of grad_out and that of grad_out * (x - mean).
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_planes import (
    LARGE_LANES,
    grid_place,
    map_sizes,
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
from tileops_kernels.macros.cuda_rows import READ_ONCE, WARP, add_over_lanes, fills_access, warps_of

GROUP = 4
"""Channels whose partial sums one block merges, a warp for each."""
LARGE_UNROLL = 2
"""Vectors of a thread that forms the gradients of a large map: it divides by the number of elements before."""


@T.macro
def add_products(sums, part, g, x, mean, unroll, vector, first, step, count, present):
    """Add the elements that were read to `sums`, by way of `part`: a long sum of short ones keeps more digits."""
    for i in T.unroll(2):
        part[i] = T.float32(0)
    for k in T.unroll(unroll):
        if present and first + k * step < count:
            for v in T.unroll(vector):
                part[0] += T.cast(g[k, v], "float32")
                part[1] += T.cast(g[k, v], "float32") * (T.cast(x[k, v], "float32") - mean)
    for i in T.unroll(2):
        sums[i] += part[i]


@T.macro
def read_given(given, S, R, W, channel):
    """`given` = the mean, the reciprocal of the standard deviation and the weight of a channel."""
    given[0] = S[channel]
    given[1] = R[channel]
    given[2] = W[channel]


@T.macro
def settle_slopes(slopes, given, total, product, elements):
    """`slopes` = the mean, the mean gradient, the gradient's slope along x, and the scale of a channel.

    `total` is the sum of grad_out, `product` that of grad_out * (x - mean) * rstd, and `given` is of read_given.
    """
    slopes[0] = given[0]
    slopes[1] = total / elements
    slopes[2] = product / elements * given[1]
    slopes[3] = given[1] * given[2]


@T.macro
def differentiate_vector(g, x, k, vector, slopes, dtype):
    """g[k, :] = the gradient of x[k, :], from that of the output."""
    for v in T.unroll(vector):
        along = (T.cast(x[k, v], "float32") - slopes[0]) * slopes[2]
        g[k, v] = T.cast((T.cast(g[k, v], "float32") - slopes[1] - along) * slopes[3], dtype)


@T.macro
def differentiate_part(G, X, W, S, R, Y, D, E, entry, channel, first, length, elements, sizes, dtype, once):
    """Y = the gradient of X of a thread's vectors of one plane; `sizes` is (vector, lanes, unroll).

    The others are as in differentiate_planes; vectors are read past the caches where `once`, which takes 16 bytes.
    """
    vector, lanes, unroll = sizes
    g = T.alloc_local((unroll, vector), dtype)
    x = T.alloc_local((unroll, vector), dtype)
    slopes = T.alloc_local((4,), "float32")
    given = T.alloc_local((3,), "float32")
    read_plane(g, unroll, vector, G, entry, channel, first, lanes, length, True, once)
    read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, True, once)
    read_given(given, S, R, W, channel)
    settle_slopes(slopes, given, E[channel], D[channel], elements)
    for k in T.unroll(unroll):
        if first + k * lanes < length:
            differentiate_vector(g, x, k, vector, slopes, dtype)
            write_plane(g, k, vector, Y, entry, channel, first, lanes)


@T.macro
def differentiate_planes(G, X, W, S, R, Y, D, E, batch, channels, length, sizes, dtype, large):
    """Y = the gradient of X in parts of planes, once D and E are those of weight and bias.

    `sizes` is (vector, lanes, slots, unroll). Of a `large` map whose planes have a block each at least, blocks go
    through memory in its order, by plane_grid.
    """
    vector, lanes, slots, unroll = sizes
    if large and slots == 1:
        grid = plane_grid(batch, channels, length, LARGE_UNROLL)
        with T.Kernel(*grid, threads=LARGE_LANES) as (part, across, down):
            entry, channel, first = grid_place(part, across, down, T.get_thread_binding(0), LARGE_UNROLL)
            part_sizes = (vector, LARGE_LANES, LARGE_UNROLL)
            elements = T.cast(batch * length * vector, "float32")
            differentiate_part(
                G, X, W, S, R, Y, D, E, entry, channel, first, length, elements, part_sizes, dtype, False
            )
    else:
        once = fills_access(vector, dtype)
        blocks = plane_blocks(batch, channels, length, lanes, slots, unroll)
        with T.Kernel(blocks, threads=slots * lanes) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            entry, channel, first = plane_place(block, slot, lane, batch, channels, length, lanes, slots, unroll)
            part_sizes = (vector, lanes, unroll)
            elements = T.cast(batch * length * vector, "float32")
            if entry < batch:
                differentiate_part(
                    G, X, W, S, R, Y, D, E, entry, channel, first, length, elements, part_sizes, dtype, once
                )


def batch_norm_bwd_channels(dtype, vector, threads, unroll, blocks):
    """A block for each channel; parameters G, X, W, S, R, Y, D, E, and a divisor.

    They are grad_out, x, weight, mean, rstd, the gradients of three of them, and the vectors of a plane.

    A channel is read in turns, and again in the other order; what the last turn has read stays in registers. Y is that
    of x, D that of the weight and E that of the bias. A channel has fewer vectors than int32 counts, and at least
    `blocks` blocks fit on a multiprocessor, which bounds the registers of a thread.
    """
    batch, channels, length = map_sizes()

    @T.prim_func
    def differentiate(
        G: T.Tensor[(batch, channels, length, vector), dtype],
        X: T.Tensor[(batch, channels, length, vector), dtype],
        W: T.Tensor[(channels,), "float32"],
        S: T.Tensor[(channels,), "float32"],
        R: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[(batch, channels, length, vector), dtype],
        D: T.Tensor[(channels,), "float32"],
        E: T.Tensor[(channels,), "float32"],
        factor: T.int64,
        shift: T.int32,
    ):
        with T.Kernel(channels, threads=threads) as block:
            thread = T.get_thread_binding(0)
            channel = T.cast(block, "int64")
            plane = T.cast(length, "int32")
            count = T.cast(batch * length, "int32")
            turns = T.ceildiv(count, threads * unroll)
            g = T.alloc_local((unroll, vector), dtype)
            x = T.alloc_local((unroll, vector), dtype)
            sums = T.alloc_local((2,), "float32")
            part = T.alloc_local((2,), "float32")
            slopes = T.alloc_local((4,), "float32")
            given = T.alloc_local((3,), "float32")
            partial = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            read_given(given, S, R, W, channel)
            for i in T.unroll(2):
                sums[i] = T.float32(0)
            for turn in T.serial(turns):
                first = turn * (threads * unroll) + thread
                read_channel(g, unroll, vector, G, channel, first, threads, plane, count, divisor=(factor, shift))
                read_channel(x, unroll, vector, X, channel, first, threads, plane, count, divisor=(factor, shift))
                add_products(sums, part, g, x, given[0], unroll, vector, first, threads, count, True)
            add_over_lanes(sums, partial, 0, thread, threads, count=2)
            product = sums[1] * given[1]
            if thread == 0:
                D[channel] = product
                E[channel] = sums[0]
            settle_slopes(slopes, given, sums[0], product, T.cast(batch * length * vector, "float32"))
            for turn in T.serial(turns):
                first = (turns - 1 - turn) * (threads * unroll) + thread
                if turn > 0:
                    read_channel(g, unroll, vector, G, channel, first, threads, plane, count, divisor=(factor, shift))
                    read_channel(x, unroll, vector, X, channel, first, threads, plane, count, divisor=(factor, shift))
                for k in T.unroll(unroll):
                    if first + k * threads < count:
                        differentiate_vector(g, x, k, vector, slopes, dtype)
                        write_channel(g, k, vector, Y, channel, first, threads, plane, (factor, shift))

    return differentiate


def batch_norm_bwd_planes(dtype, vector, lanes, slots, unroll, depth, large):
    """Blocks that share channels; parameters G, X, W, S, R, P, Y, D, E.

    P (splits, channels, 2) in float32 is for the partial sums; the others are as in batch_norm_bwd_channels. A thread
    that forms sums reads `depth` vectors of each tensor at a time. Blocks go through channels before they go along
    them. Of `large` maps, of which caches hold little, they go along channels first and read sums past the caches.
    Those have at most 65535 channels, and as many entries.
    """
    batch, channels, length = map_sizes()
    splits = T.dynamic("splits", "int64")
    threads = slots * lanes
    once = fills_access(vector, dtype)

    @T.prim_func
    def differentiate(
        G: T.Tensor[(batch, channels, length, vector), dtype],
        X: T.Tensor[(batch, channels, length, vector), dtype],
        W: T.Tensor[(channels,), "float32"],
        S: T.Tensor[(channels,), "float32"],
        R: T.Tensor[(channels,), "float32"],
        P: T.Tensor[(splits, channels, 2), "float32"],
        Y: T.Tensor[(batch, channels, length, vector), dtype],
        D: T.Tensor[(channels,), "float32"],
        E: T.Tensor[(channels,), "float32"],
    ):
        with T.Kernel(splits * channels, threads=threads, prelude=READ_ONCE) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            split, channel = split_place(block, splits, channels, large)
            turns = split_turns(split, splits, batch, length, slots, lanes, depth, large)
            g = T.alloc_local((depth, vector), dtype)
            x = T.alloc_local((depth, vector), dtype)
            sums = T.alloc_local((2,), "float32")
            part = T.alloc_local((2,), "float32")
            partial = T.alloc_shared((1, 2 * warps_of(threads)), "float32")
            T.annotate_min_blocks_per_sm(4)
            mean = S[channel]
            for i in T.unroll(2):
                sums[i] = T.float32(0)
            for turn in T.serial(turns):
                entry, first = turn_place(turn, turns, split, splits, slot, lane, length, slots, lanes, depth, large)
                read_plane(g, depth, vector, G, entry, channel, first, lanes, length, entry < batch, large and once)
                read_plane(x, depth, vector, X, entry, channel, first, lanes, length, entry < batch, large and once)
                add_products(sums, part, g, x, mean, depth, vector, first, lanes, length, entry < batch)
            add_over_lanes(sums, partial, 0, thread, threads, count=2)
            if thread == 0:
                for i in T.unroll(2):
                    P[split, channel, i] = sums[i]
        with T.Kernel(T.ceildiv(channels, GROUP), threads=GROUP * WARP) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // WARP, thread % WARP
            channel = T.cast(block, "int64") * GROUP + slot
            sums = T.alloc_local((2,), "float32")
            partial = T.alloc_shared((GROUP, 2), "float32")
            for i in T.unroll(2):
                sums[i] = T.float32(0)
            if channel < channels:
                for turn in T.serial(T.truncdiv(splits - lane + WARP - 1, WARP)):
                    for i in T.unroll(2):
                        sums[i] += P[turn * WARP + lane, channel, i]
            add_over_lanes(sums, partial, slot, lane, WARP, count=2)
            if channel < channels and lane == 0:
                D[channel] = sums[1] * R[channel]
                E[channel] = sums[0]
        differentiate_planes(
            G, X, W, S, R, Y, D, E, batch, channels, length, (vector, lanes, slots, unroll), dtype, large
        )

    return differentiate
