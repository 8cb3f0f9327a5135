"""Steps of a reduction: what an element contributes, what two values become, and what the whole gives."""

import tilelang.language as T  # noqa: N812

LOWEST = -3.4028234663852886e38
"""The lowest finite float32.

A running maximum of a softmax starts here: minus infinity would make `exp(x - maximum)` NaN before a finite element is
met, and a row of nothing but minus infinity still gives NaN, as zero divided by zero.
"""

HIGHEST = -LOWEST
"""The highest finite float32, at which the running maximum of a log-sum-exp stays, so that `exp` of infinity counts."""


def identity(operation, dtype):
    """The value of `dtype`, float32, int32 or int64, that `operation` leaves every value unchanged by."""
    if operation == "amax":
        return -T.infinity("float32") if dtype == "float32" else T.min_value(dtype)
    if operation == "amin":
        return T.infinity("float32") if dtype == "float32" else T.max_value(dtype)
    values = {"sum": 0, "prod": 1, "max": LOWEST}
    return T.float32(values[operation]) if dtype == "float32" else T.cast(values[operation], dtype)


def combine(operation, first, second):
    """`operation` on two values: `amax` and `amin` keep NaN, a `max` may drop it."""
    if operation == "sum":
        return first + second
    if operation == "prod":
        return first * second
    if operation == "max":
        return T.max(first, second)
    further = second > first if operation == "amax" else second < first
    if "float" in str(second.dtype):
        further = T.Or(further, T.isnan(second))
    return T.if_then_else(further, second, first)


def combine_in_c(operation, first, second):
    """`combine` in one comparison less on a CPU, where T.max and T.min give `second` when either of two is NaN."""
    if operation not in ("amax", "amin") or "float" not in str(second.dtype):
        return combine(operation, first, second)
    number = T.max(first, second) if operation == "amax" else T.min(first, second)
    return T.if_then_else(T.isnan(first), first, number)


NOWHERE = 2**63 - 1
"""The position of no element, behind that of every other."""


def farthest(operation):
    """The float32 that every element is at least as good as for `operation`, argmax or argmin."""
    return -T.infinity("float32") if operation == "argmax" else T.infinity("float32")


def beats(operation, value, best):
    """Whether `value` is greater than `best` for argmax, less for argmin; never where one of them is NaN."""
    return value > best if operation == "argmax" else value < best


def overtakes(operation, value, best):
    """Whether float32 `value`, met after `best`, takes its place: it beats it, or is the first NaN."""
    return T.And(T.Or(beats(operation, value, best), T.isnan(value)), T.Not(T.isnan(best)))


def precedes(operation, value, position, best, place):
    """Whether `value` at `position` takes the place of `best` at `place`: the first NaN, or the first of the best."""
    earlier = position < place
    number = T.Or(beats(operation, value, best), T.And(value == best, earlier))
    return T.if_then_else(T.isnan(best), T.And(T.isnan(value), earlier), T.Or(T.isnan(value), number))


def accumulator(through):
    """The dtype in which elements of `through` are combined."""
    return "float32" if "float" in through else "int64"


def own(of, through):
    """The dtype in which a block combines what it reads: of truths, whose number fits, one that costs less."""
    return "int32" if of == "nonzero" and accumulator(through) == "int64" else accumulator(through)


def widened(value, source, through):
    """`value` of dtype `source` as an accumulator, after one rounding to `through` where that is narrower."""
    if accumulator(through) == "int64":
        return T.cast(T.cast(value, "float32") if "float" in source else value, "int64")
    wide = T.cast(value, "float32")
    if through in ("float32", source):
        return wide
    return T.cast(T.cast(wide, through), "float32")


def words_of(dtype):
    """The values that one element of `dtype` is in the memory of programs."""
    return 2 if dtype == "complex128" else 1


def stored(dtype):
    """The dtype of those values: programs take the bits of complex elements, as integers of eight bytes."""
    return "int64" if "complex" in dtype else dtype


def element_of(values, before, index, dtype):
    """What stands for an element at `index` behind the indices `before`: its value, or the bits of its two joined."""
    if words_of(dtype) == 1:
        return values[(*before, index)]
    return values[(*before, 2 * index)] | values[(*before, 2 * index + 1)]


def counted(value, source, wide):
    """1 as an accumulator where `value` of dtype `source` is not zero, else 0; NaN is not zero.

    The bits of a complex element are zero but for the signs of its parts where it is zero.
    """
    if "float" in source:
        value = T.cast(value, "float32")
    if "complex" in source:
        value = value & T.int64(0x7FFFFFFF7FFFFFFF if source == "complex64" else 0x7FFFFFFFFFFFFFFF)
    return T.if_then_else(value != 0, T.cast(1, wide), T.cast(0, wide))


def magnitude(of, value):
    """What an accumulator contributes as its `absolute` value or its `square`; as itself for any other `of`."""
    if of == "absolute":
        return T.if_then_else(value > 0, value, 0 - value)
    return value * value if of == "square" else value


def contribution(of, value, source, through):
    """What `value` of dtype `source` contributes: itself, `nonzero`, its `absolute` value or its `square`."""
    if of == "nonzero":
        return counted(value, source, own(of, through))
    return magnitude(of, widened(value, source, through))


def dealt(chunks, part, parts):
    """How many of the chunks, at least one, go to one of the parts that are given one in turn."""
    return T.truncdiv(chunks - part + parts - 1, parts)


def outcome(gives, total, count):
    """What the whole gives: the `total`, the `mean` of `count` elements, or the square `root`."""
    if gives == "mean":
        return total / count
    return T.sqrt(total) if gives == "root" else total


def reduction(body, gives, source, x_shape, target, y_shape):
    """The program that runs the macro `body(X, Y, count)`; only a mean has the parameter count, and is given it."""
    if gives == "mean":

        @T.prim_func
        def mean(X: T.Tensor[x_shape, source], Y: T.Tensor[y_shape, target], count: T.float32):
            body(X, Y, count)

        return mean

    @T.prim_func
    def program(X: T.Tensor[x_shape, source], Y: T.Tensor[y_shape, target]):
        body(X, Y, None)

    return program


def planes_of(gives):
    """The float32 or other values that one result of a fold has: three where it is partial."""
    return 3 if gives == "partial" else 1


def fold_program(body, moments, mean, source, x_shape, target, y_shape, m_shape):
    """The program that runs the macro `body(X, Y, M, divisor)`.

    Only `moments` have the parameter divisor, and only with the `mean` the tensor M; the macro is given None for what
    is absent.
    """
    if not moments:

        @T.prim_func
        def one_fold(X: T.Tensor[x_shape, source], Y: T.Tensor[y_shape, target]):
            body(X, Y, None, None)

        return one_fold
    if mean:

        @T.prim_func
        def moments_and_mean(
            X: T.Tensor[x_shape, source],
            Y: T.Tensor[y_shape, target],
            M: T.Tensor[m_shape, target],
            divisor: T.float32,
        ):
            body(X, Y, M, divisor)

        return moments_and_mean

    @T.prim_func
    def squares(X: T.Tensor[x_shape, source], Y: T.Tensor[y_shape, target], divisor: T.float32):
        body(X, Y, None, divisor)

    return squares
