"""Planes on CUDA: how blocks read channels whose elements lie in a plane of each batch entry.

A tensor is (batch, channels, length, vector): `length` vectors of `vector` elements make a channel's plane. A block of
`slots * lanes` threads has its lanes along a plane and its slots along the batch, so that short planes fill it too; or
it takes a channel alone and goes through its vectors, those of one plane after those of another.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_rows import read_once


def plane_offset(X, entry, channel, place):
    """The elements before the vector at `place` of a plane."""
    return ((T.cast(entry, "int64") * X.shape[1] + channel) * X.shape[2] + place) * X.shape[3]


@T.macro
def read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, present, once=False):
    """x[k, :] = vector first + k * lanes of a plane, where it has that many and the batch that entry (`present`).

    A vector that is read `once` takes 16 bytes.
    """
    for k in T.unroll(unroll):
        if present and first + k * lanes < length:
            if once:
                read_once(x, k * vector, X, plane_offset(X, entry, channel, first + k * lanes))
            else:
                for v in T.vectorized(vector):
                    x[k, v] = X[entry, channel, first + k * lanes, v]


@T.macro
def read_channel(x, unroll, vector, X, channel, first, threads, length, count, once=False, before=()):
    """x[*before, k, :] = vector first + k * threads of a channel that has `count` in planes of `length`; all int32.

    A vector that is read `once` takes 16 bytes, and x then holds nothing before the vectors.
    """
    for k in T.unroll(unroll):
        if first + k * threads < count:
            entry, place = T.truncdiv(first + k * threads, length), T.truncmod(first + k * threads, length)
            if once:
                read_once(x, k * vector, X, plane_offset(X, entry, channel, place))
            else:
                for v in T.vectorized(vector):
                    x[(*before, k, v)] = X[entry, channel, place, v]


@T.macro
def write_channel(x, k, vector, Y, channel, first, threads, length):
    """Write x[k, :] to where read_channel reads it."""
    for v in T.vectorized(vector):
        Y[T.truncdiv(first + k * threads, length), channel, T.truncmod(first + k * threads, length), v] = x[k, v]


def plane_blocks(batch, channels, length, lanes, slots, unroll):
    """Blocks that go through all planes once, `lanes * unroll` vectors of `slots` planes each."""
    return T.ceildiv(batch * channels, slots) * T.ceildiv(length, lanes * unroll)


def plane_place(block, slot, lane, batch, channels, length, lanes, slots, unroll, along=False):
    """The entry, the channel and the first vector of a thread in a block of plane_blocks.

    The entry is no less than `batch` where a slot has no plane. Blocks go backwards, to begin with what was read last
    and caches may still hold. Where a block has one plane they go through the channels before they go along them, as
    blocks do that form sums, unless they go `along` first. Where it has more, its lanes reach the whole of them.
    """
    place = T.cast(plane_blocks(batch, channels, length, lanes, slots, unroll), "int32") - 1 - T.cast(block, "int32")
    if slots > 1:
        plane = T.cast(place, "int64") * slots + slot
        return T.truncdiv(plane, channels), T.truncmod(plane, channels), T.cast(lane, "int64")
    parts = T.cast(T.ceildiv(length, lanes * unroll), "int32")
    if along:
        plane = T.cast(T.truncdiv(place, parts), "int64")
        first = T.cast(T.truncmod(place, parts), "int64") * (lanes * unroll) + lane
        return T.truncdiv(plane, channels), T.truncmod(plane, channels), first
    down, across = T.truncdiv(place, T.cast(channels, "int32")), T.truncmod(place, T.cast(channels, "int32"))
    first = T.cast(T.truncmod(down, parts), "int64") * (lanes * unroll) + lane
    return T.cast(T.truncdiv(down, parts), "int64"), T.cast(across, "int64"), first
