"""BatchNorm on a CPU: by the batch's statistics channels are shared among threads, by given ones planes.

Where channels are shared, x is seen as (batch, stride): a batch entry holds `stride` elements, those of a channel
`length` together. Arguments that a thread gets begin at its own first channel. All sizes are dynamic.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, PIECE, load_block, storage_dtype, store_block
from tileops_kernels.macros.cpu_moments import add_block, clear_lanes, moments_over_lanes

_STEPS = {"W": 1, "B": 1, "M": 1, "V": 1}


@T.macro
def set_affine(affine, W, B, channel, flags):
    """affine[2], affine[3] = the channel's weight and bias, or what changes nothing."""
    affine[2] = T.float32(1)
    affine[3] = T.float32(0)
    if flags & 1 != 0:
        affine[2] = W[channel]
    if flags & 2 != 0:
        affine[3] = B[channel]


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


def batch_norm_given(dtype):
    """Planes of `length` elements, one after the other as they lie in memory, by statistics that are given.

    Parameters X (planes, length), W, B, M, V (channels), Y, start, eps and flags; sizes channels, length, planes.
    `start` is the place of the first plane, whose channel follows from it; `flags` are those of batch_norm_planes.
    """
    planes, length, channels = (T.dynamic(name, "int64") for name in ("planes", "length", "channels"))
    storage = storage_dtype(dtype)

    @T.prim_func
    def infer(
        X: T.Tensor[(planes, length), storage],
        W: T.Tensor[(channels,), "float32"],
        B: T.Tensor[(channels,), "float32"],
        M: T.Tensor[(channels,), "float32"],
        V: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[(planes, length), storage],
        start: T.int64,
        eps: T.float32,
        flags: T.int32,
    ):
        with T.Kernel(planes) as plane:
            affine = T.alloc_local((4,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            channel = T.alloc_local((1,), "int64")
            channel[0] = T.truncmod(start + plane, channels)
            T.assume(channel[0] >= 0 and channel[0] < channels)
            affine[0] = M[channel[0]]
            affine[1] = T.rsqrt(V[channel[0]] + eps)
            set_affine(affine, W, B, channel[0], flags)
            write_plane(X, Y, plane, 0, length, x, affine, dtype)

    return infer, RowSplit("planes", {"X": "length", "Y": "length"}, work="length", start="start")


def batch_norm_planes(dtype):
    """Planes of `length` elements by the batch's statistics: X, W, B, M, V, Y, length, eps, momentum and flags.

    The sizes are batch, channels and stride. `flags` has bit 1 set where W is to be read, bit 2 where B is, and bit 4
    where M and V are moved by `momentum`; a tensor that is not read may be any of its shape.
    """
    batch = T.dynamic("batch", "int64")
    stride = T.dynamic("stride", "int64")
    channels = T.dynamic("channels", "int64")
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
            x = T.alloc_local((BLOCK,), "float32")
            clear_lanes(counts, pivots, means, squares)
            for entry in T.serial(batch):
                add_plane(
                    X, entry, channel * length, length, x, counts, pivots, means, squares, block_means, block_squares
                )
            moments_over_lanes(counts, pivots, means, squares, result)
            affine[0] = result[1] + result[2]
            affine[1] = T.rsqrt(result[3] / result[0] + eps)
            if flags & 4 != 0:
                M[channel] = momentum * affine[0] + (T.float32(1) - momentum) * M[channel]
                V[channel] = (
                    momentum * (result[3] / (result[0] - T.float32(1))) + (T.float32(1) - momentum) * V[channel]
                )
            set_affine(affine, W, B, channel, flags)
            for entry in T.serial(batch):
                write_plane(X, Y, entry, channel * length, length, x, affine, dtype)

    program = _program(normalize, (batch, stride), channels, storage, True)
    return program, RowSplit("channels", {"X": "length", "Y": "length", **_STEPS}, work="batch * length")


def batch_norm_columns(dtype, training):
    """Planes of one element, whose neighbouring channels are neighbours in memory; otherwise as batch_norm_planes."""
    batch = T.dynamic("batch", "int64")
    stride = T.dynamic("stride", "int64")
    channels = T.dynamic("channels", "int64")
    storage = storage_dtype(dtype)

    @T.macro
    def statistics(X, M, V, first, x, means, scales, eps, momentum, flags, width):
        for c in T.serial(width):
            means[c] = T.float32(0)
            scales[c] = T.float32(0)
        for entry in T.serial(batch):
            load_block(X, entry, first, x, width, dtype)
            share = T.float32(1) / T.cast(entry + 1, "float32")
            for c in T.serial(width):
                difference = x[c] - means[c]
                means[c] += difference * share
                scales[c] += difference * (x[c] - means[c])
        count = T.cast(batch, "float32")
        if flags & 4 != 0:
            for c in T.serial(width):
                M[first + c] = momentum * means[c] + (T.float32(1) - momentum) * M[first + c]
                V[first + c] = (
                    momentum * (scales[c] / (count - T.float32(1))) + (T.float32(1) - momentum) * V[first + c]
                )
        for c in T.serial(width):
            scales[c] = T.rsqrt(scales[c] / count + eps)

    @T.macro
    def normalize(X, W, B, M, V, Y, length, eps, momentum, flags):
        with T.Kernel(T.ceildiv(channels, BLOCK)) as part:
            first = part * BLOCK * length
            width = T.cast(T.min(channels - first, BLOCK), "int32")
            means = T.alloc_local((BLOCK,), "float32")
            scales = T.alloc_local((BLOCK,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            weights = T.alloc_local((BLOCK,), "float32")
            biases = T.alloc_local((BLOCK,), "float32")
            if training:
                statistics(X, M, V, first, x, means, scales, eps, momentum, flags, width)
            else:
                for c in T.serial(width):
                    means[c] = M[first + c]
                    scales[c] = T.rsqrt(V[first + c] + eps)
            for c in T.serial(width):
                weights[c] = T.float32(1)
                biases[c] = T.float32(0)
            if flags & 1 != 0:
                for c in T.serial(width):
                    weights[c] = W[first + c]
            if flags & 2 != 0:
                for c in T.serial(width):
                    biases[c] = B[first + c]
            for entry in T.serial(batch):
                load_block(X, entry, first, x, width, dtype)
                for c in T.serial(width):
                    x[c] = (x[c] - means[c]) * scales[c] * weights[c] + biases[c]
                store_block(x, Y, entry, first, width, dtype)

    program = _program(normalize, (batch, stride), channels, storage, training)
    return program, RowSplit("channels", {"X": "length", "Y": "length", **_STEPS}, work="batch * length")


def _program(body, elements, channels, storage, training):
    """The program that runs the macro `body`, with `momentum` among its parameters where it is training."""
    if training:

        @T.prim_func
        def train(
            X: T.Tensor[elements, storage],
            W: T.Tensor[(channels,), "float32"],
            B: T.Tensor[(channels,), "float32"],
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
        W: T.Tensor[(channels,), "float32"],
        B: T.Tensor[(channels,), "float32"],
        M: T.Tensor[(channels,), "float32"],
        V: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[elements, storage],
        length: T.int64,
        eps: T.float32,
        flags: T.int32,
    ):
        body(X, W, B, M, V, Y, length, eps, None, flags)

    return infer
