"""Channels on CUDA: the weight and bias of one, normalising by its statistics, and moving its running ones."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_planes import (
    LARGE_LANES,
    grid_place,
    plane_blocks,
    plane_grid,
    plane_place,
    read_plane,
    write_plane,
)
from tileops_kernels.macros.cuda_rows import fills_access

LARGE_UNROLL = 1
"""Vectors of a thread that normalises a large map."""


@T.macro
def read_affine(given, W, B, channel, flags):
    """given[0], given[1] = the weight and the bias of a channel, 1 and 0 where `flags` says they are not to be read.

    In their dtype: a conversion would wait for them, and hold up what is read after it. `flags` has bit 1 set where W
    is to be read, and bit 2 where B is.
    """
    given[0] = T.cast(1, W.dtype)
    given[1] = T.cast(0, W.dtype)
    if flags & 1 != 0:
        given[0] = W[channel]
    if flags & 2 != 0:
        given[1] = B[channel]


@T.macro
def settle_affine(affine, given):
    """affine[2:4] = what read_affine has read."""
    affine[2] = T.cast(given[0], "float32")
    affine[3] = T.cast(given[1], "float32")


@T.macro
def settle_statistics(affine, given, moments, sums, eps):
    """affine[0:2] = the mean and the scale of the `moments` that moments_over_lanes gives, then as settle_affine."""
    affine[0] = moments[1] + sums[1]
    affine[1] = T.rsqrt(moments[2] / moments[0] + eps)
    settle_affine(affine, given)


@T.macro
def normalize_vector(x, k, vector, affine, dtype, split=False):
    """x[k, :] = (x[k, :] - mean) * scale * weight + bias; `affine` holds these four.

    Where the mean is `split` into two parts, it also holds the second, multiplied by the scale.
    """
    for v in T.unroll(vector):
        scaled = (T.cast(x[k, v], "float32") - affine[0]) * affine[1]
        if split:
            scaled = scaled - affine[4]
        x[k, v] = T.cast(scaled * affine[2] + affine[3], dtype)


@T.macro
def read_running(running, M, V, channel):
    """running[0], running[1] = the running mean and variance of a channel, read before they are moved."""
    running[0] = M[channel]
    running[1] = V[channel]


@T.macro
def move_statistics(M, V, running, channel, mean, variance, momentum):
    """Move a channel's running mean and variance, which are `running`, by `momentum` to new ones."""
    M[channel] = momentum * mean + (T.float32(1) - momentum) * running[0]
    V[channel] = momentum * variance + (T.float32(1) - momentum) * running[1]


@T.macro
def move_to_means(M, V, running, channel, totals, shares, slot, lane, slots, count, momentum):
    """Move a channel's `running` statistics by `momentum` to means over `count`, of which `slots` rows have `totals`.

    `count` is float32. `totals` has the sum of means and that of variances in every lane of a row; those of the first
    row are overwritten. `shares` is shared, (slots, 2). Every thread of the block must arrive here.
    """
    if lane == 0:
        for i in T.unroll(2):
            shares[slot, i] = totals[i]
    T.sync_threads()
    if slot == 0 and lane == 0:
        for other in T.unroll(slots - 1):
            for i in T.unroll(2):
                totals[i] += shares[other + 1, i]
        move_statistics(M, V, running, channel, totals[0] / count, totals[1] / count, momentum)


def unbiased(moments):
    """The variance of `moments` divided by one element less."""
    return moments[2] / (moments[0] - T.float32(1))


def group_place(entry, channel, channels, span):
    """The group of a channel among those of all entries; `span` channels make one, and int32 counts an entry's."""
    groups = T.truncdiv(T.cast(channels, "int32"), span)
    return entry * T.cast(groups, "int64") + T.cast(T.truncdiv(T.cast(channel, "int32"), span), "int64")


@T.macro
def normalize_part(X, W, B, S, Q, Y, eps, flags, place, length, sizes, dtype, squared, instances, span, once):
    """Y = (X - mean) * scale * W + B of a thread's vectors of one plane; `sizes` is (vector, lanes, unroll).

    `place` is the entry, the channel and the first vector. The others are as in normalize_planes; vectors are read past
    the caches where `once`, which takes 16 bytes.
    """
    vector, lanes, unroll = sizes
    entry, channel, first = place
    x = T.alloc_local((unroll, vector), dtype)
    affine = T.alloc_local((5,), "float32")
    given = T.alloc_local((2,), W.dtype)
    read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, True, once)
    if span:
        group = group_place(entry, channel, X.shape[1], span)
        affine[0] = S[group, 0]
        affine[1] = Q[group]
        affine[4] = S[group, 1]
    else:
        affine[0] = S[channel]
        affine[1] = Q[channel]
    read_affine(given, W, B, T.truncmod(channel, W.shape[0]) if instances else channel, flags)
    if squared:
        affine[1] = T.rsqrt(affine[1] + eps)
    if span:
        affine[4] *= affine[1]
    settle_affine(affine, given)
    for k in T.unroll(unroll):
        if first + k * lanes < length:
            normalize_vector(x, k, vector, affine, dtype, bool(span))
            write_plane(x, k, vector, Y, entry, channel, first, lanes)


@T.macro
def normalize_planes(
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
    sizes,
    dtype,
    squared,
    large,
    instances=False,
    span=0,
    prelude=None,
):
    """Y = (X - mean) * scale * W + B in parts of planes; `sizes` is (vector, lanes, slots, unroll).

    Of `instances` each is a channel of its own in X, and W and B go through those of one after those of another.

    S holds the means. Q holds the variances where they are `squared` deviations to which eps is added, else the scales.
    Where `span` channels make a group, S and Q are those of groups, and means have two parts.
    A program has the text of read_once once: `prelude` is that text where no launch before has it.
    Of a `large` map whose planes have a block each at least, blocks go through memory in its order, by plane_grid.
    """
    vector, lanes, slots, unroll = sizes
    if large and slots == 1:
        grid = plane_grid(batch, channels, length, LARGE_UNROLL)
        with T.Kernel(*grid, threads=LARGE_LANES) as (part, across, down):
            place = grid_place(part, across, down, T.get_thread_binding(0), LARGE_UNROLL)
            wide = (vector, LARGE_LANES, LARGE_UNROLL)
            normalize_part(X, W, B, S, Q, Y, eps, flags, place, length, wide, dtype, squared, instances, span, False)
    else:
        once = fills_access(vector, dtype)
        blocks = plane_blocks(batch, channels, length, lanes, slots, unroll)
        with T.Kernel(blocks, threads=slots * lanes, prelude=prelude) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            place = plane_place(block, slot, lane, batch, channels, length, lanes, slots, unroll)
            each = (vector, lanes, unroll)
            if place[0] < batch:
                normalize_part(X, W, B, S, Q, Y, eps, flags, place, length, each, dtype, squared, instances, span, once)
