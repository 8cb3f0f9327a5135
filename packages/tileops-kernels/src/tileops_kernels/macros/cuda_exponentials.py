"""Exponentials on CUDA, and what a softmax makes of them; a program that uses these has EXP2 in its prelude."""

import tilelang.language as T  # noqa: N812

LOG2_E = 1.4426950408889634

EXP2 = """
static __device__ __forceinline__ float tileops_exp2(float value) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
  return power;
}
"""
"""CUDA text for `T.Kernel(..., prelude=)`.

Powers below the normal numbers of float32 are 0, which spares each the two products that exp2f keeps them with.
"""


def power(difference, target):
    """The exponential of `difference` in float32; for a narrower `target`, with an error that rounding hides."""
    if target == "float32":
        return T.exp(difference)
    return T.call_extern("float32", "tileops_exp2", difference * T.float32(LOG2_E))


def weight(log, difference, target):
    """An element's weight in a softmax by its `difference` from the greatest, or with `log` the weight's logarithm."""
    return difference if log else power(difference, target)


def weight_of(log, value, target):
    """The weight itself, from what `weight` gave."""
    return power(value, target) if log else value


def share(log, total, target):
    """What `part_of` takes of the `total` weight: its logarithm or reciprocal; parts of nothing are NaN."""
    if log:
        return T.log(total)
    if target == "float32":
        return T.float32(1) / total
    return T.call_extern("float32", "__fdividef", T.float32(1), total)


def part_of(log, value, shared):
    """What `weight` gave, as its part in the whole."""
    return value - shared if log else value * shared
