"""The gradients of BatchNorm in training on a CPU: channels are shared among threads, which read their planes twice.

grad_out, x and grad_x are seen as (batch, stride): a batch entry holds `stride` elements, those of a channel `length`
together. Arguments that a thread gets begin at its own first channel. All sizes are dynamic. Sums of a few elements are
formed in float32 and added up in float64, so that a channel of any size keeps its digits.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import BLOCK, LANES, load_block, offset_of, start_of, storage_dtype, store_block

ENTRIES = 16
"""Batch entries whose sums are formed in float32 where planes have one element."""

_SPLIT = RowSplit(
    "channels",
    {"G": "length", "X": "length", "Y": "length", "W": 1, "S": 1, "R": 1, "D": 1, "E": 1},
    work="batch * length",
)


def element(source, entry, first, block, k, dtype):
    """Element first + k of an entry as float32: from `block`, where load_narrow has put it, or as it lies in memory."""
    if dtype != "float32":
        return block[k]
    place = offset_of(source, entry, first + k)
    return T.call_extern("float32", "tileops_element_float32", start_of(source), place)


@T.macro
def load_narrow(source, entry, first, block, width, dtype):
    """load_block, but for float32, which needs no conversion: a copy would cost more than the sums of a block."""
    if dtype != "float32":
        load_block(source, entry, first, block, width, dtype)


def batch_norm_bwd_planes(dtype):
    """Planes of `length` elements; parameters G, X, W, S, R, Y, D, E and length: as in the program on CUDA.

    The sizes are batch, channels and stride.
    """

    @T.macro
    def add_block(G, X, entry, first, g, x, mean, width, totals, products, part_totals, part_products):
        load_narrow(G, entry, first, g, width, dtype)
        load_narrow(X, entry, first, x, width, dtype)
        for lane in T.serial(LANES):
            part_totals[lane] = T.float32(0)
            part_products[lane] = T.float32(0)
        for k in T.serial(width // LANES):
            for lane in T.serial(LANES):
                gradient = element(G, entry, first, g, k * LANES + lane, dtype)
                part_totals[lane] += gradient
                part_products[lane] += gradient * (element(X, entry, first, x, k * LANES + lane, dtype) - mean)
        for lane in T.serial(width % LANES):
            k = width // LANES * LANES + lane
            gradient = element(G, entry, first, g, k, dtype)
            part_totals[lane] += gradient
            part_products[lane] += gradient * (element(X, entry, first, x, k, dtype) - mean)
        for lane in T.serial(LANES):
            totals[lane] += T.cast(part_totals[lane], "float64")
            products[lane] += T.cast(part_products[lane], "float64")

    @T.macro
    def write_block(G, X, Y, entry, first, g, x, slopes, width):
        load_narrow(G, entry, first, g, width, dtype)
        load_narrow(X, entry, first, x, width, dtype)
        for k in T.serial(width):
            along = (element(X, entry, first, x, k, dtype) - slopes[0]) * slopes[2]
            g[k] = (element(G, entry, first, g, k, dtype) - slopes[1] - along) * slopes[3]
        store_block(g, Y, entry, first, width, dtype)

    @T.macro
    def differentiate(G, X, W, S, R, Y, D, E, length, batch, channels):
        with T.Kernel(channels) as channel:
            totals = T.alloc_local((LANES,), "float64")
            products = T.alloc_local((LANES,), "float64")
            part_totals = T.alloc_local((LANES,), "float32")
            part_products = T.alloc_local((LANES,), "float32")
            sums = T.alloc_local((2,), "float64")
            slopes = T.alloc_local((4,), "float32")
            g = T.alloc_local((BLOCK,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            slopes[0] = S[channel]
            for lane in T.serial(LANES):
                totals[lane] = T.float64(0)
                products[lane] = T.float64(0)
            for entry in T.serial(batch):
                for j in T.serial(length // BLOCK):
                    first = channel * length + j * BLOCK
                    add_block(G, X, entry, first, g, x, slopes[0], BLOCK, totals, products, part_totals, part_products)
                if length % BLOCK > 0:
                    first = channel * length + length // BLOCK * BLOCK
                    rest = T.cast(length % BLOCK, "int32")
                    add_block(G, X, entry, first, g, x, slopes[0], rest, totals, products, part_totals, part_products)
            for i in T.serial(2):
                sums[i] = T.float64(0)
            for lane in T.serial(LANES):
                sums[0] += totals[lane]
                sums[1] += products[lane]
            E[channel] = T.cast(sums[0], "float32")
            D[channel] = T.cast(sums[1], "float32") * R[channel]
            slopes[1] = E[channel] / T.cast(batch * length, "float32")
            slopes[2] = D[channel] / T.cast(batch * length, "float32") * R[channel]
            slopes[3] = R[channel] * W[channel]
            for entry in T.serial(batch):
                for j in T.serial(length // BLOCK):
                    write_block(G, X, Y, entry, channel * length + j * BLOCK, g, x, slopes, BLOCK)
                if length % BLOCK > 0:
                    first = channel * length + length // BLOCK * BLOCK
                    write_block(G, X, Y, entry, first, g, x, slopes, T.cast(length % BLOCK, "int32"))

    return _program(differentiate, dtype), _SPLIT


def batch_norm_bwd_columns(dtype):
    """Planes of one element, whose channels are neighbours in memory; otherwise as batch_norm_bwd_planes."""

    @T.macro
    def differentiate(G, X, W, S, R, Y, D, E, length, batch, channels):
        with T.Kernel(T.ceildiv(channels, BLOCK)) as part:
            first = part * BLOCK * length
            width = T.cast(T.min(channels - first, BLOCK), "int32")
            totals = T.alloc_local((BLOCK,), "float64")
            products = T.alloc_local((BLOCK,), "float64")
            part_totals = T.alloc_local((BLOCK,), "float32")
            part_products = T.alloc_local((BLOCK,), "float32")
            means = T.alloc_local((BLOCK,), "float32")
            steady = T.alloc_local((BLOCK,), "float32")
            along = T.alloc_local((BLOCK,), "float32")
            scales = T.alloc_local((BLOCK,), "float32")
            g = T.alloc_local((BLOCK,), "float32")
            x = T.alloc_local((BLOCK,), "float32")
            for c in T.serial(width):
                totals[c] = T.float64(0)
                products[c] = T.float64(0)
                means[c] = S[first + c]
            for turn in T.serial((batch + ENTRIES - 1) // ENTRIES):
                for c in T.serial(width):
                    part_totals[c] = T.float32(0)
                    part_products[c] = T.float32(0)
                for k in T.serial(T.min(batch - turn * ENTRIES, ENTRIES)):
                    load_narrow(G, turn * ENTRIES + k, first, g, width, dtype)
                    load_narrow(X, turn * ENTRIES + k, first, x, width, dtype)
                    for c in T.serial(width):
                        gradient = element(G, turn * ENTRIES + k, first, g, c, dtype)
                        value = element(X, turn * ENTRIES + k, first, x, c, dtype)
                        part_totals[c] += gradient
                        part_products[c] += gradient * (value - means[c])
                for c in T.serial(width):
                    totals[c] += T.cast(part_totals[c], "float64")
                    products[c] += T.cast(part_products[c], "float64")
            count = T.cast(batch, "float32")
            for c in T.serial(width):
                E[first + c] = T.cast(totals[c], "float32")
                D[first + c] = T.cast(products[c], "float32") * R[first + c]
                steady[c] = E[first + c] / count
                along[c] = D[first + c] / count * R[first + c]
                scales[c] = R[first + c] * W[first + c]
            for entry in T.serial(batch):
                load_narrow(G, entry, first, g, width, dtype)
                load_narrow(X, entry, first, x, width, dtype)
                for c in T.serial(width):
                    slope = (element(X, entry, first, x, c, dtype) - means[c]) * along[c]
                    g[c] = (element(G, entry, first, g, c, dtype) - steady[c] - slope) * scales[c]
                store_block(g, Y, entry, first, width, dtype)

    return _program(differentiate, dtype), _SPLIT


def _program(body, dtype):
    """The program that runs the macro `body`."""
    batch = T.dynamic("batch", "int64")
    stride = T.dynamic("stride", "int64")
    channels = T.dynamic("channels", "int64")
    storage = storage_dtype(dtype)

    @T.prim_func
    def differentiate(
        G: T.Tensor[(batch, stride), storage],
        X: T.Tensor[(batch, stride), storage],
        W: T.Tensor[(channels,), "float32"],
        S: T.Tensor[(channels,), "float32"],
        R: T.Tensor[(channels,), "float32"],
        Y: T.Tensor[(batch, stride), storage],
        D: T.Tensor[(channels,), "float32"],
        E: T.Tensor[(channels,), "float32"],
        length: T.int64,
    ):
        body(G, X, W, S, R, Y, D, E, length, batch, channels)

    return differentiate
