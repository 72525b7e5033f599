/* SPDX-License-Identifier: Apache-2.0 */
/* Exponential, tanh, erf and the activations on whole vectors, within 1 to 3 units in the last place.
 *
 * An isa_*.c sets the compiler's target, includes one vec_*.h for the primitives and then the kern_*.h, whose functions
 * are all static: that is how one text becomes three sets of kernels. The polynomials are our own fits at Chebyshev
 * points; the argument reduction of the exponential is Cody and Waite's ("Software Manual for the Elementary
 * Functions", 1980). */
#ifndef TRI_KERNELS_CPU_KERN_MATH_H
#define TRI_KERNELS_CPU_KERN_MATH_H

#include "kernels/cpu/cpu.h"

#define V_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define V_UNROLL _Pragma("clang loop unroll(full)")
#else
#define V_UNROLL _Pragma("GCC unroll 16")
#endif

/* p[0] + p[1] x + ... */
V_INLINE vf v_poly(vf x, const float *p, int terms) {
  vf r = v_set1(p[terms - 1]);
  V_UNROLL
  for (int i = terms - 2; i >= 0; i--) r = v_fma(r, x, v_set1(p[i]));
  return r;
}

/* exp(x) = p 2^n, p returned and n as the last bits of *shifted (see v_pow2). The shift of v_round is added with the
 * first product; log 2 comes in a short and a long part, so that the product with the first is exact. */
V_INLINE vf v_exp_parts(vf x, vf *shifted) {
  static const float tail[] = {5.000000000e-01f, 1.666657685e-01f, 4.166655444e-02f, 8.363202972e-03f,
                               1.392621347e-03f};
  vf shift = v_set1(V_SHIFT), t = v_fma(x, v_set1(0x1.715476p+0f), shift), n = v_sub(t, shift);
  vf r = v_fma(n, v_set1(-0x1.62ep-1f), x);
  r = v_fma(n, v_set1(-0x1.0bfbe8p-15f), r);
  *shifted = t;
  return v_add(v_fma(v_mul(r, r), v_poly(r, tail, 5), r), v_set1(1.0f));
}

/* 0 below -104, infinity above 89, NaN for NaN. */
V_INLINE vf v_exp(vf x) {
  vf t, p = v_exp_parts(v_min(v_set1(89.0f), v_max(v_set1(-104.0f), x)), &t), shift = v_set1(V_SHIFT);
  vf half = v_fma(v_sub(t, shift), v_set1(0.5f), shift); /* two factors reach denormals and infinity */
  return v_mul(v_mul(p, v_pow2(half)), v_pow2(v_add(v_sub(t, half), shift)));
}

/* For x <= 0, as a softmax has them: where the result would not be a normal number it is 0. */
V_INLINE vf v_exp_below(vf x) {
  vf t, p = v_exp_parts(x, &t);
  return v_select(v_ge(v_set1(-87.3f), x), v_zero(), v_mul(p, v_pow2(t)));
}

V_INLINE vf v_tanh(vf x) {
  static const float odd[] = {-3.333333312e-01f, 1.333329635e-01f,  -5.395759513e-02f,
                              2.175570035e-02f,  -8.301695372e-03f, 2.246003694e-03f};
  vf a = v_abs(x), s = v_mul(x, x), one = v_set1(1.0f);
  vf small = v_fma(v_mul(x, s), v_poly(s, odd, 6), x);
  vf large = v_sub(one, v_div(v_set1(2.0f), v_add(v_exp(v_add(a, a)), one)));
  return v_select(v_ge(a, v_set1(0.64f)), v_copysign(large, x), small);
}

V_INLINE vf v_erf(vf x) {
  static const float odd[] = {1.283791665e-01f, -3.761263205e-01f, 1.128366947e-01f, -2.685795906e-02f,
                              5.197487227e-03f, -8.102915565e-04f, 8.204169690e-05f};
  static const float log_erfc[] = {-7.541539599e+00f, -5.258373840e+00f, -9.422319476e-01f,
                                   -1.130228976e-02f, 2.273360880e-03f,  -4.440372801e-04f,
                                   8.202701928e-05f,  -1.396394758e-05f, 1.643569654e-06f}; /* about 2.45 */
  vf a = v_abs(x), s = v_mul(x, x);
  vf small = v_fma(x, v_poly(s, odd, 7), x);
  vf t = v_sub(v_min(v_set1(4.0f), a), v_set1(2.45f));
  vf large = v_sub(v_set1(1.0f), v_exp(v_poly(t, log_erfc, 9)));
  return v_select(v_ge(a, v_set1(0.935f)), v_copysign(large, x), small);
}

V_INLINE vf v_logistic_times(vf x, vf slope) { /* x / (1 + exp(-slope x)) */
  return v_div(x, v_add(v_set1(1.0f), v_exp(v_sub(v_zero(), v_mul(slope, x)))));
}

V_INLINE vf v_act(tri_act act, vf x) {
  vf half = v_mul(x, v_set1(0.5f));
  switch (act) {
  case TRI_ACT_NONE: return x;
  case TRI_ACT_RELU: return v_max(v_zero(), x);
  case TRI_ACT_GELU_ERF: return v_fma(half, v_erf(v_mul(x, v_set1(0x1.6a09e6p-1f))), half);
  case TRI_ACT_GELU_TANH: {
    vf u = v_mul(v_fma(v_mul(x, x), v_set1(0.044715f), v_set1(1.0f)), v_mul(x, v_set1(0x1.988454p-1f)));
    return v_fma(half, v_tanh(u), half);
  }
  case TRI_ACT_SILU: return v_logistic_times(x, v_set1(1.0f));
  case TRI_ACT_QUICK_GELU: return v_logistic_times(x, v_set1(1.702f));
  case TRI_ACT_TANH: return v_tanh(x);
  case TRI_ACT_SWIGLU_OAI:
  case TRI_ACT_SWIGLU_CLAMPED: break; /* glu_as has them */
  }
  return x;
}

/* W elements of any weight or KV type; t is a constant wherever this is inlined. */
V_INLINE vf v_load_as(tri_dtype t, const char *p) {
  switch (t) {
  case TRI_BF16: return v_load_bf16(p);
  case TRI_F16: return v_load_f16(p);
  case TRI_I8: return v_load_i8(p);
  case TRI_F8_E4M3: return v_load_f8(p);
  default: return v_load((const float *)p);
  }
}

/* Columns of w in a tile of dot products with 1 to 4 rows of x: as many sums as there are registers. */
static const int tile_columns[4] = {6, 4, 3, 3};

V_INLINE bool v_has_scales(tri_dtype t) { return t == TRI_I8 || t == TRI_F8_E4M3; }

V_INLINE size_t v_bytes(tri_dtype t) {
  if (t == TRI_F32) return 4;
  return v_has_scales(t) ? 1 : 2;
}

/* The address may be anything, so it is made as a number. */
V_INLINE void v_prefetch(const void *p, ptrdiff_t ahead) {
  __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)ahead), 0, 3);
}

/* The first n < W elements, then zeros; reads nothing beyond them. */
V_INLINE vf v_loadn_as(tri_dtype t, const char *p, int n) {
  if (t == TRI_F32) return v_loadn((const float *)p, n);
  char buffer[W * 2] = {0};
  memcpy(buffer, p, (size_t)n * v_bytes(t));
  return v_load_as(t, buffer);
}

#endif
