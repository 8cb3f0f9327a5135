"""Extremes on CUDA, NaN before every number: of the elements of a vector, of vectors element by element, of positions.

A program that uses these has `extremes(operation, source)` in its prelude. Halves are compared in pairs.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import combine
from tileops_kernels.macros.cuda_rows import WARP, fills_access

_PAIR = {"float16": "f16x2", "bfloat16": "bf16x2", "float32": "f32"}
_LAST = {
    "float16": "words = tileops_further(words, __byte_perm(words, words, 0x1032));\n  "
    'asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(words));',
    "bfloat16": "words = tileops_further(words, __byte_perm(words, words, 0x1032));\n  "
    "value = __uint_as_float(words << 16);",
    "float32": "value = __uint_as_float(words);",
}


def extremes(operation, source):
    """CUDA text for `T.Kernel(..., prelude=)` of a program of `operation`, argmax or argmin, on `source`."""
    kind = "r" if source != "float32" else "f"
    words, made = ("first", "second"), "made"
    if source == "float32":
        words, made = ("__uint_as_float(first)", "__uint_as_float(second)"), "__float_as_uint(made)"
    beats, instruction = (">", "max") if operation == "argmax" else ("<", "min")
    opposite = "<=" if operation == "argmax" else ">="
    return f"""
static __device__ __forceinline__ unsigned tileops_further(unsigned first, unsigned second) {{
  {"float" if kind == "f" else "unsigned"} made;
  asm("{instruction}.NaN.{_PAIR[source]} %0, %1, %2;" : "={kind}"(made) : "{kind}"({words[0]}), "{kind}"({words[1]}));
  return {made};
}}
static __device__ __forceinline__ float tileops_extreme(const void *vector) {{
  const uint4 all = *(const uint4 *)vector;
  unsigned words = tileops_further(tileops_further(all.x, all.y), tileops_further(all.z, all.w));
  float value;
  {_LAST[source]}
  return value;
}}
static __device__ __forceinline__ int tileops_extremes(void *target, const void *vector) {{
  uint4 *kept = (uint4 *)target;
  const uint4 *met = (const uint4 *)vector;
  kept->x = tileops_further(kept->x, met->x);
  kept->y = tileops_further(kept->y, met->y);
  kept->z = tileops_further(kept->z, met->z);
  kept->w = tileops_further(kept->w, met->w);
  return 0;
}}
static __device__ __forceinline__ bool tileops_overtakes(float value, float best) {{
  return !(value {opposite} best) & (best == best);
}}
static __device__ __forceinline__ bool tileops_precedes(float value, long long position, float best, long long place) {{
  const bool earlier = position < place, number = best == best;
  return (number & ((value {beats} best) | (value != value) | ((value == best) & earlier)))
         | (!number & (value != value) & earlier);
}}
"""


def overtakes_best(value, best):
    """Whether float32 `value`, met after `best`, takes its place; decided without a branch."""
    return T.call_extern("bool", "tileops_overtakes", value, best)


def precedes_best(value, position, best, place):
    """Whether `value` at `position` takes the place of `best` at `place`; decided without a branch."""
    return T.call_extern("bool", "tileops_precedes", value, T.cast(position, "int64"), best, T.cast(place, "int64"))


def is_extreme(value, best):
    """Whether `value` is where `best`, the extreme of the elements it is among, stands: NaN is where there is one."""
    return T.Or(value == best, T.isnan(value))


@T.macro
def extreme_of_vector(operation, extreme, x, k, vector):
    """extreme[0] = the extreme of x[k, :] as float32."""
    if fills_access(vector, x.dtype):
        extreme[0] = T.call_extern("float32", "tileops_extreme", T.address_of(x[k, 0]))
    else:
        extreme[0] = T.cast(x[k, 0], "float32")
        for v in T.unroll(vector - 1):
            extreme[0] = combine(operation.replace("arg", "a"), extreme[0], T.cast(x[k, v + 1], "float32"))


@T.macro
def extremes_of_vectors(operation, extreme, x, count, vector):
    """extreme[:] = the extreme of x[k, v] over the k below `count`, for each v, in the dtype of x."""
    for v in T.vectorized(vector):
        extreme[v] = x[0, v]
    for k in T.unroll(count - 1):
        if fills_access(vector, x.dtype):
            T.evaluate(T.call_extern("int32", "tileops_extremes", T.address_of(extreme[0]), T.address_of(x[k + 1, 0])))
        else:
            for v in T.unroll(vector):
                met = T.cast(x[k + 1, v], "float32")
                extreme[v] = T.cast(
                    combine(operation.replace("arg", "a"), T.cast(extreme[v], "float32"), met), str(x.dtype)
                )


@T.macro
def first_over_threads(value, position, values, positions, slot, lane, lanes):
    """value[0] at position[0] = the extreme over the `lanes` threads of a row and where it stands, in each of them.

    As combine_over_lanes; `values` and `positions` are shared, (rows in the block, warps_of(lanes)).
    """
    other = T.alloc_var("float32")
    place = T.alloc_var("int64")
    for step in T.unroll(min(lanes, WARP).bit_length() - 1):
        other = T.shfl_xor(value[0], 1 << step)
        place = T.shfl_xor(position[0], 1 << step)
        if precedes_best(other, place, value[0], position[0]):
            value[0] = other
            position[0] = place
    if lanes > WARP:
        if lane % WARP == 0:
            values[slot, lane // WARP] = value[0]
            positions[slot, lane // WARP] = position[0]
        T.sync_threads()
        for warp in T.unroll(lanes // WARP):
            if precedes_best(values[slot, warp], positions[slot, warp], value[0], position[0]):
                value[0] = values[slot, warp]
                position[0] = positions[slot, warp]
