"""Rows on CUDA: what the threads that share a row do together."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import combine

WARP = 32


def warps_of(lanes):
    """Warps among the `lanes` threads of a row, at least 1: the partial sums that a row needs in shared memory."""
    return max(lanes // WARP, 1)


@T.macro
def combine_over_lanes(operation, total, partial, slot, lane, lanes):
    """total[0] = `operation` over total[0] of the `lanes` threads of a row, in every one of them.

    `lanes` is a power of two below 32, or a multiple of 32. `partial` is shared, (rows in the block, warps_of(lanes)),
    and used by one such step of a program; every thread of the block must arrive here.
    """
    for step in T.unroll(min(lanes, WARP).bit_length() - 1):
        total[0] = combine(operation, total[0], T.shfl_xor(total[0], 1 << step))
    if lanes > WARP:
        if lane % WARP == 0:
            partial[slot, lane // WARP] = total[0]
        T.sync_threads()
        total[0] = partial[slot, 0]
        for warp in T.unroll(lanes // WARP - 1):
            total[0] = combine(operation, total[0], partial[slot, warp + 1])


@T.macro
def add_over_lanes(total, partial, slot, lane, lanes):
    """total[0] = the sum of total[0] over the `lanes` threads of a row, in each; see combine_over_lanes."""
    combine_over_lanes("sum", total, partial, slot, lane, lanes)


KEEP_PACKED = """
static __device__ __forceinline__ int tileops_keep_packed(void *vector) {
  uint4 *bits = (uint4 *)vector;
  asm volatile("" : "+r"(bits->x), "+r"(bits->y), "+r"(bits->z), "+r"(bits->w));
  return 0;
}
"""
"""CUDA text for `T.Kernel(..., prelude=)` of a program that calls keep_packed."""


@T.macro
def keep_packed(x, k):
    """Make the compiler forget what it knows of vector `k` of x, 16 bytes in registers; it costs no instruction.

    Without it the float32 values of a first use are kept for the second in twice the registers, or spilled.
    """
    T.evaluate(T.call_extern("int32", "tileops_keep_packed", T.address_of(x[k, 0])))
