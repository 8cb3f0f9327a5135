"""BatchNorm on a CPU: by the batch's statistics channels are shared among threads, by given ones planes.

Where channels are shared, x is seen as (batch, stride): a batch entry holds `stride` elements, those of a channel
`length` together. Arguments that a thread gets begin at its own first channel. All sizes are dynamic. Weights and
biases are of dtype `scales`.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, PIECE, load_block, storage_dtype, store_block
from tileops_kernels.macros.cpu_moments import add_block, clear_lanes, merged_mean, moments_over_lanes

_STEPS = {"W": 1, "B": 1, "M": 1, "V": 1}


@T.macro
def load_parameters(weights, biases, W, B, first, width, flags, scales):
    """weights[0:width], biases[0:width] = those of channels from `first` on, or what changes nothing."""
    for c in T.serial(width):
        weights[c] = T.float32(1)
        biases[c] = T.float32(0)
    if flags & 1 != 0:
        load_block(W, (), first, weights, width, scales)
    if flags & 2 != 0:
        load_block(B, (), first, biases, width, scales)


@T.macro
def set_affine(affine, weight, bias, W, B, channel, flags, scales):
    """affine[2], affine[3] = the channel's weight and bias, by way of `weight` and `bias`, of one element."""
    load_parameters(weight, bias, W, B, channel, 1, flags, scales)
    affine[2] = weight[0]
    affine[3] = bias[0]


@T.macro
def write_block(X, Y, row, first, x, affine, width, dtype):
    """Normalize `width` elements of a row from `first` on."""
    load_block(X, row, first, x, width, dtype)
    for k in T.serial(width):
        x[k] = (x[k] - affine[0]) * affine[1] * affine[2] + affine[3]
    store_block(x, Y, row, first, width, dtype)


@T.macro
def write_plane(X, Y, row, first, length, x, affine, dtype):
    """Normalize the `length` elements of a plane, which begins at `first` of its row."""
    for j in T.serial(length // PIECE):
        write_block(X, Y, row, first + j * PIECE, x, affine, PIECE, dtype)
    if length % PIECE > 0:
        write_block(X, Y, row, first + length // PIECE * PIECE, x, affine, T.cast(length % PIECE, "int32"), dtype)


def batch_norm_given(dtype, scales):
    """Planes of `length` elements, one after the other as they lie in memory, by statistics that are given.

    Parameters X (planes, length), W, B, M, V (channels), Y, start, eps and flags; sizes channels, length, planes.
    `start` is the place of the first plane, whose channel follows from it; `flags` are those of batch_norm_planes.
    """
    planes, length, channels = (T.dynamic(name, "int64") for name in ("planes", "length", "channels"))
    storage = storage_dtype(dtype)

    @T.prim_func
    def infer(
        X: T.Tensor[(planes, length), storage],
        W: T.Tensor[(channels,), storage_dtype(scales)],
        B: T.Tensor[(channels,), storage_dtype(scales)],
        M: T.Tensor[(channels,), "float32"],
        V: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[(planes, length), storage],
        start: T.int64,
        eps: T.float32,
        flags: T.int32,
    ):
        with T.Kernel(planes) as plane:
            affine = T.alloc_local((4,), "float32")
            weight = T.alloc_local((1,), "float32")
            bias = T.alloc_local((1,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            channel = T.alloc_local((1,), "int64")
            channel[0] = T.truncmod(start + plane, channels)
            T.assume(channel[0] >= 0 and channel[0] < channels)
            affine[0] = M[channel[0]]
            affine[1] = T.rsqrt(V[channel[0]] + eps)
            set_affine(affine, weight, bias, W, B, channel[0], flags, scales)
            write_plane(X, Y, plane, 0, length, x, affine, dtype)

    return infer, RowSplit("planes", {"X": "length", "Y": "length"}, work="length", start="start")


def batch_norm_planes(dtype, scales, instances):
    """Planes of `length` elements by the batch's statistics: X, W, B, M, V, Y, length, eps, momentum and flags.

    The sizes are batch, channels and stride. `flags` has bit 1 set where W is to be read, bit 2 where B is, and bit 4
    where M and V are moved by `momentum`; a tensor that is not read may be any of its shape. Of `instances` each plane
    has its own statistics, and M and V are moved to their means over the batch.
    """
    batch = T.dynamic("batch", "int64")
    stride = T.dynamic("stride", "int64")
    channels = T.dynamic("channels", "int64")
    groups, entries = (batch, 1) if instances else (1, batch)
    storage = storage_dtype(dtype)

    @T.macro
    def add_plane(X, entry, first, length, x, counts, pivots, means, squares, block_means, block_squares):
        for j in T.serial(length // BLOCK):
            load_block(X, entry, first + j * BLOCK, x, BLOCK, dtype)
            add_block(x, BLOCK, counts, pivots, means, squares, block_means, block_squares)
        if length % BLOCK > 0:
            load_block(X, entry, first + length // BLOCK * BLOCK, x, T.cast(length % BLOCK, "int32"), dtype)
            add_block(x, T.cast(length % BLOCK, "int32"), counts, pivots, means, squares, block_means, block_squares)

    @T.macro
    def normalize(X, W, B, M, V, Y, length, eps, momentum, flags):
        with T.Kernel(channels) as channel:
            counts = T.alloc_local((LANES,), "float32")
            pivots = T.alloc_local((LANES,), "float32")
            means = T.alloc_local((LANES,), "float32")
            squares = T.alloc_local((LANES,), "float32")
            block_means = T.alloc_local((LANES,), "float32")
            block_squares = T.alloc_local((LANES,), "float32")
            result = T.alloc_local((4,), "float32")
            affine = T.alloc_local((4,), "float32")
            weight = T.alloc_local((1,), "float32")
            bias = T.alloc_local((1,), "float32")
            totals = T.alloc_local((2,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            set_affine(affine, weight, bias, W, B, channel, flags, scales)
            for i in T.serial(2):
                totals[i] = T.float32(0)
            for group in T.serial(groups):
                clear_lanes(counts, pivots, means, squares)
                for each in T.serial(entries):
                    entry, first = group * entries + each, channel * length
                    add_plane(X, entry, first, length, x, counts, pivots, means, squares, block_means, block_squares)
                moments_over_lanes(counts, pivots, means, squares, result)
                affine[0] = result[1] + result[2]
                affine[1] = T.rsqrt(result[3] / result[0] + eps)
                totals[0] += affine[0]
                totals[1] += result[3] / (result[0] - T.float32(1))
                for each in T.serial(entries):
                    write_plane(X, Y, group * entries + each, channel * length, length, x, affine, dtype)
            if flags & 4 != 0:
                count = T.cast(groups, "float32")
                M[channel] = momentum * (totals[0] / count) + (T.float32(1) - momentum) * M[channel]
                V[channel] = momentum * (totals[1] / count) + (T.float32(1) - momentum) * V[channel]

    program = _program(normalize, (batch, stride), channels, storage, scales, True)
    return program, RowSplit("channels", {"X": "length", "Y": "length", **_STEPS}, work="batch * length")


def batch_norm_columns(dtype, scales, training):
    """Planes of one element, whose neighbouring channels are neighbours in memory; otherwise as batch_norm_planes."""
    batch = T.dynamic("batch", "int64")
    stride = T.dynamic("stride", "int64")
    channels = T.dynamic("channels", "int64")
    storage = storage_dtype(dtype)

    @T.macro
    def statistics(X, M, V, first, x, means, squares, eps, momentum, flags, width):
        for c in T.serial(width):
            means[c] = T.float32(0)
            squares[c] = T.float32(0)
        for entry in T.serial(batch):
            load_block(X, entry, first, x, width, dtype)
            share = T.float32(1) / T.cast(entry + 1, "float32")
            for c in T.serial(width):
                difference = x[c] - means[c]
                means[c] = merged_mean(means[c], x[c], difference * share)
                squares[c] += difference * (x[c] - means[c])
        count = T.cast(batch, "float32")
        if flags & 4 != 0:
            for c in T.serial(width):
                M[first + c] = momentum * means[c] + (T.float32(1) - momentum) * M[first + c]
                V[first + c] = (
                    momentum * (squares[c] / (count - T.float32(1))) + (T.float32(1) - momentum) * V[first + c]
                )
        for c in T.serial(width):
            squares[c] = T.rsqrt(squares[c] / count + eps)

    @T.macro
    def normalize(X, W, B, M, V, Y, length, eps, momentum, flags):
        with T.Kernel(T.ceildiv(channels, BLOCK)) as part:
            first = part * BLOCK * length
            width = T.cast(T.min(channels - first, BLOCK), "int32")
            means = T.alloc_local((BLOCK,), "float32")
            deviations = T.alloc_local((BLOCK,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            weights = T.alloc_local((BLOCK,), "float32")
            biases = T.alloc_local((BLOCK,), "float32")
            if training:
                statistics(X, M, V, first, x, means, deviations, eps, momentum, flags, width)
            else:
                for c in T.serial(width):
                    means[c] = M[first + c]
                    deviations[c] = T.rsqrt(V[first + c] + eps)
            load_parameters(weights, biases, W, B, first, width, flags, scales)
            for entry in T.serial(batch):
                load_block(X, entry, first, x, width, dtype)
                for c in T.serial(width):
                    x[c] = (x[c] - means[c]) * deviations[c] * weights[c] + biases[c]
                store_block(x, Y, entry, first, width, dtype)

    program = _program(normalize, (batch, stride), channels, storage, scales, training)
    return program, RowSplit("channels", {"X": "length", "Y": "length", **_STEPS}, work="batch * length")


def _program(body, elements, channels, storage, scales, training):
    """The program that runs the macro `body`, with `momentum` among its parameters where it is training."""
    if training:

        @T.prim_func
        def train(
            X: T.Tensor[elements, storage],
            W: T.Tensor[(channels,), storage_dtype(scales)],
            B: T.Tensor[(channels,), storage_dtype(scales)],
            M: T.Tensor[(channels,), "float32"],
            V: T.Tensor[(channels,), "float32"],
            Y: T.Tensor[elements, storage],
            length: T.int64,
            eps: T.float32,
            momentum: T.float32,
            flags: T.int32,
        ):
            body(X, W, B, M, V, Y, length, eps, momentum, flags)

        return train

    @T.prim_func
    def infer(
        X: T.Tensor[elements, storage],
        W: T.Tensor[(channels,), storage_dtype(scales)],
        B: T.Tensor[(channels,), storage_dtype(scales)],
        M: T.Tensor[(channels,), "float32"],
        V: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[elements, storage],
        length: T.int64,
        eps: T.float32,
        flags: T.int32,
    ):
        body(X, W, B, M, V, Y, length, eps, None, flags)

    return infer
