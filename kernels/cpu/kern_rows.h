/* SPDX-License-Identifier: Apache-2.0 */
/* Element by element work on one row: conversion, norm, activation, rotation. */
#ifndef TRI_KERNELS_CPU_KERN_ROWS_H
#define TRI_KERNELS_CPU_KERN_ROWS_H

#include "kernels/cpu/kern_math.h"

V_INLINE vf load_some(const float *p, int n) { return n == W ? v_load(p) : v_loadn(p, n); }
V_INLINE void store_some(float *p, vf a, int n) {
  if (n == W)
    v_store(p, a);
  else
    v_storen(p, a, n);
}
/* for each whole vector and then the rest: i its first element, c its number of elements */
#define V_EACH(i, c, n) for (int i = 0, c; i < (n) && ((c) = tri_min(W, (n)-i)); i += W)

V_INLINE void expand_as(tri_dtype t, float *out, const char *src, int n, float factor) {
  vf f = v_set1(factor);
  int i = 0;
  for (; i + W <= n; i += W) v_store(out + i, v_mul(v_load_as(t, src + (size_t)i * v_bytes(t)), f));
  if (i < n) v_storen(out + i, v_mul(v_loadn_as(t, src + (size_t)i * v_bytes(t), n - i), f), n - i);
}

static void isa_expand(float *out, const void *src, tri_dtype dtype, int n, float factor) {
  switch (dtype) {
  case TRI_BF16: expand_as(TRI_BF16, out, src, n, factor); return;
  case TRI_F16: expand_as(TRI_F16, out, src, n, factor); return;
  case TRI_I8: expand_as(TRI_I8, out, src, n, factor); return;
  case TRI_F8_E4M3: expand_as(TRI_F8_E4M3, out, src, n, factor); return;
  default: expand_as(TRI_F32, out, src, n, factor); return;
  }
}

static void isa_narrow(void *out, tri_dtype dtype, const float *src, int n) {
  if (dtype == TRI_F32) {
    memcpy(out, src, (size_t)n * sizeof *src);
    return;
  }
  uint16_t *to = out;
  V_EACH(i, c, n) {
    uint16_t buffer[W], *at = c == W ? to + i : buffer;
    vf a = load_some(src + i, c);
    if (dtype == TRI_BF16)
      v_store_bf16(at, a);
    else
      v_store_f16(at, a);
    if (c < W) memcpy(to + i, buffer, (size_t)c * sizeof *buffer);
  }
}

/* act is a constant in each call: every activation gets a loop of its own without a branch inside. */
V_INLINE void epilogue_as(tri_act act, const tri_epilogue *e) {
  V_EACH(i, c, e->n) {
    vf a = load_some(e->sum + i, c);
    if (e->scale) a = v_mul(a, load_some(e->scale + i, c));
    if (e->bias) a = v_add(a, load_some(e->bias + i, c));
    a = v_act(act, a);
    if (e->accumulate) a = v_add(load_some(e->out + i, c), a);
    store_some(e->out + i, a, c);
  }
}

#define EACH_ACT(call)                                                                                                 \
  switch (act) {                                                                                                       \
  case TRI_ACT_NONE: call(TRI_ACT_NONE); return;                                                                       \
  case TRI_ACT_RELU: call(TRI_ACT_RELU); return;                                                                       \
  case TRI_ACT_GELU_ERF: call(TRI_ACT_GELU_ERF); return;                                                               \
  case TRI_ACT_GELU_TANH: call(TRI_ACT_GELU_TANH); return;                                                             \
  case TRI_ACT_SILU: call(TRI_ACT_SILU); return;                                                                       \
  case TRI_ACT_QUICK_GELU: call(TRI_ACT_QUICK_GELU); return;                                                           \
  case TRI_ACT_TANH: call(TRI_ACT_TANH); return;                                                                       \
  case TRI_ACT_SWIGLU_OAI: call(TRI_ACT_SWIGLU_OAI); return;                                                           \
  case TRI_ACT_SWIGLU_CLAMPED: call(TRI_ACT_SWIGLU_CLAMPED); return;                                                   \
  }

static void isa_epilogue(const tri_epilogue *e) {
  tri_act act = e->act;
#define CALL(a) epilogue_as(a, e)
  EACH_ACT(CALL)
#undef CALL
}

V_INLINE void glu_as(tri_act act, float limit, float *out, const float *gate, const float *up, int n) {
  vf most = v_set1(limit), least = v_set1(-limit);
  V_EACH(i, c, n) {
    vf g = load_some(gate + i, c), u = load_some(up + i, c);
    if (act == TRI_ACT_SWIGLU_OAI) {
      g = v_logistic_times(v_min(most, g), v_set1(1.702f));
      u = v_add(v_max(least, v_min(most, u)), v_set1(1.0f));
    } else if (act == TRI_ACT_SWIGLU_CLAMPED) {
      g = v_min(most, v_act(TRI_ACT_SILU, g));
      u = v_max(least, v_min(most, u));
    } else {
      g = v_act(act, g);
    }
    store_some(out + i, v_mul(g, u), c);
  }
}

static void isa_glu(float *out, const float *gate, const float *up, int n, tri_act act, float limit){
#define CALL(a) glu_as(a, limit, out, gate, up, n)
    EACH_ACT(CALL)
#undef CALL
}

/* Sum of (x - shift) or of its square; four vectors of partial sums. Lanes beyond the row are kept out of the square.
 */
V_INLINE float row_sum(const float *x, int n, float shift, bool square) {
  vf acc[4] = {v_zero(), v_zero(), v_zero(), v_zero()}, s = v_set1(shift);
  int i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    V_UNROLL for (int u = 0; u < 4; u++) {
      vf a = v_sub(v_load(x + i + u * W), s);
      acc[u] = square ? v_fma(a, a, acc[u]) : v_add(acc[u], a);
    }
  }
  float sum = v_sum(v_add(v_add(acc[0], acc[1]), v_add(acc[2], acc[3])));
  for (; i < n; i++) sum += square ? (x[i] - shift) * (x[i] - shift) : x[i] - shift;
  return sum;
}

/* The addition, the mean, the squares and the result are passes of their own over a row, which fits the first-level
 * cache. The sum of squares is over x - mean and not E[x^2] - mean^2, which would cancel for a large mean. */
static void isa_norm(const tri_norm_row *r) {
  int n = r->n;
  vf share = v_set1(r->delta_scale);
  if (r->delta)
    V_EACH(i, c, n) store_some(r->x + i, v_fma(share, load_some(r->delta + i, c), load_some(r->x + i, c)), c);
  if (!r->out) return;
  float mean = r->kind == TRI_NORM_LAYER ? row_sum(r->x, n, 0, false) / (float)n : 0;
  float square = r->mean_square < 0 ? row_sum(r->x, n, mean, true) / (float)n : r->mean_square;
  float factor = 1 / __builtin_sqrtf(square + r->eps);
  vf f = v_set1(factor), m = v_set1(mean), offset = v_set1(r->weight_offset);
  V_EACH(i, c, n) {
    vf a = v_mul(v_sub(load_some(r->x + i, c), m), f);
    if (r->weight) a = v_mul(a, v_add(load_some(r->weight + i, c), offset));
    if (r->bias) a = v_add(a, load_some(r->bias + i, c));
    store_some(r->out + i, a, c);
  }
}

static float isa_square_sum(const float *x, int n) { return row_sum(x, n, 0, true); }

static void isa_softcap(float *x, int n, float scale, float cap) {
  vf s = v_set1(cap > 0 ? scale / cap : scale), c = v_set1(cap);
  V_EACH(i, m, n) {
    vf a = v_mul(load_some(x + i, m), s);
    store_some(x + i, cap > 0 ? v_mul(c, v_tanh(a)) : a, m);
  }
}

static void isa_rotate(float *x, int half, const float *cosine, const float *sine) {
  V_EACH(i, c, half) {
    vf a = load_some(x + i, c), b = load_some(x + half + i, c);
    vf co = load_some(cosine + i, c), si = load_some(sine + i, c);
    store_some(x + i, v_sub(v_mul(a, co), v_mul(b, si)), c);
    store_some(x + half + i, v_fma(b, co, v_mul(a, si)), c);
  }
}

static void isa_blend(float *y, float a, const float *x, float b, int n) {
  vf va = v_set1(a), vb = v_set1(b);
  V_EACH(i, c, n) store_some(y + i, v_fma(vb, load_some(x + i, c), v_mul(va, load_some(y + i, c))), c);
}

#endif
