"""Rows on CUDA: what the threads that share a row do together."""

import tilelang.language as T  # noqa: N812
from tilelang import tvm

from tileops_kernels.macros.combining import combine, identity, precedes

WARP = 32

WARP_REDUCTIONS = {"sum": "__reduce_add_sync", "amax": "__reduce_max_sync", "amin": "__reduce_min_sync"}
"""CUDA's functions that combine the int32 values of a warp by one instruction."""


def warps_of(lanes):
    """Warps among the `lanes` threads of a row, at least 1: the partial sums that a row needs in shared memory."""
    return max(lanes // WARP, 1)


@T.macro
def combine_over_lanes(operation, total, partial, slot, lane, lanes, count=1):
    """total[i] = `operation` over total[i] of the `lanes` threads of a row, in each of them, for each i below count.

    `lanes` is a power of two below 32, or a multiple of 32. `partial` is shared, (rows in the block, count *
    warps_of(lanes)), and used by one such step of a program; every thread of the block must arrive here.
    """
    at_once = total.dtype == "int32" and lanes >= WARP and operation in WARP_REDUCTIONS
    for i in T.unroll(count):
        if at_once:
            total[i] = T.call_extern("int32", WARP_REDUCTIONS[operation], T.uint32(0xFFFFFFFF), total[i])
        for step in T.unroll(0 if at_once else min(lanes, WARP).bit_length() - 1):
            if operation in ("amax", "amin"):
                other = T.alloc_var(total.dtype)  # combine reads it more than once, and every lane must shuffle
                other = T.shfl_xor(total[i], 1 << step)
                total[i] = combine(operation, total[i], other)
            else:
                total[i] = combine(operation, total[i], T.shfl_xor(total[i], 1 << step))
    if lanes > WARP:
        if lane % WARP == 0:
            for i in T.unroll(count):
                partial[slot, i * warps_of(lanes) + lane // WARP] = total[i]
        T.sync_threads()
        for i in T.unroll(count):
            total[i] = partial[slot, i * warps_of(lanes)]
            for warp in T.unroll(lanes // WARP - 1):
                total[i] = combine(operation, total[i], partial[slot, i * warps_of(lanes) + warp + 1])


@T.macro
def add_over_lanes(total, partial, slot, lane, lanes, count=1, others=False):
    """total[i] = the sum of total[i] over the `lanes` threads of a row, in each of them, for each i below count.

    As combine_over_lanes, but the sum over warps begins at zero: that is the form that was measured. Where there are
    `others`, threads whose lane is no less than `lanes`, the sum is in each of those too; a row then has several warps.
    """
    if not others or lane < lanes:
        for i in T.unroll(count):
            for step in T.unroll(min(lanes, WARP).bit_length() - 1):
                total[i] += T.shfl_xor(total[i], 1 << step)
    if lanes > WARP:
        if lane % WARP == 0 and (not others or lane < lanes):
            for i in T.unroll(count):
                partial[slot, i * warps_of(lanes) + lane // WARP] = total[i]
        T.sync_threads()
        for i in T.unroll(count):
            total[i] = T.float32(0)
            for warp in T.unroll(lanes // WARP):
                total[i] += partial[slot, i * warps_of(lanes) + warp]


READ_ONCE = """
static __device__ __forceinline__ int tileops_read_once(void *target, const void *source) {
  *(uint4 *)target = __ldcs((const uint4 *)source);
  return 0;
}
"""
"""CUDA text for `T.Kernel(..., prelude=)` of a program that calls read_once."""


def fills_access(vector, dtype):
    """Whether `vector` elements of `dtype` take the 16 bytes that read_once reads."""
    return vector * tvm.DataType(str(dtype)).bits == 128


def fits_access(vector, dtype):
    """Whether `vector` elements of `dtype` take at most the 16 bytes of one access."""
    return vector * tvm.DataType(str(dtype)).bits <= 128


@T.macro
def first_over_lanes(operation, value, position, values, positions, slot, lane, lanes):
    """value[0] at position[0] = the extreme over the `lanes` threads of a row and where it stands, in each of them.

    As combine_over_lanes; `values` and `positions` are shared, (rows in the block, warps_of(lanes)).
    """
    other = T.alloc_var("float32")
    place = T.alloc_var("int64")
    for step in T.unroll(min(lanes, WARP).bit_length() - 1):
        other = T.shfl_xor(value[0], 1 << step)
        place = T.shfl_xor(position[0], 1 << step)
        if precedes(operation, other, place, value[0], position[0]):
            value[0] = other
            position[0] = place
    if lanes > WARP:
        if lane % WARP == 0:
            values[slot, lane // WARP] = value[0]
            positions[slot, lane // WARP] = position[0]
        T.sync_threads()
        for warp in T.serial(lanes // WARP):
            if precedes(operation, values[slot, warp], positions[slot, warp], value[0], position[0]):
                value[0] = values[slot, warp]
                position[0] = positions[slot, warp]


@T.macro
def scan_over_lanes(operation, total, before, carry, partial, slot, side, lane, lanes, count):
    """before[k] = `operation` over what stands before this thread's total[k]; carry[0] takes in all that they hold.

    What stands before is carry[0], then total[0] of all lanes, total[1] of all lanes, and so on; k is below `count`,
    and total is overwritten. `lanes` is a power of two. `partial` is shared, (rows in the block, 2 * count *
    warps_of(lanes)); a loop that alternates `side` between 0 and 1 needs no other barrier. Every thread of the block
    must arrive here.
    """
    width, warps = min(lanes, WARP), warps_of(lanes)
    other = T.alloc_var(total.dtype)
    for k in T.unroll(count):
        for step in T.unroll(width.bit_length() - 1):
            other = T.shfl_up(total[k], 1 << step, width)
            if lane % width >= 1 << step:
                total[k] = combine(operation, other, total[k])
        other = T.shfl_up(total[k], 1, width)
        before[k] = T.if_then_else(lane % width > 0, other, identity(operation, total.dtype))
    if lanes > WARP:
        if lane % WARP == WARP - 1:
            for k in T.unroll(count):
                partial[slot, (side * count + k) * warps + lane // WARP] = total[k]
        T.sync_threads()
        for k in T.unroll(count):
            total[k] = partial[slot, (side * count + k) * warps + lane % warps]
            for step in T.unroll(warps.bit_length() - 1):
                other = T.shfl_up(total[k], 1 << step, warps)
                if lane % warps >= 1 << step:
                    total[k] = combine(operation, other, total[k])
            other = T.shfl_sync(total[k], T.max(lane // WARP - 1, 0), warps)
            if lane >= WARP:
                before[k] = combine(operation, other, before[k])
    for k in T.unroll(count):
        before[k] = combine(operation, carry[0], before[k])
        other = T.shfl_sync(total[k], (warps if lanes > WARP else width) - 1, warps if lanes > WARP else width)
        carry[0] = combine(operation, carry[0], other)


@T.macro
def read_once(target, place, source, offset):
    """Read 16 bytes to element `place` of `target` from element `offset` of `source`, which caches are to drop first.

    For what no one reads again: it displaces neither what others will read nor results that wait to be written.
    """
    T.evaluate(
        T.call_extern(
            "int32",
            "tileops_read_once",
            target.access_ptr("w", offset=place),
            source.access_ptr("r", offset=offset),
        )
    )


@T.macro
def read_vectors(x, steps, vector, source, row, first, step, n, whole, present, once=False):
    """x[k, :] = `vector` elements of a row of `source` from element first + k * step on, for each k below steps.

    Vectors that begin at `n` or later are left out, unless the row is known to be `whole`; all are where the row is not
    `present`. A vector that is read `once` takes 16 bytes.
    """
    for k in T.unroll(steps):
        if (whole or first + k * step < n) and present:
            if once:
                read_once(x, k * vector, source, row * source.shape[1] + first + k * step)
            else:
                for v in T.vectorized(vector):
                    x[k, v] = source[row, first + k * step + v]


@T.macro
def read_parameter(w, steps, vector, source, first, step, n, whole):
    """w[k, :] = `vector` elements of `source`, which all rows share, as read_vectors does.

    Elements wider than the rows' are read in as many accesses of 16 bytes as they take.
    """
    for k in T.unroll(steps):
        if whole or first + k * step < n:
            if fits_access(vector, source.dtype):
                for v in T.vectorized(vector):
                    w[k, v] = source[first + k * step + v]
            else:
                for part in T.unroll(vector // 4):
                    for v in T.vectorized(4):
                        w[k, part * 4 + v] = source[first + k * step + part * 4 + v]


@T.macro
def write_vector(x, k, vector, target, row, first, step, n, whole, present, policy=None):
    """Write x[k, :] to where read_vectors reads it, by a `policy` of result_policy."""
    if (whole or first + k * step < n) and present:
        write_result(x, k, vector, target, (row, first + k * step), policy)


@T.macro
def add_squares(total, x, steps, vector, first, step, n, whole):
    """total[0] += the squares in float32 of the elements of x that read_vectors with the same arguments has read."""
    for k in T.unroll(steps):
        if whole or first + k * step < n:
            for v in T.unroll(vector):
                total[0] += T.cast(x[k, v], "float32") * T.cast(x[k, v], "float32")


RESIDENT = 48 << 20
"""Bytes of a result that the L2 of a Hopper holds, about."""

KEEP_RESULTS = """
typedef unsigned long long tileops_policy;
static __device__ __forceinline__ tileops_policy tileops_result_policy(int kept) {
  tileops_policy last, other;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(other));
  return kept ? last : other;
}
static __device__ __forceinline__ int tileops_write_result(void *target, const void *vector, tileops_policy policy) {
  uint4 bits = *(const uint4 *)vector;
  asm volatile("st.global.L2::cache_hint.v4.u32 [%4], {%0, %1, %2, %3}, %5;"
               :: "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w), "l"(target), "l"(policy) : "memory");
  return 0;
}
"""
"""CUDA text for `T.Kernel(..., prelude=)` of a program that calls result_policy and write_result."""


def result_policy(elements, vector, dtype):
    """How a result of so many elements, written `vector` at a time, is to stay in L2: None leaves that to the device.

    One that L2 cannot hold whole stays in place of what was read. A smaller one is found there all the same, and is not
    marked, since marked lines stay when no one needs them any more.
    """
    if not fills_access(vector, dtype):
        return None
    large = elements * tvm.DataType(str(dtype)).bits > 8 * RESIDENT
    return T.call_extern("uint64", "tileops_result_policy", T.cast(large, "int32"))


def shifted(place, step):
    """The indices of an element that is `step` behind the one at `place`."""
    return (*place[:-1], place[-1] + step)


@T.macro
def write_result(x, k, vector, target, place, policy):
    """Write x[k, :] to `target` from the element at the indices `place` on, by a `policy` of result_policy."""
    if policy is None:
        for v in T.vectorized(vector):
            target[shifted(place, v)] = x[k, v]
    else:
        T.evaluate(
            T.call_extern("int32", "tileops_write_result", T.address_of(target[place]), T.address_of(x[k, 0]), policy)
        )


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
