"""Planes on CUDA: how blocks read channels whose elements lie in a plane of each batch entry.

A tensor is (batch, channels, length, vector): `length` vectors of `vector` elements make a channel's plane. A block of
`slots * lanes` threads has its lanes along a plane and its slots along the batch, so that short planes fill it too; or
it takes a channel alone and goes through its vectors, those of one plane after those of another.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_rows import read_once
from tileops_kernels.macros.division import quotient

LARGE_LANES = 128
"""Threads of a block of plane_grid: the fewer, the nearer to a copy's time a pass came (docs/performance/norms.md)."""


def map_sizes():
    """The batch entries, channels and vectors of a plane of a program's tensors: found at a launch, 64 bits wide."""
    return T.dynamic("batch", "int64"), T.dynamic("channels", "int64"), T.dynamic("length", "int64")


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
def write_plane(x, k, vector, Y, entry, channel, first, lanes):
    """Write x[k, :] to where read_plane reads it."""
    for v in T.vectorized(vector):
        Y[entry, channel, first + k * lanes, v] = x[k, v]


@T.macro
def place_in_channel(at, number, length, divisor):
    """at[0], at[1] = the entry and the place in its plane of vector `number` of a channel; all int32.

    The `divisor` that is the length of a plane is used where it is given.
    """
    if divisor is None:
        at[0] = T.truncdiv(number, length)
        at[1] = T.truncmod(number, length)
    else:
        at[0] = quotient(number, divisor[0], divisor[1])
        at[1] = number - at[0] * length


@T.macro
def read_channel(x, unroll, vector, X, channel, first, threads, length, count, once=False, before=(), divisor=None):
    """x[*before, k, :] = vector first + k * threads of a channel that has `count` in planes of `length`; all int32.

    A vector that is read `once` takes 16 bytes, and x then holds nothing before the vectors. The `divisor` is as for
    place_in_channel.
    """
    at = T.alloc_local((2,), "int32")
    for k in T.unroll(unroll):
        if first + k * threads < count:
            place_in_channel(at, first + k * threads, length, divisor)
            T.assume(at[0] >= 0 and T.cast(at[0], "int64") < X.shape[0])
            T.assume(at[1] >= 0 and T.cast(at[1], "int64") < X.shape[2])
            if once:
                read_once(x, k * vector, X, plane_offset(X, at[0], channel, at[1]))
            else:
                for v in T.vectorized(vector):
                    x[(*before, k, v)] = X[at[0], channel, at[1], v]


@T.macro
def write_channel(x, k, vector, Y, channel, first, threads, length, divisor=None):
    """Write x[k, :] to where read_channel reads it."""
    at = T.alloc_local((2,), "int32")
    place_in_channel(at, first + k * threads, length, divisor)
    T.assume(at[0] >= 0 and T.cast(at[0], "int64") < Y.shape[0])
    T.assume(at[1] >= 0 and T.cast(at[1], "int64") < Y.shape[2])
    for v in T.vectorized(vector):
        Y[at[0], channel, at[1], v] = x[k, v]


def plane_blocks(batch, channels, length, lanes, slots, unroll):
    """Blocks that go through all planes once, `lanes * unroll` vectors of `slots` planes each."""
    return T.ceildiv(batch * channels, slots) * T.ceildiv(length, lanes * unroll)


def plane_grid(batch, channels, length, unroll):
    """Blocks that go through all planes once in the order of memory, `LARGE_LANES * unroll` vectors of one each.

    Channels and entries are those of the second and the third axis, which hold 65535 at most.
    """
    return T.ceildiv(length, LARGE_LANES * unroll), channels, batch


def grid_place(part, across, down, lane, unroll):
    """The entry, the channel and the first vector of a thread in a block of plane_grid."""
    first = T.cast(part, "int64") * (LARGE_LANES * unroll) + lane
    return T.cast(down, "int64"), T.cast(across, "int64"), first


def plane_place(block, slot, lane, batch, channels, length, lanes, slots, unroll):
    """The entry, the channel and the first vector of a thread in a block of plane_blocks.

    The entry is no less than `batch` where a slot has no plane. Blocks go backwards, to begin with what was read last
    and caches may still hold. Where a block has one plane they go through the channels before they go along them, as
    blocks do that form sums. Where it has more, its lanes reach the whole of them.
    """
    place = T.cast(plane_blocks(batch, channels, length, lanes, slots, unroll), "int32") - 1 - T.cast(block, "int32")
    if slots > 1:
        plane = T.cast(place, "int64") * slots + slot
        return T.truncdiv(plane, channels), T.truncmod(plane, channels), T.cast(lane, "int64")
    parts = T.cast(T.ceildiv(length, lanes * unroll), "int32")
    across = T.cast(channels, "int32")
    down, channel = T.truncdiv(place, across), T.truncmod(place, across)
    entry, part = T.truncdiv(down, parts), T.truncmod(down, parts)
    return T.cast(entry, "int64"), T.cast(channel, "int64"), T.cast(part, "int64") * (lanes * unroll) + lane


def split_place(block, splits, channels, along):
    """The split, int32, and the channel of a block, where `splits` blocks form the sums of each channel.

    Blocks go through the channels before they go along them, unless they go `along` first.
    """
    place, inner = T.cast(block, "int32"), T.cast(splits if along else channels, "int32")
    quotient, remainder = T.truncdiv(place, inner), T.truncmod(place, inner)
    return (remainder, T.cast(quotient, "int64")) if along else (quotient, T.cast(remainder, "int64"))


def split_turns(split, splits, batch, length, slots, lanes, unroll, along):
    """Turns of a split: all blocks of a channel have as many where each has neighbouring pieces, `along` it."""
    pieces = T.cast(T.ceildiv(batch, slots), "int32") * T.cast(T.ceildiv(length, lanes * unroll), "int32")
    step = T.cast(splits, "int32")
    return T.truncdiv(pieces + step - 1 - (0 if along else split), step)


def turn_place(turn, turns, split, splits, slot, lane, length, slots, lanes, unroll, along):
    """The entry and the first vector of a thread in a turn of a split; the batch may not have that entry."""
    piece = split * turns + turn if along else turn * T.cast(splits, "int32") + split
    parts = T.cast(T.ceildiv(length, lanes * unroll), "int32")
    entry = T.cast(T.truncdiv(piece, parts), "int64") * slots + slot
    return entry, T.cast(T.truncmod(piece, parts), "int64") * (lanes * unroll) + lane
