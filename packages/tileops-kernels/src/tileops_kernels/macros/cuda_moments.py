"""Mean and squared deviations on CUDA, merged so that a large mean costs no digits.

A thread holds `moments`, float32 (3,): how many elements it has seen, their mean, and the sum of their squared
deviations from it.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.cuda_rows import add_over_lanes, keep_packed


def sum_of_vector(x, k, vector):
    """The sum of x[k, :] in float32: sums of several vectors are formed beside each other, and then added up."""
    total = T.cast(x[k, 0], "float32")
    for v in range(1, vector):
        total = total + T.cast(x[k, v], "float32")
    return total


def differences_of_vector(x, k, vector, center):
    """The sum of what x[k, :] differs from `center` by, in float32."""
    total = T.cast(x[k, 0], "float32") - center
    for v in range(1, vector):
        total = total + (T.cast(x[k, v], "float32") - center)
    return total


def squares_of_vector(x, k, vector, center):
    """The sum of the squares of what x[k, :] differs from `center` by, in float32."""
    total = T.float32(0)
    for v in range(vector):
        difference = T.cast(x[k, v], "float32") - center
        total = total + difference * difference
    return total


def share_of(value, seen, total):
    """`value` divided by the elements `seen`, 0 where they may be none since no `total` is known."""
    return value / seen if total is not None else T.if_then_else(seen > T.float32(0), value / seen, T.float32(0))


@T.macro
def split_mean(mean, rest, i, total, count, inverse):
    """mean[i] + rest[i] = `total` / `count`, float32, in twice as many digits as one of them has.

    `inverse` is 1 / count. The product of the mean with the count is taken from the total before it is rounded. Of
    elements alike in size, at most 8192 in float16 or 65536 in bfloat16, `total` itself has lost nothing.
    """
    mean[i] = total * inverse
    rest[i] = T.call_extern("float32", "fmaf", -count, mean[i], total) * inverse


@T.macro
def clear_moments(moments):
    """No elements seen."""
    for i in T.unroll(3):
        moments[i] = T.float32(0)


@T.macro
def merge_moments(moments, count, mean, squares):
    """Add to `moments` those of `count` further elements; `count` may be 0.

    A mean that is infinite stays what a sum would give: differences from it are no numbers.
    """
    if count > T.float32(0):
        total = moments[0] + count
        share = count / total
        difference = mean - moments[1]
        merged = moments[1] + difference * share
        moments[1] = T.if_then_else(T.isnan(merged), moments[1] + mean, merged)
        moments[2] += squares + difference * (difference * (moments[0] * share))
        moments[0] = total


@T.macro
def add_vectors(moments, chunk, x, steps, vector, first, step, n, whole, present, packed, apart=False):
    """Add the elements of x to `moments`, those that read_vectors with the same arguments has read.

    `chunk` is float32 (3,), for their own moments. `packed` says that the program has KEEP_PACKED in its prelude and
    that a vector takes 16 bytes; the elements then stay in their dtype between uses. Vectors are summed `apart` and
    then added up, so that no addition waits for that before it, or else take fewer additions and registers.
    """
    clear_moments(chunk)
    for k in T.unroll(steps):
        if (whole or first + k * step < n) and present:
            chunk[0] += T.float32(vector)
            if apart:
                chunk[1] += sum_of_vector(x, k, vector)
            else:
                for v in T.unroll(vector):
                    chunk[1] += T.cast(x[k, v], "float32")
    if chunk[0] > T.float32(0):
        chunk[1] = chunk[1] / chunk[0]
    for k in T.unroll(steps):
        if packed:
            keep_packed(x, k)
        if (whole or first + k * step < n) and present:
            if apart:
                chunk[2] += squares_of_vector(x, k, vector, chunk[1])
            else:
                for v in T.unroll(vector):
                    deviation = T.cast(x[k, v], "float32") - chunk[1]
                    chunk[2] += deviation * deviation
    merge_moments(moments, chunk[0], chunk[1], chunk[2])


@T.macro
def add_differences_of_vectors(moments, chunk, x, steps, vector, first, step, n, whole, present):
    """As add_vectors, by differences from the thread's first element, so that each element is converted once.

    That element being one of the `count` whose squares are wanted, what is subtracted from their sum is at most `count`
    times what is left: at most so many more digits are lost.
    """
    clear_moments(chunk)
    pivot = T.cast(x[0, 0], "float32")
    for k in T.unroll(steps):
        if (whole or first + k * step < n) and present:
            chunk[0] += T.float32(vector)
            chunk[1] += differences_of_vector(x, k, vector, pivot)
            chunk[2] += squares_of_vector(x, k, vector, pivot)
    merge_differences(moments, chunk, pivot)


@T.macro
def merge_differences(moments, chunk, pivot, second=None):
    """Add to `moments` what `chunk` has: a count, the sum of differences from `pivot`, and that of their squares."""
    if chunk[0] > T.float32(0):
        between = chunk[1] / chunk[0]
        squares = chunk[2] - chunk[1] * between
        deviations = T.if_then_else(squares < T.float32(0), T.float32(0), squares)
        if second is None:
            merge_moments(moments, chunk[0], pivot + between, deviations)
        else:
            merge_parts(moments, second, chunk[0], pivot, between, deviations)


@T.macro
def merge_parts(moments, second, count, mean, rest, squares):
    """As merge_moments, of means in two parts, moments[1] and second[0], and `mean` and `rest`.

    What rounding takes from the first part is added to the second, and so are differences from elements.
    """
    if count > T.float32(0):
        total = moments[0] + count
        share = count / total
        between = mean - moments[1]
        difference = between + (rest - second[0])
        shift = between * share
        merged = moments[1] + shift
        moved = merged - moments[1]
        lost = (moments[1] - (merged - moved)) + (shift - moved)
        kept = second[0] + (rest - second[0]) * share + lost
        second[0] = T.if_then_else(T.isnan(kept), T.float32(0), kept)
        moments[1] = T.if_then_else(T.isnan(merged), moments[1] + mean, merged)
        moments[2] += squares + difference * (difference * (moments[0] * share))
        moments[0] = total


@T.macro
def moments_over_lanes(moments, sums, means, squares, slot, lane, lanes, total=None, others=False, second=None):
    """`moments` = those of all `lanes` threads of a row together, in every one of them, and in `others`.

    Their mean is moments[1] + sums[1]: the second part is what rounding took from the first, 0 where that is infinite
    or NaN, as moments[2] is NaN then. All together have seen `total` elements, float32 and above 0, or it is not known.
    `sums` is float32 (2,); `means` and `squares` are shared, (rows in the block, 2 * warps_of(lanes)) each. The mean of
    a thread may have a `second` part, float32 (1,), too. As for add_over_lanes, every thread of the block must arrive
    here.
    """
    sums[0] = moments[0] * moments[1]
    sums[1] = moments[0]
    add_over_lanes(sums, means, slot, lane, lanes, count=1 if total is not None else 2, others=others)
    seen = sums[1] if total is None else total
    mean = share_of(sums[0], seen, total)
    difference = moments[1] - mean if second is None else moments[1] - mean + second[0]
    sums[0] = moments[2] + moments[0] * difference * difference
    sums[1] = moments[0] * difference
    add_over_lanes(sums, squares, slot, lane, lanes, count=2, others=others)
    rest = share_of(sums[1], seen, total)
    deviations = sums[0] - sums[1] * rest
    moments[0] = seen
    moments[1] = mean
    moments[2] = T.if_then_else(deviations < T.float32(0), T.float32(0), deviations)
    sums[1] = T.if_then_else(T.isnan(rest), T.float32(0), rest)
