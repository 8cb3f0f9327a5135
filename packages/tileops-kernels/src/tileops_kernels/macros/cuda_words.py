"""Words on CUDA: four bytes of elements combined with four others by one or two instructions, none of them widened.

What is kept of elements so is a vector of 16 bytes in their dtype, each of which contributes what all that it stands
for do together: an extreme, or of truths (1 where an element is not zero) one that is zero or not.
"""

import tilelang.language as T  # noqa: N812

_PAIRS = {"float16": "f16x2", "bfloat16": "bf16x2", "float32": "f32"}
_VALUES = {"float16": "0x7fff7fffu", "bfloat16": "0x7fff7fffu", "float32": "0x7fffffffu"}
"""The bits of a word that are no sign of a floating-point element."""

_INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


def combines_words(operation, of, source):
    """Whether `operation` on what elements of `source` contribute can be done word by word."""
    if operation not in ("amax", "amin"):
        return False
    if source in _PAIRS:
        return of in ("value", "absolute", "nonzero")
    return of == "nonzero" and source in _INTEGERS and (operation, source) != ("amin", "int64")


def words(operation, of, source):
    """CUDA text for `T.Kernel(..., prelude=)` of a program that combines words."""
    return f"""
static __device__ __forceinline__ unsigned tileops_word(unsigned kept, unsigned met) {{
  {_combined(operation, of, source)}
}}
static __device__ __forceinline__ int tileops_words(void *target, const void *vector) {{
  uint4 *kept = (uint4 *)target;
  const uint4 *met = (const uint4 *)vector;
  kept->x = tileops_word(kept->x, met->x);
  kept->y = tileops_word(kept->y, met->y);
  kept->z = tileops_word(kept->z, met->z);
  kept->w = tileops_word(kept->w, met->w);
  return 0;
}}
static __device__ __forceinline__ int tileops_fold(void *target) {{
  uint4 *kept = (uint4 *)target;
  kept->x = tileops_word(kept->x, kept->z);
  kept->y = tileops_word(kept->y, kept->w);
  {"kept->x = tileops_word(kept->x, kept->y);" if source != "int64" else ""}
  return 0;
}}
"""


def _combined(operation, of, source):
    """The statements that return `kept` combined with `met`; a NaN is the extreme, and is not zero."""
    instruction = operation.removeprefix("a")
    if source in _PAIRS:
        met = "met" if of == "value" else f"met & {_VALUES[source]}"
        if (operation, of) == ("amax", "nonzero"):
            return f"return kept | ({met});"
        nan = "" if of == "nonzero" else ".NaN"
        kind, into, out = "r", "", ""
        if source == "float32":
            kind, into, out = "f", "__uint_as_float", "__float_as_uint"
        made = "float" if source == "float32" else "unsigned"
        return (
            f'{made} made;\n  asm("{instruction}{nan}.{_PAIRS[source]} %0, %1, %2;" : "={kind}"(made) '
            f': "{kind}"({into}(kept)), "{kind}"({into}({met})));\n  return {out}(made);'
        )
    if operation == "amax":
        return "return kept | met;"
    if source == "int32":
        return "return met < kept ? met : kept;"
    ones = "0x7fff7fffu" if source == "int16" else "0x7f7f7f7fu"
    return f"return kept & (((met & {ones}) + {ones}) | met) & ~{ones};"


def kept_identity(operation, of, source):
    """The element of `source` that contributes nothing."""
    if of == "nonzero":
        if operation == "amax":
            return T.cast(0, source)
        return T.cast({"uint8": 128, "int8": -128, "int16": -32768}.get(source, 1), source)
    if operation == "amin":
        return T.cast(T.infinity("float32"), source)
    return T.cast(T.float32(0) if of == "absolute" else -T.infinity("float32"), source)


@T.macro
def combine_words(kept, place, met, k):
    """Combine the 16 bytes of `kept` from element `place` on with vector k of `met`."""
    T.evaluate(T.call_extern("int32", "tileops_words", T.address_of(kept[place]), T.address_of(met[k, 0])))


@T.macro
def fold_words(kept):
    """Combine all of the vector `kept` into the first of its words, or of its elements where these are longer."""
    T.evaluate(T.call_extern("int32", "tileops_fold", T.address_of(kept[0])))
