"""Statistics of channels on CUDA: partial ones formed by blocks that share a channel, and their merge by a warp.

x is seen as `macros/cuda_planes.py` says. P, float32 (splits, channels, 3), holds the moments of each part of a channel
as `macros/cuda_moments.py` has them, S and Q, float32 (channels,), the means and the scales of the channels. Where
means are to keep more digits than one value has, P is (splits, channels, 4) and S (channels, 2): the last of each is
the second part of a mean.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_moments import (
    add_vectors,
    clear_moments,
    differences_of_vector,
    merge_differences,
    merge_moments,
    merge_parts,
    moments_over_lanes,
    squares_of_vector,
)
from tileops_kernels.macros.cuda_planes import read_plane, split_place, split_turns, turn_place
from tileops_kernels.macros.cuda_rows import KEEP_PACKED, READ_ONCE, WARP, fills_access, warps_of

MERGED = 4
"""Channels whose partial statistics one block merges, a warp for each."""

PIVOT_TURNS = 4
"""Turns in which a thread takes differences from one element, before it adds what they give to its moments.

Squares of differences lose at most as many more digits as elements have been met, 256 of half precision.
"""


def in_two_parts(P):
    """Whether means are in two parts."""
    return int(P.shape[2]) == 4


@T.macro
def form_statistics(X, P, batch, channels, length, splits, sizes, dtype, large):
    """The launch that writes P, first of its program; `sizes` is (vector, lanes, slots, depth).

    A thread reads `depth` vectors at a time, and four blocks fit on a multiprocessor. Blocks go through channels before
    they go along them. Of `large` maps, of which caches hold little, they go along channels first and read past the
    caches.
    """
    vector, lanes, slots, depth = sizes
    threads = slots * lanes
    packed = fills_access(vector, dtype)
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


@T.macro
def add_differences(chunk, pivot, x, depth, vector, first, lanes, length):
    """Add the elements of x, which read_plane has read, to what `chunk` has of differences from pivot[0].

    That is an element, the first that a thread meets after `chunk` was cleared.
    """
    if chunk[0] == T.float32(0):
        pivot[0] = T.cast(x[0, 0], "float32")
    if first + (depth - 1) * lanes < length:
        chunk[0] += T.float32(depth * vector)
        for k in T.unroll(depth):
            chunk[1] += differences_of_vector(x, k, vector, pivot[0])
            chunk[2] += squares_of_vector(x, k, vector, pivot[0])
    else:
        for k in T.unroll(depth):
            if first + k * lanes < length:
                chunk[0] += T.float32(vector)
                chunk[1] += differences_of_vector(x, k, vector, pivot[0])
                chunk[2] += squares_of_vector(x, k, vector, pivot[0])


@T.macro
def form_group_statistics(X, P, groups, length, splits, sizes, dtype, large):
    """As form_statistics, of channels of one entry, with means in two parts; `sizes` is (vector, lanes, depth)."""
    vector, lanes, depth = sizes
    packed = fills_access(vector, dtype)
    with T.Kernel(splits * groups, threads=lanes, prelude=KEEP_PACKED + READ_ONCE) as block:
        lane = T.get_thread_binding(0)
        split, group = split_place(block, splits, groups, large)
        turns = split_turns(split, splits, 1, length, 1, lanes, depth, large)
        x = T.alloc_local((depth, vector), dtype)
        moments = T.alloc_local((3,), "float32")
        second = T.alloc_local((1,), "float32")
        chunk = T.alloc_local((3,), "float32")
        pivot = T.alloc_local((1,), "float32")
        sums = T.alloc_local((2,), "float32")
        means = T.alloc_shared((1, 2 * warps_of(lanes)), "float32")
        squares = T.alloc_shared((1, 2 * warps_of(lanes)), "float32")
        T.annotate_min_blocks_per_sm(4)
        clear_moments(moments)
        second[0] = T.float32(0)
        for pivots in T.serial(T.ceildiv(turns, PIVOT_TURNS)):
            clear_moments(chunk)
            for each in T.serial(PIVOT_TURNS):
                turn = pivots * PIVOT_TURNS + each
                if turn < turns:
                    piece = split * turns + turn if large else turn * T.cast(splits, "int32") + split
                    first = T.cast(piece, "int64") * (lanes * depth) + lane
                    read_plane(x, depth, vector, X, T.int64(0), group, first, lanes, length, True, large and packed)
                    add_differences(chunk, pivot, x, depth, vector, first, lanes, length)
            merge_differences(moments, chunk, pivot[0], second)
        moments_over_lanes(moments, sums, means, squares, 0, lane, lanes, second=second)
        if lane == 0:
            P[split, group, 0] = moments[0]
            P[split, group, 1] = moments[1]
            P[split, group, 2] = moments[2]
            P[split, group, 3] = sums[1]


@T.macro
def merge_statistics(moments, sums, means, squares, P, S, Q, channel, channels, splits, eps, slot, lane):
    """`moments` = those of a channel, by a warp, in the form of moments_over_lanes; S and Q of it are written.

    Every thread of the block must arrive here, also with a channel that there is not.
    """
    second = T.alloc_local((1,), "float32") if in_two_parts(P) else None
    clear_moments(moments)
    if in_two_parts(P):
        second[0] = T.float32(0)
    if channel < channels:
        for step in T.serial(T.truncdiv(splits - lane + WARP - 1, WARP)):
            split = step * WARP + lane
            if in_two_parts(P):
                merge_parts(
                    moments,
                    second,
                    P[split, channel, 0],
                    P[split, channel, 1],
                    P[split, channel, 3],
                    P[split, channel, 2],
                )
            else:
                merge_moments(moments, P[split, channel, 0], P[split, channel, 1], P[split, channel, 2])
    moments_over_lanes(moments, sums, means, squares, slot, lane, WARP, second=second)
    if channel < channels and lane == 0:
        if in_two_parts(P):
            S[channel, 0] = moments[1]
            S[channel, 1] = sums[1]
        else:
            S[channel] = moments[1] + sums[1]
        Q[channel] = T.rsqrt(moments[2] / moments[0] + eps)
