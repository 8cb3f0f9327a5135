"""Statistics of channels on CUDA: partial ones formed by blocks that share a channel, and their merge by a warp.

x is seen as `macros/cuda_planes.py` says. P, float32 (splits, channels, 3), holds the moments of each part of a channel
as `macros/cuda_moments.py` has them, S and Q, float32 (channels,), the means and the scales of the channels. Where
means are to keep more digits than one value has, P is (splits, channels, 4) and S (channels, 2): the last of each is
the second part of a mean.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_moments import (
    add_differences_of_vectors,
    add_vectors,
    clear_moments,
    merge_moments,
    merge_parts,
    moments_over_lanes,
)
from tileops_kernels.macros.cuda_planes import read_plane, split_place, split_turns, turn_place
from tileops_kernels.macros.cuda_rows import KEEP_PACKED, READ_ONCE, WARP, fills_access, warps_of

MERGED = 4
"""Channels whose partial statistics one block merges, a warp for each."""


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
        second = T.alloc_local((1,), "float32") if in_two_parts(P) else None
        T.annotate_min_blocks_per_sm(4)
        clear_moments(moments)
        if in_two_parts(P):
            second[0] = T.float32(0)
        for turn in T.serial(turns):
            entry, first = turn_place(turn, turns, split, splits, slot, lane, length, slots, lanes, depth, large)
            once = large and packed
            read_plane(x, depth, vector, X, entry, channel, first, lanes, length, entry < batch, once)
            if in_two_parts(P):
                add_differences_of_vectors(
                    moments, chunk, x, depth, vector, first, lanes, length, False, entry < batch, second
                )
            else:
                add_vectors(moments, chunk, x, depth, vector, first, lanes, length, False, entry < batch, packed)
        moments_over_lanes(moments, sums, means, squares, 0, thread, threads, second=second)
        if thread == 0:
            P[split, channel, 0] = moments[0]
            P[split, channel, 1] = moments[1] if in_two_parts(P) else moments[1] + sums[1]
            P[split, channel, 2] = moments[2]
            if in_two_parts(P):
                P[split, channel, 3] = sums[1]


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
