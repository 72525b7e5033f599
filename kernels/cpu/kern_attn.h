/* The two steps of attention that are not products of rows: the running softmax of a block of scores (Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018, as FlashAttention-2 arranges it) and the weighted sum
 * of values. */
#ifndef TRI_KERNELS_CPU_KERN_ATTN_H
#define TRI_KERNELS_CPU_KERN_ATTN_H

#include "kernels/cpu/kern_rows.h"

/* s has room for whole vectors: n is rounded up here, and what the row does not see becomes probability 0. */
static float isa_softmax_row(tri_softmax_row *r) {
  float *s = r->s;
  int whole = (int)tri_round_up((size_t)r->n, (size_t)W), n = (int)tri_round_up((size_t)r->end, (size_t)W);
  int from = r->begin / W * W; /* whole vectors that the row does not see are not worked on */
  for (int j = 0; j < from; j++) s[j] = 0;
  for (int j = from; j < r->begin; j++) s[j] = -__builtin_inff();
  for (int j = r->end; j < n; j++) s[j] = -__builtin_inff();
  for (int j = n; j < whole; j++) s[j] = 0;
  vf top = v_set1(-__builtin_inff());
  if (r->softcap > 0 || r->slope != 0) {
    vf cap = v_set1(r->softcap), inverse = v_set1(1 / r->softcap), slope = v_set1(r->slope);
    float ramp[W];
    for (int u = 0; u < W; u++) ramp[u] = (float)u;
    for (int j = from; j < n; j += W) {
      vf a = v_load(s + j), hidden = a;
      if (r->softcap > 0) a = v_mul(cap, v_tanh(v_mul(a, inverse)));
      if (r->slope != 0) a = v_fma(slope, v_add(v_load(ramp), v_set1(r->distance + (float)j)), a);
      a = v_select(v_ge(v_set1(-__builtin_inff()), hidden), hidden, a);
      v_store(s + j, a);
    }
  }
  for (int j = from; j < n; j += W) top = v_max(v_load(s + j), top);
  float max = v_maximum(top);
  if (max < r->max) max = r->max;
  vf m = v_set1(max), sum = v_zero();
  for (int j = from; j < n; j += W) {
    vf p = v_exp(v_sub(v_load(s + j), m));
    v_store(s + j, p);
    sum = v_add(sum, p);
  }
  float factor = r->max == max ? 1 : __builtin_expf(r->max - max);
  r->sum = r->sum * factor + v_sum(sum);
  r->max = max;
  return factor;
}

/* MR rows times VN vectors of the value's elements; with n < W only the first n of the last vector. */
V_INLINE void weigh_tile(const int MR, const int VN, const tri_dtype DT, float *acc, size_t ld_acc, const float *factor,
                         const float *p, size_t ld_p, const char *v, size_t ld_v, int keys, int n, ptrdiff_t ahead) {
  vf a[4][2];
  V_UNROLL for (int i = 0; i < MR; i++) {
    vf f = v_set1(factor[i]);
    V_UNROLL for (int u = 0; u < VN; u++) {
      const float *at = acc + (size_t)i * ld_acc + u * W;
      a[i][u] = v_mul(f, load_some(at, VN == 1 ? n : W));
    }
  }
  for (int j = 0; j < keys; j++) {
    const char *row = v + (size_t)j * ld_v;
    vf x[2];
    if (ahead) v_prefetch(row, ahead);
    V_UNROLL for (int u = 0; u < VN; u++) {
      const char *at = row + (size_t)(u * W) * v_bytes(DT);
      x[u] = VN > 1 || n == W ? v_load_as(DT, at) : v_loadn_as(DT, at, n);
    }
    V_UNROLL for (int i = 0; i < MR; i++) {
      vf weight = v_set1(p[(size_t)i * ld_p + (size_t)j]);
      V_UNROLL for (int u = 0; u < VN; u++) a[i][u] = v_fma(weight, x[u], a[i][u]);
    }
  }
  V_UNROLL for (int i = 0; i < MR; i++) {
    V_UNROLL for (int u = 0; u < VN; u++) store_some(acc + (size_t)i * ld_acc + u * W, a[i][u], VN == 1 ? n : W);
  }
}

V_INLINE void weigh_rows(const int MR, const tri_dtype DT, float *acc, size_t ld_acc, const float *factor,
                         const float *p, size_t ld_p, const char *v, size_t ld_v, int keys, int d, ptrdiff_t ahead) {
  int e = 0;
  for (; e + 2 * W <= d; e += 2 * W)
    weigh_tile(MR, 2, DT, acc + e, ld_acc, factor, p, ld_p, v + (size_t)e * v_bytes(DT), ld_v, keys, W, ahead);
  for (; e < d; e += W)
    weigh_tile(MR, 1, DT, acc + e, ld_acc, factor, p, ld_p, v + (size_t)e * v_bytes(DT), ld_v, keys, tri_min(W, d - e),
               ahead);
}

#define WEIGH(dt)                                                                                                      \
  static void weigh_##dt(float *acc, size_t ld_acc, const float *factor, const float *p, size_t ld_p, int rows,        \
                         const char *v, size_t ld_v, int keys, int d, ptrdiff_t ahead) {                               \
    int i = 0;                                                                                                         \
    for (; i + 4 <= rows; i += 4)                                                                                      \
      weigh_rows(4, TRI_##dt, acc + (size_t)i * ld_acc, ld_acc, factor + i, p + (size_t)i * ld_p, ld_p, v, ld_v, keys, \
                 d, ahead);                                                                                            \
    for (; i + 2 <= rows; i += 2)                                                                                      \
      weigh_rows(2, TRI_##dt, acc + (size_t)i * ld_acc, ld_acc, factor + i, p + (size_t)i * ld_p, ld_p, v, ld_v, keys, \
                 d, ahead);                                                                                            \
    for (; i < rows; i++)                                                                                              \
      weigh_rows(1, TRI_##dt, acc + (size_t)i * ld_acc, ld_acc, factor + i, p + (size_t)i * ld_p, ld_p, v, ld_v, keys, \
                 d, ahead);                                                                                            \
  }
WEIGH(F32)
WEIGH(F16)
WEIGH(BF16)

static void isa_weigh(float *acc, size_t ld_acc, const float *factor, const float *p, size_t ld_p, int rows,
                      const void *v, size_t ld_v, tri_dtype dtype, int keys, int d, ptrdiff_t ahead) {
  size_t bytes = ld_v * v_bytes(dtype);
  if (dtype == TRI_BF16)
    weigh_BF16(acc, ld_acc, factor, p, ld_p, rows, v, bytes, keys, d, ahead);
  else if (dtype == TRI_F16)
    weigh_F16(acc, ld_acc, factor, p, ld_p, rows, v, bytes, keys, d, ahead);
  else
    weigh_F32(acc, ld_acc, factor, p, ld_p, rows, v, bytes, keys, d, ahead);
}

#endif
