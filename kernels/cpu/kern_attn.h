/* SPDX-License-Identifier: Apache-2.0 */
/* The two steps of attention that are no GEMMs: the running softmax of a block of scores (Milakov and
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
      /* tanh would turn a masked score into -cap. */
      a = v_select(v_ge(v_set1(-__builtin_inff()), hidden), hidden, a);
      v_store(s + j, a);
    }
  }
  for (int j = from; j < n; j += W) top = v_max(v_load(s + j), top);
  float max = v_maximum(top);
  if (max < r->max) max = r->max;
  vf m = v_set1(max), sum = v_zero();
  for (int j = from; j < n; j += W) {
    vf p = v_exp_below(v_sub(v_load(s + j), m));
    v_store(s + j, p);
    sum = v_add(sum, p);
  }
  float factor = r->max == max ? 1 : __builtin_expf(r->max - max);
  r->sum = r->sum * factor + v_sum(sum);
  r->max = max;
  return factor;
}

/* MR rows times VN vectors of the value's elements; with n < W only the first n of the one vector. */
V_INLINE void weigh_tile(const int MR, const int VN, const tri_dtype DT, const tri_weigh *t, int row, int e, int n) {
  vf a[4][3];
  float *acc = t->acc + (size_t)row * t->ld + e;
  const float *p = t->p + (size_t)row * t->ldp;
  const char *const *at = t->at;
  const size_t from = (size_t)e * v_bytes(DT);
  const int ahead = row == 0 ? t->ahead : 0; /* the first rows fetch for all */
  V_UNROLL for (int i = 0; i < MR; i++) {
    vf f = v_set1(t->factor ? t->factor[row + i] : 1);
    V_UNROLL for (int u = 0; u < VN; u++) a[i][u] =
        v_mul(f, load_some(acc + (size_t)i * t->ld + u * W, VN == 1 ? n : W));
  }
  for (int j = 0; j < t->keys; j++) {
    const char *v = at[j] + from;
    vf x[3];
    if (ahead)
      for (size_t b = 0; b < VN * W * v_bytes(DT); b += 64) v_prefetch(at[j + ahead] + from + b, 0);
    V_UNROLL for (int u = 0; u < VN; u++) {
      const char *part = v + (size_t)(u * W) * v_bytes(DT);
      x[u] = VN > 1 || n == W ? v_load_as(DT, part) : v_loadn_as(DT, part, n);
    }
    V_UNROLL for (int i = 0; i < MR; i++) {
      vf weight = v_set1(p[(size_t)i * t->ldp + (size_t)j]);
      V_UNROLL for (int u = 0; u < VN; u++) a[i][u] = v_fma(weight, x[u], a[i][u]);
    }
  }
  V_UNROLL for (int i = 0; i < MR; i++) {
    V_UNROLL for (int u = 0; u < VN; u++) store_some(acc + (size_t)i * t->ld + u * W, a[i][u], VN == 1 ? n : W);
  }
}

/* Two vectors at a time; three where one would be left over, whose few sums could not hide their latency. */
V_INLINE void weigh_rows(const int MR, const tri_dtype DT, const tri_weigh *t, int row) {
  int e = 0;
  for (; t->d - e >= 2 * W; e += 2 * W) {
    if (t->d - e == 3 * W) {
      weigh_tile(MR, 3, DT, t, row, e, W);
      return;
    }
    weigh_tile(MR, 2, DT, t, row, e, W);
  }
  for (; e < t->d; e += W) weigh_tile(MR, 1, DT, t, row, e, tri_min(W, t->d - e));
}

/* MR rows of q with TRI_SCORE_GROUP / MR keys. There are TRI_SCORE_GROUP accumulators for either MR, whose horizontal
 * sums v_sum8_to folds together in place of one by one. */
V_INLINE void score_tile(const int MR, const tri_dtype DT, const float *q, size_t ldq, const char *const *at, size_t d,
                         float *s, size_t ld, int ahead) {
  enum { GROUP = TRI_SCORE_GROUP };
  const int KEYS = GROUP / MR;
  const char *k[GROUP];
  vf acc[GROUP], x[2];
  V_UNROLL for (int u = 0; u < GROUP; u++) acc[u] = v_zero();
  V_UNROLL for (int u = 0; u < KEYS; u++) k[u] = at[u];
  ptrdiff_t next = (ptrdiff_t)((uintptr_t)at[ahead] - (uintptr_t)at[0]);
  size_t p = 0;
  for (; p + W <= d; p += W) {
    V_UNROLL for (int i = 0; i < MR; i++) x[i] = v_load(q + (size_t)i * ldq + p);
    V_UNROLL for (int u = 0; u < KEYS; u++) {
      vf key = v_load_as(DT, k[u] + p * v_bytes(DT));
      if (ahead) v_prefetch(k[u] + p * v_bytes(DT), next);
      V_UNROLL for (int i = 0; i < MR; i++) acc[i * KEYS + u] = v_fma(x[i], key, acc[i * KEYS + u]);
    }
  }
  if (p < d) {
    int n = (int)(d - p);
    V_UNROLL for (int i = 0; i < MR; i++) x[i] = v_loadn(q + (size_t)i * ldq + p, n);
    V_UNROLL for (int u = 0; u < KEYS; u++) {
      vf key = v_loadn_as(DT, k[u] + p * v_bytes(DT), n);
      V_UNROLL for (int i = 0; i < MR; i++) acc[i * KEYS + u] = v_fma(x[i], key, acc[i * KEYS + u]);
    }
  }
  v_sum8_to(s, MR == 2 ? s + ld : s + GROUP / 2, acc);
}

V_INLINE void score_keys(const tri_dtype DT, const tri_scores *args) {
  const tri_scores t = *args; /* a copy that no store to s can change */
  size_t d = (size_t)t.d;
  for (int j = 0; j < t.keys; j += TRI_SCORE_GROUP) {
    const char *const *at = t.at + j;
    const float *q = t.q;
    float *s = t.s + j;
    int left = t.rows, ahead = t.ahead; /* the first rows fetch for all */
    for (; left >= 2; left -= 2, q += 2 * t.ldq, s += 2 * t.ld, ahead = 0) {
      score_tile(2, DT, q, t.ldq, at, d, s, t.ld, ahead);
      score_tile(2, DT, q, t.ldq, at + TRI_SCORE_GROUP / 2, d, s + TRI_SCORE_GROUP / 2, t.ld, ahead);
    }
    if (left) score_tile(1, DT, q, t.ldq, at, d, s, t.ld, ahead);
  }
}

/* Values in their KV blocks are read block by block or so, not one column of all of them after the other. */
V_INLINE void weigh_keys(const tri_dtype DT, const tri_weigh *args) {
  enum { GROUP = 16 };
  int group = args->ahead && args->d > 3 * W ? GROUP : args->keys;
  tri_weigh t = *args;
  for (int j = 0; j < args->keys; j += group, t.at += group, t.p += group, t.factor = NULL) {
    int i = 0;
    t.keys = tri_min(group, args->keys - j);
    for (; i + 4 <= t.rows; i += 4) weigh_rows(4, DT, &t, i);
    for (; i + 2 <= t.rows; i += 2) weigh_rows(2, DT, &t, i);
    for (; i < t.rows; i++) weigh_rows(1, DT, &t, i);
  }
}

#define ATTEND(dt)                                                                                                     \
  static void scores_##dt(const tri_scores *t) { score_keys(TRI_##dt, t); }                                            \
  static void weigh_##dt(const tri_weigh *t) { weigh_keys(TRI_##dt, t); }
ATTEND(F32)
ATTEND(F16)
ATTEND(BF16)

static void isa_scores(const tri_scores *t) {
  if (t->dtype == TRI_BF16)
    scores_BF16(t);
  else if (t->dtype == TRI_F16)
    scores_F16(t);
  else
    scores_F32(t);
}

static void isa_weigh(const tri_weigh *t) {
  if (t->dtype == TRI_BF16)
    weigh_BF16(t);
  else if (t->dtype == TRI_F16)
    weigh_F16(t);
  else
    weigh_F32(t);
}

#endif
