/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of int8 rows with int8 rows. x is kept as int16, so that a multiply-and-add of neighbouring pairs is exact
 * on every processor; sums are int32, which are the same in any order. */
#ifndef TRI_KERNELS_CPU_KERN_INT8_H
#define TRI_KERNELS_CPU_KERN_INT8_H

#include "kernels/cpu/kern_rows.h"
#include "kernels/quantize.h"

/* One row of x: returns its scale, NaN when an element is not finite. out is filled up with zeros to n elements. v_max
 * passes over a NaN, so x - x is summed as well: 0 for finite elements, NaN for others, and NaN != 0 is true. */
static float isa_quantize(int16_t *out, const float *x, int k, int n) {
  vf top = v_zero(), poison = v_zero();
  V_EACH(i, c, k) {
    vf a = load_some(x + i, c);
    top = v_max(v_abs(a), top);
    poison = v_add(poison, v_sub(a, a)); /* 0, or NaN */
  }
  float max = v_maximum(top), bad = v_sum(poison);
  vf factor = v_set1(tri_quantize_factor(max));
  memset(out, 0, (size_t)n * sizeof *out);
  if (bad != 0) return bad;
  V_EACH(i, c, k) {
    int16_t buffer[W];
    v_store_i16(buffer, v_round(v_mul(load_some(x + i, c), factor)));
    memcpy(out + i, buffer, (size_t)c * sizeof *buffer);
  }
  return tri_quantize_scale(max);
}

static void isa_dequantize(float *out, const int32_t *sum, float scale, int n) {
  vf s = v_set1(scale);
  int i = 0;
  for (; i + W <= n; i += W) v_store(out + i, v_mul(v_load_i32(sum + i), s));
  for (; i < n; i++) out[i] = (float)sum[i] * scale;
}

V_INLINE vi int8_last(const int8_t *w, int n) {
  int8_t buffer[VI] = {0};
  memcpy(buffer, w, (size_t)n);
  return vi_load8(buffer);
}

/* MR rows of x times NR rows of w. x may be read up to the next whole vector, w may not. A product of int8 with int8 as
 * int16 pairs fits int32, and so do sums of up to TRI_INT8_MAX_K of them, which the op's plan checks. */
V_INLINE void int8_tile(const int MR, const int NR, const tri_int8_dot *d, const int16_t *x0, const int8_t *w0,
                        int32_t *y) {
  vi acc[4][6];
  const int16_t *x[4];
  const int8_t *w[6];
  V_UNROLL for (int i = 0; i < MR; i++) {
    x[i] = x0 + (size_t)i * d->ldx;
    V_UNROLL for (int j = 0; j < NR; j++) acc[i][j] = vi_zero();
  }
  V_UNROLL for (int j = 0; j < NR; j++) w[j] = w0 + (size_t)j * d->ldw;
  int p = 0;
  for (; p + VI <= d->k; p += VI) {
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
  if (p < d->k) V_UNROLL for (int j = 0; j < NR; j++) {
      vi wv = int8_last(w[j] + p, d->k - p);
      V_UNROLL for (int i = 0; i < MR; i++) acc[i][j] = vi_madd(acc[i][j], vi_load16(x[i] + p), wv);
    }
  V_UNROLL for (int i = 0; i < MR; i++) {
    V_UNROLL for (int j = 0; j < NR; j++) {
      int32_t *at = y + (size_t)i * d->ldy + j, sum = vi_sum(acc[i][j]);
      *at = d->add ? *at + sum : sum;
    }
  }
}

#define INT8_TILE(mr, nr)                                                                                              \
  static void int8_##mr##_##nr(const tri_int8_dot *d, const int16_t *x, const int8_t *w, int32_t *y) {                 \
    int8_tile(mr, nr, d, x, w, y);                                                                                     \
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
  static void (*const tiles[4][2])(const tri_int8_dot *, const int16_t *, const int8_t *, int32_t *) = {
      {int8_1_1, int8_1_6}, {int8_2_1, int8_2_4}, {int8_3_1, int8_3_3}, {int8_4_1, int8_4_3}};
  for (int i = 0; i < d->m; i += 4) {
    int rows = tri_min(4, d->m - i), width = tile_columns[rows - 1];
    for (int j = 0, step; j < d->n; j += step) {
      bool whole = j + width <= d->n;
      step = whole ? width : 1;
      tiles[rows - 1][whole](d, d->x + (size_t)i * d->ldx, d->w + (size_t)j * d->ldw, d->y + (size_t)i * d->ldy + j);
    }
  }
}

#endif
