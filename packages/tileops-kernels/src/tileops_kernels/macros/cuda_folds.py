"""Folds on CUDA: what a thread keeps of the elements that it has seen, and what threads make of it together.

A fold keeps, for each of `slots`, some float32 in one array, `state`: a log-sum-exp the greatest element and the sum of
exponentials below it, at slot and slots + slot; moments the number of elements, which slots share, then means and sums
of squared deviations, at 0, 1 + slot and 1 + slots + slot. Elements of moments are differences from `pivots`, each an
element itself, so that a large mean costs no digits. `spare` is as long as state. An element has three parts where it
is what a part of the elements gave: a pivot, the mean of differences from it, and the mean of squared deviations.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import HIGHEST, LOWEST
from tileops_kernels.macros.cuda_exponentials import power
from tileops_kernels.macros.cuda_rows import add_over_lanes, combine_over_lanes, fills_access, read_once


def difference(x, pivots, parts, slots, k, v):
    """Element v of vector k, as a difference from its slot's pivot."""
    first = T.cast(x[0, k, v], "float32") - pivots[v % slots]
    return first if parts == 1 else first + x[1, k, v]


def raised(x, k, v, largest):
    """The exponential of element v of vector k above `largest`; that of a narrow one costs less."""
    narrow = str(x.dtype) if str(x.dtype) in ("float16", "bfloat16") else "float32"
    return power(T.cast(x[0, k, v], "float32") - largest, narrow)


def offset_of(X, indices):
    """The elements before the vector of X at `indices`."""
    offset = T.cast(indices[0], "int64")
    for index, extent in zip(indices[1:], X.shape[1:-1], strict=True):
        offset = offset * extent + index
    return offset * X.shape[-1]


@T.macro
def read_parts(x, X, parts, unroll, vector, place, first, step, limit, present):
    """x[:, k, :] = vector first + k * step of X at `place`, the indices before and behind it, for k below unroll.

    Those that begin at `limit` are left out, and all where nothing is `present`; so do the steps below.
    """
    for k in T.unroll(unroll):
        if present and first + k * step < limit:
            for p in T.unroll(parts):
                if fills_access(vector, x.dtype):
                    indices = (p, place[0], first + k * step, *place[1])
                    read_once(x, (p * unroll + k) * vector, X, offset_of(X, indices))
                else:
                    for v in T.vectorized(vector):
                        x[p, k, v] = X[(p, place[0], first + k * step, *place[1], v)]


@T.macro
def clear_exponentials(state, slots):
    """No elements seen."""
    for s in T.unroll(slots):
        state[s] = T.float32(LOWEST)
        state[slots + s] = T.float32(0)


@T.macro
def add_exponentials(state, spare, x, _pivots, _parts, slots, unroll, vector, first, step, limit, present):
    """Add the elements that read_parts has read; arguments are those of add_differences."""
    for s in T.unroll(slots):
        spare[s] = state[s]
    for k in T.unroll(unroll):
        if present and first + k * step < limit:
            for v in T.unroll(vector):
                state[v % slots] = T.max(state[v % slots], T.cast(x[0, k, v], "float32"))
    for s in T.unroll(slots):
        state[s] = T.min(state[s], T.float32(HIGHEST))
        state[slots + s] *= T.exp(spare[s] - state[s])
    for k in T.unroll(unroll):
        if present and first + k * step < limit:
            for v in T.unroll(vector):
                state[slots + v % slots] += raised(x, k, v, state[v % slots])


@T.macro
def exponentials_over_lanes(state, spare, shared, slot, lane, lanes, _count):
    """`state`, of one slot, = that of all `lanes` threads of a row together, in each of them.

    `shared` is two times what combine_over_lanes needs.
    """
    spare[0] = state[0]
    combine_over_lanes("max", state, shared[0], slot, lane, lanes)
    spare[0] = state[1] * T.exp(spare[0] - state[0])
    combine_over_lanes("sum", spare, shared[1], slot, lane, lanes)
    state[1] = spare[0]


@T.macro
def merge_exponentials(state, other, slots):
    """Add to `state` the elements of another."""
    for s in T.unroll(slots):
        largest = T.max(state[s], other[s])
        state[slots + s] = state[slots + s] * T.exp(state[s] - largest) + other[slots + s] * T.exp(other[s] - largest)
        state[s] = largest


@T.macro
def clear_moments_of(state, slots):
    """No elements seen."""
    for i in T.unroll(1 + 2 * slots):
        state[i] = T.float32(0)


@T.macro
def merge_differences(state, other, slots):
    """Add to `state` the elements of another, which may hold none."""
    if other[0] > T.float32(0):
        share = other[0] / (state[0] + other[0])
        for s in T.unroll(slots):
            between = other[1 + s] - state[1 + s]
            state[1 + s] += between * share
            weighted = between * (state[0] * share)  # nothing where nothing was seen, however far between
            state[1 + slots + s] += other[1 + slots + s] + between * weighted
        state[0] += other[0]


@T.macro
def add_differences(state, spare, x, pivots, parts, slots, unroll, vector, first, step, limit, present):
    """Add the elements that read_parts has read; those of half precision, which lose no digits so, in fewer steps."""
    if parts == 1 and str(x.dtype) != "float32":
        add_lean_differences(state, spare, x, pivots, slots, unroll, vector, first, step, limit, present)
    else:
        add_exact_differences(state, spare, x, pivots, parts, slots, unroll, vector, first, step, limit, present)


@T.macro
def add_exact_differences(state, spare, x, pivots, parts, slots, unroll, vector, first, step, limit, present):
    """As add_differences, by differences from their mean."""
    clear_moments_of(spare, slots)
    for k in T.unroll(unroll):
        if present and first + k * step < limit:
            spare[0] += T.float32(vector // slots)
            for v in T.unroll(vector):
                spare[1 + v % slots] += difference(x, pivots, parts, slots, k, v)
    if spare[0] > T.float32(0):
        inverse = T.float32(1) / spare[0]
        for s in T.unroll(slots):
            spare[1 + s] *= inverse
        for k in T.unroll(unroll):
            if present and first + k * step < limit:
                for v in T.unroll(vector):
                    deviation = difference(x, pivots, parts, slots, k, v) - spare[1 + v % slots]
                    spare[1 + slots + v % slots] += deviation * deviation
                    if parts > 1:
                        spare[1 + slots + v % slots] += x[2, k, v]
        merge_differences(state, spare, slots)


@T.macro
def add_lean_differences(state, spare, x, pivots, slots, unroll, vector, first, step, limit, present):
    """As add_differences, by differences from each slot's first element, so that each element is converted once.

    That element being one of the `count` whose squares are wanted, what is subtracted from their sum is at most `count`
    times what is left: at most so many more digits are lost. Where squares are infinite, so is what is left.
    """
    own = T.alloc_local((slots,), "float32")
    clear_moments_of(spare, slots)
    for s in T.unroll(slots):
        own[s] = T.cast(x[0, 0, s], "float32")
    for k in T.unroll(unroll):
        if present and first + k * step < limit:
            spare[0] += T.float32(vector // slots)
            for v in T.unroll(vector):
                between = T.cast(x[0, k, v], "float32") - own[v % slots]
                spare[1 + v % slots] += between
                spare[1 + slots + v % slots] += between * between
    if spare[0] > T.float32(0):
        inverse = T.float32(1) / spare[0]
        for s in T.unroll(slots):
            between = spare[1 + s] * inverse
            squares = spare[1 + slots + s]
            rest = squares - spare[1 + s] * between
            spare[1 + slots + s] = T.if_then_else(
                squares == T.infinity("float32"), squares, T.if_then_else(rest < T.float32(0), T.float32(0), rest)
            )
            spare[1 + s] = own[s] - pivots[s] + between
        merge_differences(state, spare, slots)


@T.macro
def differences_over_lanes(state, spare, shared, slot, lane, lanes, count):
    """`state`, of one slot, = that of all `lanes` threads of a row together, in each of them.

    They have seen `count` elements. What rounding takes from their mean is small against the deviation of the pivot,
    which is an element, and so against the sum of all.
    """
    spare[0] = state[0] * state[1]
    add_over_lanes(spare, shared[0], slot, lane, lanes)
    mean = spare[0] / count
    between = state[1] - mean
    spare[0] = state[2] + state[0] * between * between
    add_over_lanes(spare, shared[1], slot, lane, lanes)
    state[0] = count
    state[1] = mean
    state[2] = spare[0]


@dataclass(frozen=True)
class Fold:
    """The macros of one fold; `size` gives the length of a state of some slots."""

    size: Any
    clear: Any
    add: Any
    over_lanes: Any
    merge: Any


FOLDS = {
    "log_sum_exp": Fold(
        lambda slots: 2 * slots,
        clear_exponentials,
        add_exponentials,
        exponentials_over_lanes,
        merge_exponentials,
    ),
    "moments": Fold(
        lambda slots: 1 + 2 * slots,
        clear_moments_of,
        add_differences,
        differences_over_lanes,
        merge_differences,
    ),
}
"""Every fold by its name."""


def given(gives, state, pivots, slots, s, divisor):
    """What slot s of a state gives: one value, or the three parts of a partial result of moments."""
    if gives == "total":
        return (state[s] + T.log(state[slots + s]),)
    spread = state[1 + slots + s] / divisor
    if gives == "partial":
        return pivots[s], state[1 + s], spread
    return (T.sqrt(spread),) if gives == "deviation" else (spread,)
