"""BatchNorm on CUDA: a block for each channel, or partial statistics, their merge, and the pass that normalises.

x is seen as `macros/cuda_planes.py` says. All sizes are dynamic, and offsets are 64 bits wide. Weights and biases are
of dtype `scales`.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_channels import (
    move_statistics,
    move_to_means,
    normalize_planes,
    normalize_vector,
    read_affine,
    read_running,
    settle_statistics,
    unbiased,
)
from tileops_kernels.macros.cuda_moments import add_vectors, clear_moments, moments_over_lanes
from tileops_kernels.macros.cuda_planes import map_sizes, read_channel, write_channel
from tileops_kernels.macros.cuda_rows import KEEP_PACKED, READ_ONCE, WARP, fills_access, warps_of
from tileops_kernels.macros.cuda_statistics import MERGED, form_statistics, merge_statistics

INSTANCE_WARPS = 8
"""Warps that merge those of the instances of one channel, each in turn."""


def batch_norm_inference(dtype, scales, vector, lanes, slots, unroll, large):
    """Normalise by given statistics; parameters X, mean, variance, W, B, Y, eps, flags.

    `flags` has bit 1 set where W is to be read, and bit 2 where B is; a tensor that is not may be any of its shape. A
    `large` map has at most 65535 channels, and as many entries.
    """
    batch, channels, length = map_sizes()

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
    """Training with a block for each channel; parameters X, W, B, M, V, Y, eps, momentum, flags, and a divisor.

    A channel is read in turns, and again in the other order; what the last turn has read stays in registers, so that a
    channel of one turn is read once. Where bit 4 of `flags` is set, the running statistics M and V are moved by
    `momentum`; the other bits are as in batch_norm_inference. The divisor is the vectors of a plane. A channel has
    fewer vectors than int32 counts, and at least `blocks` blocks fit on a multiprocessor, which bounds the registers of
    a thread.
    """
    batch, channels, length = map_sizes()
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
        factor: T.int64,
        shift: T.int32,
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
                read_channel(x, unroll, vector, X, channel, first, threads, plane, count, divisor=(factor, shift))
                add_vectors(moments, chunk, x, unroll, vector, first, threads, count, False, True, packed)
            elements = T.cast(batch * length * vector, "float32")
            moments_over_lanes(moments, sums, means, squares, 0, thread, threads, elements)
            settle_statistics(affine, given, moments, sums, eps)
            if flags & 4 != 0 and thread == 0:
                move_statistics(M, V, running, channel, affine[0], unbiased(moments), momentum)
            for turn in T.serial(turns):
                first = (turns - 1 - turn) * (threads * unroll) + thread
                if turn > 0:
                    read_channel(x, unroll, vector, X, channel, first, threads, plane, count, divisor=(factor, shift))
                for k in T.unroll(unroll):
                    if first + k * threads < count:
                        normalize_vector(x, k, vector, affine, dtype)
                        write_channel(x, k, vector, Y, channel, first, threads, plane, (factor, shift))

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
    batch, channels, length = map_sizes()
    splits = T.dynamic("splits", "int64")
    given = T.dynamic("given", "int64") if instances else channels
    warps = INSTANCE_WARPS if instances else MERGED

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
        form_statistics(X, P, batch, channels, length, splits, (vector, lanes, slots, depth), dtype, large)
        with T.Kernel(given if instances else T.ceildiv(channels, MERGED), threads=warps * WARP) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // WARP, thread % WARP
            channel = T.cast(block, "int64") if instances else T.cast(block, "int64") * MERGED + slot
            moments = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            totals = T.alloc_local((2,), "float32")
            running = T.alloc_local((2,), "float32")
            means = T.alloc_shared((warps, 2), "float32")
            squares = T.alloc_shared((warps, 2), "float32")
            shares = T.alloc_shared((warps, 2), "float32")
            if instances or (flags & 4 != 0 and channel < channels):
                read_running(running, M, V, channel)
            for i in T.unroll(2):
                totals[i] = T.float32(0)
            for turn in T.serial(T.ceildiv(channels, given * warps) if instances else 1):
                place = (turn * warps + slot) * given + channel if instances else channel
                merge_statistics(moments, sums, means, squares, P, S, Q, place, channels, splits, eps, slot, lane)
                if place < channels:
                    totals[0] += moments[1] + sums[1]
                    totals[1] += unbiased(moments)
            if instances:
                count = T.cast(T.truncdiv(channels, given), "float32")
                move_to_means(M, V, running, channel, totals, shares, slot, lane, warps, count, momentum)
            elif flags & 4 != 0 and channel < channels and lane == 0:
                move_statistics(M, V, running, channel, totals[0], totals[1], momentum)
        sizes = (vector, lanes, slots, unroll)
        normalize_planes(X, W, B, S, Q, Y, eps, flags, batch, channels, length, sizes, dtype, False, large, instances)

    return normalize
