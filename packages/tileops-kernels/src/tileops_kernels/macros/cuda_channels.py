"""Channels on CUDA: the weight and bias of one, normalising by its statistics, and moving its running ones."""

import tilelang.language as T  # noqa: N812


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
def normalize_vector(x, k, vector, affine, dtype):
    """x[k, :] = (x[k, :] - mean) * scale * weight + bias; `affine` holds these four."""
    for v in T.unroll(vector):
        scaled = (T.cast(x[k, v], "float32") - affine[0]) * affine[1]
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
