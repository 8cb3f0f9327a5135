// What every generated CPU program starts from, in place of TileLang's own header, which takes four times as long to
// compile. Functions named tileops_* are called by the macros of tileops_kernels.macros.
#pragma once

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

// What a function that Python calls is made of: parts of Python's stable interface, declared here since its headers need
// not be installed. They are weak, so that linking misses nothing else; the process that loads a library has them.
extern "C" {
struct PyObject;
typedef PyObject *(*PyCFunctionFast)(PyObject *, PyObject *const *, intptr_t);
struct PyMethodDef {
  const char *name;
  PyCFunctionFast function;
  int flags;
  const char *text;
};
#define METH_FASTCALL 0x80
#define TILEOPS_PYTHON extern __attribute__((weak))
TILEOPS_PYTHON char _Py_NoneStruct[];
TILEOPS_PYTHON PyObject *PyExc_TypeError;
TILEOPS_PYTHON void Py_IncRef(PyObject *);
TILEOPS_PYTHON PyObject *PyErr_Format(PyObject *, const char *, ...);
TILEOPS_PYTHON PyObject *PyErr_Occurred(void);
TILEOPS_PYTHON PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
TILEOPS_PYTHON void *PyEval_SaveThread(void);
TILEOPS_PYTHON void PyEval_RestoreThread(void *);
TILEOPS_PYTHON void *PyLong_AsVoidPtr(PyObject *);
TILEOPS_PYTHON long long PyLong_AsLongLong(PyObject *);
TILEOPS_PYTHON double PyFloat_AsDouble(PyObject *);
}
static inline void *tileops_address(PyObject *given) { return PyLong_AsVoidPtr(given); }
static inline long long tileops_integer(PyObject *given) { return PyLong_AsLongLong(given); }
static inline double tileops_number(PyObject *given) { return PyFloat_AsDouble(given); }
static inline PyObject *tileops_none() {
  Py_IncRef((PyObject *)_Py_NoneStruct);
  return (PyObject *)_Py_NoneStruct;
}
static inline PyObject *tileops_miscounted(int expected, intptr_t received) {
  return PyErr_Format(PyExc_TypeError, "a program takes %d arguments, received %zd", expected, received);
}

// Eight float32 values in one register: the C text of TileLang's float32x8. A broadcast reaches the constructor as the
// last of eight equal values.
struct float8 {
  typedef float native __attribute__((vector_size(32), aligned(4), may_alias));
  native values;
  float8() = default;
  float8(float value) : values(value - native{}) {}
  float8(native given) : values(given) {}
};
static inline float8 operator+(float8 a, float8 b) { return a.values + b.values; }
static inline float8 operator*(float8 a, float8 b) { return a.values * b.values; }

// Sixteen of them, TileLang's float32x16.
struct float16 {
  typedef float native __attribute__((vector_size(64), aligned(4), may_alias));
  native values;
  float16() = default;
  float16(float value) : values(value - native{}) {}
  float16(native given) : values(given) {}
};
static inline float16 operator*(float16 a, float16 b) { return a.values * b.values; }

// Operations on two registers of one width, or on two values; amax and amin give NaN where either is.
template <typename Values> static inline Values tileops_sum_of(Values a, Values b) { return a + b; }
template <typename Values> static inline Values tileops_prod_of(Values a, Values b) { return a * b; }
template <typename Values> static inline Values tileops_amax_of(Values a, Values b) { return (a > b) | (a != a) ? a : b; }
template <typename Values> static inline Values tileops_amin_of(Values a, Values b) { return (a < b) | (a != a) ? a : b; }

#if defined(__AVX512F__) && !defined(__clang__)

// One mask in place of two, and of their union.
template <> inline float16::native tileops_amax_of(float16::native a, float16::native b) {
  float16::native number = __builtin_ia32_maxps512_mask(a, b, a, 0xFFFF, 4);
  return a != a ? a : number;
}
template <> inline float16::native tileops_amin_of(float16::native a, float16::native b) {
  float16::native number = __builtin_ia32_minps512_mask(a, b, a, 0xFFFF, 4);
  return a != a ? a : number;
}

#endif

// A half of a register.
template <typename Half, typename Whole> static inline Half tileops_half(Whole whole, int which) {
  Half half;
  memcpy(&half, (const char *)&whole + which * sizeof half, sizeof half);
  return half;
}

typedef float tileops_float4 __attribute__((vector_size(16)));

extern "C" {

#if defined(__F16C__)

typedef float tileops_float8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float tileops_native_float8 __attribute__((vector_size(32)));
typedef short tileops_short8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef short tileops_native_short8 __attribute__((vector_size(16)));

#if defined(__AVX512F__)

// A float16 block moves in registers as wide as the loops that use it: a wide load from what two narrow stores have
// just written waits until both have left for the cache, which made LayerNorm of 4096 elements 2.4 times as slow.
typedef float tileops_float16s __attribute__((vector_size(64), aligned(4), may_alias));
typedef float tileops_native_float16s __attribute__((vector_size(64)));
typedef short tileops_short16 __attribute__((vector_size(32), aligned(2), may_alias));
typedef short tileops_native_short16 __attribute__((vector_size(32)));

static inline int32_t tileops_widen_float16(const int16_t *source, float *target, int32_t count) {
  int32_t i = 0;
  for (; i + 16 <= count; i += 16) {
    tileops_native_short16 bits = *(const tileops_short16 *)(source + i);
    tileops_native_float16s unused = {};
    *(tileops_float16s *)(target + i) = __builtin_ia32_vcvtph2ps512_mask(bits, unused, 0xFFFF, 4);
  }
  return i;
}

static inline int32_t tileops_narrow_float16(const float *source, int16_t *target, int32_t count) {
  int32_t i = 0;
  for (; i + 16 <= count; i += 16) {
    tileops_native_float16s values = *(const tileops_float16s *)(source + i);
    tileops_native_short16 unused = {};
    *(tileops_short16 *)(target + i) = __builtin_ia32_vcvtps2ph512_mask(values, 0, unused, 0xFFFF);
  }
  return i;
}

#else

static inline int32_t tileops_widen_float16(const int16_t *, float *, int32_t) { return 0; }
static inline int32_t tileops_narrow_float16(const float *, int16_t *, int32_t) { return 0; }

#endif

// target[0:count] = float32 values of the float16 bits source[offset : offset + count]; a rest goes with elements before
// it where there are enough, twice
static inline int32_t tileops_load_float16(int16_t *source, int64_t offset, float *target, int32_t count) {
  source += offset;
  int32_t i = tileops_widen_float16(source, target, count);
  for (; i < count && count >= 8; i += 8) {
    if (i > count - 8) i = count - 8;
    tileops_native_short8 bits = *(tileops_short8 *)(source + i);
    *(tileops_float8 *)(target + i) = __builtin_ia32_vcvtph2ps256(bits);
  }
  if (i < count) {
    tileops_native_short8 bits = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int32_t k = 0; k < count && k < 8; ++k) bits[k] = source[k];
    tileops_native_float8 values = __builtin_ia32_vcvtph2ps256(bits);
    for (int32_t k = 0; k < count && k < 8; ++k) target[k] = values[k];
  }
  return 0;
}

// target[offset : offset + count] = float16 bits of source[0:count], rounded to nearest even; a rest likewise
static inline int32_t tileops_store_float16(float *source, int16_t *target, int64_t offset, int32_t count) {
  target += offset;
  int32_t i = tileops_narrow_float16(source, target, count);
  for (; i < count && count >= 8; i += 8) {
    if (i > count - 8) i = count - 8;
    tileops_native_float8 values = *(tileops_float8 *)(source + i);
    *(tileops_short8 *)(target + i) = __builtin_ia32_vcvtps2ph256(values, 0);
  }
  if (i < count) {
    tileops_native_float8 values = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int32_t k = 0; k < count && k < 8; ++k) values[k] = source[k];
    tileops_native_short8 bits = __builtin_ia32_vcvtps2ph256(values, 0);
    for (int32_t k = 0; k < count && k < 8; ++k) target[k] = bits[k];
  }
  return 0;
}

#else

typedef _Float16 tileops_float16 __attribute__((may_alias));

static inline int32_t tileops_load_float16(int16_t *source, int64_t offset, float *target, int32_t count) {
  source += offset;
  const tileops_float16 *values = (const tileops_float16 *)source;
  for (int32_t i = 0; i < count; ++i) target[i] = (float)values[i];
  return 0;
}

static inline int32_t tileops_store_float16(float *source, int16_t *target, int64_t offset, int32_t count) {
  target += offset;
  tileops_float16 *values = (tileops_float16 *)target;
  for (int32_t i = 0; i < count; ++i) values[i] = (_Float16)source[i];
  return 0;
}

#endif

// target[0:count] = float32 values of the bfloat16 bits source[offset : offset + count]
static inline int32_t tileops_load_bfloat16(int16_t *__restrict__ source, int64_t offset, float *__restrict__ target,
                                            int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    uint32_t bits = (uint32_t)(uint16_t)source[offset + i] << 16;
    __builtin_memcpy(target + i, &bits, sizeof bits);
  }
  return 0;
}

// target[offset : offset + count] = bfloat16 bits of source[0:count], rounded to nearest even; NaN stays NaN
static inline int32_t tileops_store_bfloat16(float *__restrict__ source, int16_t *__restrict__ target, int64_t offset,
                                             int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, source + i, sizeof bits);
    uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    target[offset + i] = (int16_t)(source[i] != source[i] ? 0x7FC0u : rounded);
  }
  return 0;
}

// e to the power of a value that is not positive, within one unit in the last place, denormals included; NaN stays NaN.
// A loop over it becomes vector instructions throughout, where one over expf calls a vector function that takes twice as
// long, and several times as long for some values below -80.
static inline float tileops_exp_below(float value) {
  const float shift = 12582976.0f;  // 3 * 2 ** 22 + 64: the last bits of a sum with it are an integer, plus 64
  float bounded = value < -104.0f ? -104.0f : value;
  float shifted = bounded * 1.44269504f + shift;
  float power = shifted - shift;
  float rest = power * -1.42860677e-6f + (power * -0.693145752f + bounded);
  float tail = 1.38144661e-3f * rest + 8.36878084e-3f;
  tail = tail * rest + 4.16683927e-2f;
  tail = tail * rest + 1.66665196e-1f;
  tail = tail * rest + 4.99999940e-1f;
  float mantissa = (tail * rest * rest + rest) + 1.0f;
  uint32_t places, bits;
  __builtin_memcpy(&places, &shifted, sizeof places);
  __builtin_memcpy(&bits, &mantissa, sizeof bits);
  bits += places << 23;
  __builtin_memcpy(&mantissa, &bits, sizeof mantissa);
  return mantissa * 5.42101086e-20f;  // 2 ** -64, which may leave a denormal
}

// source[offset], for loops that read float32 where it lies
static inline float tileops_element_float32(float *source, int64_t offset) { return source[offset]; }

static inline int32_t tileops_load_float32(float *__restrict__ source, int64_t offset, float *__restrict__ target,
                                           int32_t count) {
  for (int32_t i = 0; i < count; ++i) target[i] = source[offset + i];
  return 0;
}

static inline int32_t tileops_store_float32(float *__restrict__ source, float *__restrict__ target, int64_t offset,
                                            int32_t count) {
  for (int32_t i = 0; i < count; ++i) target[offset + i] = source[i];
  return 0;
}

// the float32 values of source[offset : offset + 16], in a register
static inline float16 tileops_vector_float32(float *source, int64_t offset) {
  return *(float16::native *)(source + offset);
}
static inline float16 tileops_vector_float16(int16_t *source, int64_t offset) {
  float16 values;
  tileops_load_float16(source, offset, (float *)&values, 16);
  return values;
}
static inline float16 tileops_vector_bfloat16(int16_t *source, int64_t offset) {
  float16 values;
  tileops_load_bfloat16(source, offset, (float *)&values, 16);
  return values;
}

// operations on each two values of two registers, and on all sixteen values of one, half with half
#define TILEOPS_OPERATION(name)                                                           \
  static inline float16 tileops_##name(float16 a, float16 b) {                            \
    return tileops_##name##_of(a.values, b.values);                                       \
  }                                                                                       \
  static inline float tileops_##name##_within(float16 sixteen) {                          \
    float8::native low = tileops_half<float8::native>(sixteen, 0);                        \
    float8::native high = tileops_half<float8::native>(sixteen, 1);                       \
    float8::native eight = tileops_##name##_of(low, high);                                \
    tileops_float4 first = tileops_half<tileops_float4>(eight, 0);                        \
    tileops_float4 second = tileops_half<tileops_float4>(eight, 1);                       \
    tileops_float4 four = tileops_##name##_of(first, second);                             \
    four = tileops_##name##_of(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));    \
    return tileops_##name##_of(four, __builtin_shufflevector(four, four, 1, 0, 3, 2))[0]; \
  }
TILEOPS_OPERATION(sum)
TILEOPS_OPERATION(prod)
TILEOPS_OPERATION(amax)
TILEOPS_OPERATION(amin)

}  // extern "C"
