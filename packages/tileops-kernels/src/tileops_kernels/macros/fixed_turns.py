"""Cosines and sines of turns in fixed point: an angle is a multiple of 2 ** -64 turn, so no position costs digits.

TileLang 0.1.15 writes float constants with seven digits. Where these do not do, a constant is one that seven digits
give, and a second one that holds the rest.
"""

import tilelang.language as T  # noqa: N812

QUARTER = (1.570796, 3.13916479e-07)
"""pi / 2, the sine's slope where an angle is u quarter turns."""

SINE = (-0.6459634900093079, 0.07967966794967651, -0.004600198473781347)
"""Of `(sin(pi / 2 u) / u - pi / 2) / u ** 2` as a polynomial in u ** 2, within 2e-9 of the sine where |u| <= 1 / 2."""

CURVE = (-1.233701, 4.47323399e-07)
"""The first coefficient of `(cos(pi / 2 u) - 1) / u ** 2` as a polynomial in u ** 2."""

COSINE = (0.25366923213005066, -0.02086028829216957, 0.0009040216682478786)
"""The others; the whole is within 1e-10 of the cosine where |u| <= 1 / 2."""


@T.macro
def cosine_and_sine(position, step, target, cosine_place, sine_place):
    """target[cosine_place], target[sine_place] = those of `position` times `step`, within two float32 roundings.

    `position` is any integer, `step` an int64 that counts in units of 2 ** -64 turn: products that wrap drop whole
    turns. The angle is its nearest quarter turn and a rest of at most half a quarter, whose halves of 32 bits keep the
    digits of small angles.
    """
    rest = T.alloc_var("uint64")
    quarter = T.alloc_var("int32")
    u = T.alloc_var("float32")
    square = T.alloc_var("float32")
    sine = T.alloc_var("float32")
    cosine = T.alloc_var("float32")
    rest = T.cast(T.cast(position, "int64"), "uint64") * T.cast(step, "uint64") + T.uint64(1 << 61)
    quarter = T.cast(rest >> T.uint64(62), "int32")
    rest = (rest & T.uint64((1 << 62) - 1)) - T.uint64(1 << 61)
    u = T.cast(T.cast((rest + T.uint64(1 << 31)) >> T.uint64(32), "int32"), "float32") * T.float32(2.0**-30)
    u = u + T.cast(T.cast(rest & T.uint64((1 << 32) - 1), "int32"), "float32") * T.float32(2.0**-62)
    square = u * u
    sine = T.float32(QUARTER[1]) + square * (SINE[0] + square * (SINE[1] + square * SINE[2]))
    sine = u * T.float32(QUARTER[0]) + u * sine
    cosine = T.float32(CURVE[1]) + square * (COSINE[0] + square * (COSINE[1] + square * COSINE[2]))
    cosine = T.float32(1) + square * (T.float32(CURVE[0]) + cosine)
    target[cosine_place] = T.Select((quarter & 1) == 0, cosine, sine)
    target[sine_place] = T.Select((quarter & 1) == 0, sine, cosine)
    target[cosine_place] = T.Select(((quarter + 1) & 2) == 0, target[cosine_place], -target[cosine_place])
    target[sine_place] = T.Select((quarter & 2) == 0, target[sine_place], -target[sine_place])
