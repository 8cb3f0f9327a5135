"""GroupNorm on CUDA of groups that blocks share: partial statistics, their merge, and the pass that normalises.

x is seen as `macros/cuda_planes.py` says, and for its statistics as one entry whose channels are the groups of all. All
sizes are dynamic, and offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_channels import normalize_planes
from tileops_kernels.macros.cuda_rows import WARP, warps_of
from tileops_kernels.macros.cuda_statistics import MERGED, form_group_statistics, merge_statistics


def group_norm_shared(dtype, scales, wide, threads, depth, vector, lanes, slots, unroll, span, large):
    """Normalise groups of `span` channels; parameters X, W, B, P, S, Q, Z, Y, eps, flags.

    X and Z are x: X in groups, which `threads` read in vectors of `wide` elements, `depth` at a time, and Z in planes,
    as BatchNorm passes over them. W and B have an element for each channel, of dtype `scales`; `flags` has bit 1 set
    where W is to be read, and bit 2 where B is; a tensor that is not may be any of its shape. P (splits, groups, 4), S
    (groups, 2) and Q (groups,), all float32, are for the partial statistics, the means in two parts and the scales.
    `large` maps are as those of batch_norm_training.
    """
    batch = T.dynamic("batch", "int64")
    channels = T.dynamic("channels", "int64")
    length = T.dynamic("length", "int64")
    groups = T.dynamic("groups", "int64")
    whole = T.dynamic("whole", "int64")
    splits = T.dynamic("splits", "int64")

    @T.prim_func
    def normalize(
        X: T.Tensor[(1, groups, whole, wide), dtype],
        W: T.Tensor[(channels,), scales],
        B: T.Tensor[(channels,), scales],
        P: T.Tensor[(splits, groups, 4), "float32"],
        S: T.Tensor[(groups, 2), "float32"],
        Q: T.Tensor[(groups,), "float32"],
        Z: T.Tensor[(batch, channels, length, vector), dtype],
        Y: T.Tensor[(batch, channels, length, vector), dtype],
        eps: T.float32,
        flags: T.int32,
    ):
        form_group_statistics(X, P, groups, whole, splits, (wide, threads, depth), dtype, large)
        with T.Kernel(T.ceildiv(groups, MERGED), threads=MERGED * WARP) as block:
            thread = T.get_thread_binding(0)
            slot, lane = thread // WARP, thread % WARP
            group = T.cast(block, "int64") * MERGED + slot
            moments = T.alloc_local((3,), "float32")
            sums = T.alloc_local((2,), "float32")
            means = T.alloc_shared((MERGED, 2 * warps_of(WARP)), "float32")
            squares = T.alloc_shared((MERGED, 2 * warps_of(WARP)), "float32")
            merge_statistics(moments, sums, means, squares, P, S, Q, group, groups, splits, eps, slot, lane)
        sizes = (vector, lanes, slots, unroll)
        normalize_planes(Z, W, B, S, Q, Y, eps, flags, batch, channels, length, sizes, dtype, False, large, False, span)

    return normalize
