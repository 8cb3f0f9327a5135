"""BatchNorm on CUDA of small channels: a block for each, whose threads have all of it in registers at once.

x is seen as `macros/cuda_planes.py` says. All sizes are dynamic, and offsets are 64 bits wide.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_channels import move_statistics, read_affine, read_running
from tileops_kernels.macros.cuda_moments import split_mean
from tileops_kernels.macros.cuda_planes import map_sizes
from tileops_kernels.macros.cuda_rows import add_over_lanes, warps_of
from tileops_kernels.macros.division import quotient


def batch_norm_small(dtype, scales, vector, threads, unroll):
    """Training with a block for each channel; parameters X, W, B, M, V, Y, eps, momentum, flags, and a divisor.

    The others are as for batch_norm_channels; the divisor is the vectors of a plane. A channel has at most `threads *
    unroll` vectors, which in half precision are few enough for their sum to give all digits of the mean; else the mean
    of what elements differ from it by is added to it.
    """
    batch, channels, length = map_sizes()
    exact = dtype != "float32"

    @T.macro
    def read_places(x, X, entries, places, channel, thread, count, plane, factor, shift):
        for k in T.unroll(unroll):
            entries[k] = quotient(thread + k * threads, factor, shift)
            places[k] = thread + k * threads - entries[k] * plane
            T.assume(entries[k] >= 0 and T.cast(entries[k], "int64") < batch)
            T.assume(places[k] >= 0 and T.cast(places[k], "int64") < length)
            if thread + k * threads < count:
                for v in T.vectorized(vector):
                    x[k, v] = X[entries[k], channel, places[k], v]

    @T.macro
    def add_elements(values, x, sums, thread, count):
        """Widen x to values; sums[0] = the sum of what a thread has."""
        sums[0] = T.float32(0)
        for k in T.unroll(unroll):
            if thread + k * threads < count:
                part = T.alloc_var("float32")
                part = T.float32(0)
                for v in T.unroll(vector):
                    values[k, v] = T.cast(x[k, v], "float32")
                    part += values[k, v]
                sums[0] += part

    @T.macro
    def add_deviations(values, sums, mean, thread, count):
        """Take the mean from values; sums[0] = the sum of their squares, and unless `exact` sums[1] their own."""
        sums[0] = T.float32(0)
        sums[1] = T.float32(0)
        for k in T.unroll(unroll):
            if thread + k * threads < count:
                part = T.alloc_var("float32")
                part = T.float32(0)
                for v in T.unroll(vector):
                    values[k, v] -= mean[0]
                    part += values[k, v] * values[k, v]
                    if not exact:
                        sums[1] += values[k, v]
                sums[0] += part

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
        with T.Kernel(channels, threads=threads) as block:
            thread = T.get_thread_binding(0)
            channel = T.cast(block, "int64")
            count = T.cast(batch * length, "int32")
            elements = T.cast(count * vector, "float32")
            inverse = T.alloc_var("float32")
            inverse = T.float32(1) / elements
            x = T.alloc_local((unroll, vector), dtype)
            values = T.alloc_local((unroll, vector), "float32")
            entries = T.alloc_local((unroll,), "int32")
            places = T.alloc_local((unroll,), "int32")
            sums = T.alloc_local((2,), "float32")
            mean = T.alloc_local((1,), "float32")
            rest = T.alloc_local((1,), "float32")
            scale = T.alloc_local((1,), "float32")
            given = T.alloc_local((2,), scales)
            running = T.alloc_local((2,), "float32")
            partial = T.alloc_shared((2, 2 * warps_of(threads)), "float32")
            read_places(x, X, entries, places, channel, thread, count, T.cast(length, "int32"), factor, shift)
            read_affine(given, W, B, channel, flags)
            if flags & 4 != 0:
                read_running(running, M, V, channel)
            add_elements(values, x, sums, thread, count)
            add_over_lanes(sums, partial, 0, thread, threads)
            split_mean(mean, rest, 0, sums[0], elements, inverse)
            add_deviations(values, sums, mean, thread, count)
            add_over_lanes(sums, partial, 1, thread, threads, count=1 if exact else 2)
            if not exact:
                rest[0] = sums[1] * inverse
            squares = T.alloc_var("float32")
            squares = sums[0] - rest[0] * rest[0] * elements
            squares = T.if_then_else(squares < T.float32(0), T.float32(0), squares)
            scale[0] = T.rsqrt(squares * inverse + eps)
            if flags & 4 != 0 and thread == 0:
                variance = squares / (elements - T.float32(1))
                move_statistics(M, V, running, channel, mean[0] + rest[0], variance, momentum)
            rest[0] *= scale[0]
            for k in T.unroll(unroll):
                if thread + k * threads < count:
                    for v in T.unroll(vector):
                        value = values[k, v] * scale[0] - rest[0]
                        x[k, v] = T.cast(value * T.cast(given[0], "float32") + T.cast(given[1], "float32"), dtype)
                    T.assume(entries[k] >= 0 and T.cast(entries[k], "int64") < batch)
                    T.assume(places[k] >= 0 and T.cast(places[k], "int64") < length)
                    for v in T.vectorized(vector):
                        Y[entries[k], channel, places[k], v] = x[k, v]

    return normalize
