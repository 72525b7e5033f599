/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of int8 rows with int8 rows. x is kept as int16, so that a multiply-and-add of neighbouring pairs is exact
 * on every processor; a group's sums are int32, which are the same in any order. */
#ifndef TRI_KERNELS_CPU_KERN_INT8_H
#define TRI_KERNELS_CPU_KERN_INT8_H

#include "kernels/cpu/kern_rows.h"
#include "kernels/quantize.h"

/* A group of a row: returns its scale, NaN when an element is not finite; then out stays as it is. v_max passes over a
 * NaN, so x - x is summed as well: 0 for finite elements, NaN for others, and NaN != 0 is true. */
static float quantize_group(int16_t *out, const float *x, int k) {
  vf top = v_zero(), poison = v_zero();
  V_EACH(i, c, k) {
    vf a = load_some(x + i, c);
    top = v_max(v_abs(a), top);
    poison = v_add(poison, v_sub(a, a)); /* 0, or NaN */
  }
  float max = v_maximum(top), bad = v_sum(poison);
  vf factor = v_set1(tri_quantize_factor(max));
  if (bad != 0) return bad;
  V_EACH(i, c, k) {
    int16_t buffer[W];
    v_store_i16(buffer, v_round(v_mul(load_some(x + i, c), factor)));
    memcpy(out + i, buffer, (size_t)c * sizeof *buffer);
  }
  return tri_quantize_scale(max);
}

/* One row of x. scales: [tri_int8_groups(k)]; out is filled up with zeros to n elements. */
static void isa_quantize(int16_t *out, float *scales, const float *x, int k, int n) {
  memset(out, 0, (size_t)n * sizeof *out);
  for (int i = 0; i < k; i += TRI_INT8_GROUP)
    scales[i / TRI_INT8_GROUP] = quantize_group(out + i, x + i, tri_min(k - i, TRI_INT8_GROUP));
}

V_INLINE vi int8_last(const int8_t *w, int n) {
  int8_t buffer[VI] = {0};
  memcpy(buffer, w, (size_t)n);
  return vi_load8(buffer);
}

/* MR rows of x times NR rows of w, over elements p .. end - 1 of k. x may be read up to the next whole vector, w may
 * not. */
V_INLINE void int8_group(const int MR, const int NR, const tri_int8_dot *d, const int16_t *const *x,
                         const int8_t *const *w, int p, int end, vi (*acc)[6]) {
  for (; p + VI <= end; p += VI) {
    vi wv[6];
    V_UNROLL for (int j = 0; j < NR; j++) {
      wv[j] = vi_load8(w[j] + p);
      if (d->ahead && p % 64 == 0) v_prefetch(w[j] + p, d->ahead);
    }
    V_UNROLL for (int i = 0; i < MR; i++) {
      vi xv = vi_load16(x[i] + p);
      V_UNROLL for (int j = 0; j < NR; j++) acc[i][j] = vi_madd(acc[i][j], xv, wv[j]);
    }
  }
  if (p < end) V_UNROLL for (int j = 0; j < NR; j++) {
      vi wv = int8_last(w[j] + p, end - p);
      V_UNROLL for (int i = 0; i < MR; i++) acc[i][j] = vi_madd(acc[i][j], vi_load16(x[i] + p), wv);
    }
}

/* The same over all groups, each with its scales, from row `row` of x on. */
V_INLINE void int8_tile(const int MR, const int NR, const tri_int8_dot *d, int row, const int8_t *w0, float *y) {
  vf sum[4][6];
  const int16_t *x[4];
  const int8_t *w[6];
  const float *scale = d->scales + (size_t)row * d->lds;
  V_UNROLL for (int i = 0; i < MR; i++) {
    x[i] = d->x + (size_t)(row + i) * d->ldx;
    V_UNROLL for (int j = 0; j < NR; j++) sum[i][j] = v_zero();
  }
  V_UNROLL for (int j = 0; j < NR; j++) w[j] = w0 + (size_t)j * d->ldw;
  for (int p = 0; p < d->k; p += TRI_INT8_GROUP, scale++) {
    vi acc[4][6];
    V_UNROLL for (int i = 0; i < MR; i++) V_UNROLL for (int j = 0; j < NR; j++) acc[i][j] = vi_zero();
    int8_group(MR, NR, d, x, w, p, tri_min(p + TRI_INT8_GROUP, d->k), acc);
    V_UNROLL for (int i = 0; i < MR; i++) {
      vf s = v_set1(scale[(size_t)i * d->lds]);
      V_UNROLL for (int j = 0; j < NR; j++) sum[i][j] = v_fma(vi_float(acc[i][j]), s, sum[i][j]);
    }
  }
  V_UNROLL for (int i = 0; i < MR; i++) V_UNROLL for (int j = 0; j < NR; j++) y[(size_t)i * d->ldy + (size_t)j] +=
      v_sum(sum[i][j]);
}

#define INT8_TILE(mr, nr)                                                                                              \
  static void int8_##mr##_##nr(const tri_int8_dot *d, int row, const int8_t *w, float *y) {                            \
    int8_tile(mr, nr, d, row, w, y);                                                                                   \
  }
INT8_TILE(1, 1)
INT8_TILE(2, 1)
INT8_TILE(3, 1)
INT8_TILE(4, 1)
INT8_TILE(1, 6)
INT8_TILE(2, 4)
INT8_TILE(3, 3)
INT8_TILE(4, 3)

static void isa_int8_dot(const tri_int8_dot *d) {
  static void (*const tiles[4][2])(const tri_int8_dot *, int, const int8_t *, float *) = {
      {int8_1_1, int8_1_6}, {int8_2_1, int8_2_4}, {int8_3_1, int8_3_3}, {int8_4_1, int8_4_3}};
  for (int i = 0; i < d->m; i += 4) {
    int rows = tri_min(4, d->m - i), width = tile_columns[rows - 1];
    for (int j = 0, step; j < d->n; j += step) {
      bool whole = j + width <= d->n;
      step = whole ? width : 1;
      tiles[rows - 1][whole](d, i, d->w + (size_t)j * d->ldw, d->y + (size_t)i * d->ldy + j);
    }
  }
}

#endif
