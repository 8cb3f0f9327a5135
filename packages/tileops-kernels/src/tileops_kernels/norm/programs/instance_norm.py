"""InstanceNorm that moves running statistics, on CUDA: a block has a channel, and goes through its planes.

x is seen as `macros/cuda_planes.py` says. All sizes are dynamic, and offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_channels import (
    move_to_means,
    normalize_vector,
    read_affine,
    read_running,
    settle_statistics,
    unbiased,
)
from tileops_kernels.macros.cuda_moments import add_vectors, clear_moments, moments_over_lanes
from tileops_kernels.macros.cuda_planes import map_sizes, read_plane, write_plane
from tileops_kernels.macros.cuda_rows import KEEP_PACKED, fills_access, warps_of


def instance_norm_channels(dtype, scales, vector, lanes, slots, unroll, blocks):
    """Normalise each plane by its own statistics; parameters X, W, B, M, V, Y, eps, momentum, flags.

    The running statistics M and V move by `momentum` to the mean over the batch of those of planes. `flags` has bit 1
    set where W is to be read, and bit 2 where B is; a tensor that is not may be any of its shape. W and B are of dtype
    `scales`. `slots` planes of a channel are under way together, each read `unroll` vectors a thread at a time and
    again in the other order; what was read last stays in registers, so that a plane of one such part is read once. At
    least `blocks` blocks fit on a multiprocessor, which bounds the registers of a thread.
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
    ):
        with T.Kernel(channels, threads=slots * lanes, prelude=KEEP_PACKED) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // lanes, thread % lanes
            channel = T.cast(block, "int64")
            parts = T.ceildiv(length, lanes * unroll)
            elements = T.cast(length * vector, "float32")
            x = T.alloc_local((unroll, vector), dtype)
            moments = T.alloc_local((3,), "float32")
            chunk = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            affine = T.alloc_local((4,), "float32")
            given = T.alloc_local((2,), scales)
            running = T.alloc_local((2,), "float32")
            totals = T.alloc_local((2,), "float32")
            means = T.alloc_shared((slots, 2 * warps_of(lanes)), "float32")
            squares = T.alloc_shared((slots, 2 * warps_of(lanes)), "float32")
            shares = T.alloc_shared((slots, 2), "float32")
            T.annotate_min_blocks_per_sm(blocks)
            read_affine(given, W, B, channel, flags)
            read_running(running, M, V, channel)
            for i in T.unroll(2):
                totals[i] = T.float32(0)
            for turn in T.serial(T.ceildiv(batch, slots)):
                entry = turn * slots + slot
                clear_moments(moments)
                for part in T.serial(parts):
                    first = part * (lanes * unroll) + lane
                    read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, entry < batch)
                    add_vectors(moments, chunk, x, unroll, vector, first, lanes, length, False, entry < batch, packed)
                moments_over_lanes(moments, sums, means, squares, slot, lane, lanes, elements)
                settle_statistics(affine, given, moments, sums, eps)
                if entry < batch:
                    totals[0] += affine[0]
                    totals[1] += unbiased(moments)
                for back in T.serial(parts):
                    first = (parts - 1 - back) * (lanes * unroll) + lane
                    if back > 0:
                        read_plane(x, unroll, vector, X, entry, channel, first, lanes, length, entry < batch)
                    for k in T.unroll(unroll):
                        if entry < batch and first + k * lanes < length:
                            normalize_vector(x, k, vector, affine, dtype)
                            write_plane(x, k, vector, Y, entry, channel, first, lanes)
            move_to_means(M, V, running, channel, totals, shares, slot, lane, slots, T.cast(batch, "float32"), momentum)

    return normalize
