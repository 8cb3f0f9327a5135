"""Channels on CUDA: the weight and bias of one, normalising by its statistics, and moving its running ones."""

import tilelang.language as T  # noqa: N812


@T.macro
def read_affine(affine, W, B, channel, flags):
    """affine[2:4] = the weight and the bias of a channel, 1 and 0 where `flags` says that they are not to be read.

    `flags` has bit 1 set where W is to be read, and bit 2 where B is.
    """
    affine[2] = T.float32(1)
    affine[3] = T.float32(0)
    if flags & 1 != 0:
        affine[2] = T.cast(W[channel], "float32")
    if flags & 2 != 0:
        affine[3] = T.cast(B[channel], "float32")


@T.macro
def normalize_vector(x, k, vector, affine, dtype):
    """x[k, :] = (x[k, :] - mean) * scale * weight + bias; `affine` holds these four."""
    for v in T.unroll(vector):
        scaled = (T.cast(x[k, v], "float32") - affine[0]) * affine[1]
        x[k, v] = T.cast(scaled * affine[2] + affine[3], dtype)


@T.macro
def move_statistics(M, V, channel, mean, variance, momentum):
    """Move a channel's running mean and variance by `momentum` to new ones."""
    M[channel] = momentum * mean + (T.float32(1) - momentum) * M[channel]
    V[channel] = momentum * variance + (T.float32(1) - momentum) * V[channel]


@T.macro
def move_to_means(M, V, channel, totals, shares, slot, lane, slots, count, momentum):
    """Move a channel's running statistics by `momentum` to means over `count`, of which `slots` rows have `totals`.

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
        move_statistics(M, V, channel, totals[0] / count, totals[1] / count, momentum)


def unbiased(moments):
    """The variance of `moments` divided by one element less."""
    return moments[2] / (moments[0] - T.float32(1))
