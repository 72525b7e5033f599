/* SPDX-License-Identifier: Apache-2.0 */
/* Vector primitives for any processor: four floats in the compiler's own vector type. See kern_math.h for how the three
 * vec_*.h are used. */
#ifndef TRI_KERNELS_CPU_VEC_SCALAR_H
#define TRI_KERNELS_CPU_VEC_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

#define V_REGISTERS 16
enum { W = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vm __attribute__((vector_size(16)));

static inline vf v_zero(void) { return (vf){0, 0, 0, 0}; }
static inline vf v_set1(float a) { return (vf){a, a, a, a}; }
static inline vf v_load(const float *p) {
  vf a;
  memcpy(&a, p, sizeof a);
  return a;
}
static inline void v_store(float *p, vf a) { memcpy(p, &a, sizeof a); }
static inline vf v_loadn(const float *p, int n) {
  vf a = v_zero();
  memcpy(&a, p, (size_t)n * sizeof *p);
  return a;
}
static inline void v_storen(float *p, vf a, int n) { memcpy(p, &a, (size_t)n * sizeof *p); }
static inline vf v_add(vf a, vf b) { return a + b; }
static inline vf v_sub(vf a, vf b) { return a - b; }
static inline vf v_mul(vf a, vf b) { return a * b; }
static inline vf v_div(vf a, vf b) { return a / b; }
static inline vf v_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf v_select(vm m, vf yes, vf no) { return (vf)((m & (vm)yes) | (~m & (vm)no)); }
static inline vm v_ge(vf a, vf b) { return a >= b; }
/* b where either is NaN */
static inline vf v_max(vf a, vf b) { return v_select(a > b, a, b); }
static inline vf v_min(vf a, vf b) { return v_select(a < b, a, b); }
static inline vf v_round(vf a) { /* for |a| < 2^22: adding 1.5 * 2^23 pushes the fraction out of the mantissa */
  vf shift = v_set1(0x1.8p23f), t = a + shift;
  return t - shift;
}
static inline vf v_abs(vf a) { return (vf)((vm)a & 0x7fffffff); }
static inline vf v_copysign(vf a, vf sign) { return (vf)(((vm)a & 0x7fffffff) | ((vm)sign & INT32_MIN)); }
static inline unsigned v_bits(vm m) {
  return (unsigned)(m[0] < 0) | (unsigned)(m[1] < 0) << 1 | (unsigned)(m[2] < 0) << 2 | (unsigned)(m[3] < 0) << 3;
}
/* 2^n for t = V_SHIFT + n, integral n in [-126, 127]: the last bits of t are n */
#define V_SHIFT 0x1.8p23f
static inline vf v_pow2(vf t) {
  typedef uint32_t vu __attribute__((vector_size(16)));
  return (vf)(((vu)t << 23) + (vu)v_set1(1.0f));
}

static inline vf v_load_any(const void *p, tri_dtype t) {
  return (vf){tri_load_f32(p, t, 0), tri_load_f32(p, t, 1), tri_load_f32(p, t, 2), tri_load_f32(p, t, 3)};
}
static inline vf v_load_bf16(const void *p) {
  uint16_t h[4];
  memcpy(h, p, sizeof h);
  return (vf)(vm){(int32_t)((uint32_t)h[0] << 16), (int32_t)((uint32_t)h[1] << 16), (int32_t)((uint32_t)h[2] << 16),
                  (int32_t)((uint32_t)h[3] << 16)};
}
static inline vf v_load_f16(const void *p) { return v_load_any(p, TRI_F16); }
static inline vf v_load_i8(const void *p) {
  const int8_t *q = p;
  return (vf){q[0], q[1], q[2], q[3]};
}
/* e4m3's seven lower bits at bit 20 are a float32's exponent and fraction but for the difference of their biases. The
 * smallest exponent has no hidden bit: with an exponent one higher the number is (1 + fraction) 2^-6, of which 2^-6 is
 * taken away. That is exact, and no step has a subnormal float32, which processors are slow with. */
static inline vf v_load_f8(const void *p) {
  vf r;
  for (int i = 0; i < 4; i++) {
    uint32_t code = ((const uint8_t *)p)[i], size = code & 0x7f, small = size < 8;
    uint32_t bits = (size << 20) + ((120 + small) << 23);
    float a;
    memcpy(&a, &bits, sizeof a);
    a -= small ? 0x1p-6f : 0;
    r[i] = code & 0x80 ? -a : a;
  }
  return r;
}
static inline void v_load_f8x4(const void *p, vf out[4]) {
  for (int i = 0; i < 4; i++) out[i] = v_load_f8((const uint8_t *)p + i * W);
}
static inline void v_store_f16(void *p, vf a) {
  for (int i = 0; i < 4; i++) ((uint16_t *)p)[i] = tri_f32_to_f16(a[i]);
}
static inline void v_store_bf16(void *p, vf a) {
  for (int i = 0; i < 4; i++) ((uint16_t *)p)[i] = tri_f32_to_bf16(a[i]);
}

static inline void v_store_i16(void *p, vf a) { /* of integral values within int16 */
  for (int i = 0; i < 4; i++) ((int16_t *)p)[i] = (int16_t)a[i];
}

/* Vectors of VI integers and their sums. */
enum { VI = 4 };
typedef vm vi;
static inline vi vi_zero(void) { return (vi){0, 0, 0, 0}; }
static inline vi vi_load16(const int16_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
static inline vi vi_load8(const int8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
static inline vi vi_madd(vi sum, vi a, vi b) { return sum + a * b; }
static inline vf vi_float(vi a) { return (vf){(float)a[0], (float)a[1], (float)a[2], (float)a[3]}; }

/* Always added in the same order. */
static inline float v_sum(vf a) { return (a[0] + a[1]) + (a[2] + a[3]); }
static inline float v_maximum(vf a) { return fmaxf(fmaxf(a[0], a[1]), fmaxf(a[2], a[3])); }
static inline void v_sum4_to(float *out, vf a, vf b, vf c, vf d) {
  out[0] = v_sum(a);
  out[1] = v_sum(b);
  out[2] = v_sum(c);
  out[3] = v_sum(d);
}

/* The sums of eight vectors' lanes, always added in the same order. */
static inline void v_sum8_to(float *low, float *high, const vf a[8]) {
  v_sum4_to(low, a[0], a[1], a[2], a[3]);
  v_sum4_to(high, a[4], a[5], a[6], a[7]);
}

/* Lane j of a[i] becomes lane i of a[j]. */
static inline void v_transpose(vf a[W]) {
  vf t[W];
  for (int i = 0; i < 4; i++) t[i] = (vf){a[0][i], a[1][i], a[2][i], a[3][i]};
  memcpy(a, t, sizeof t);
}

#endif
