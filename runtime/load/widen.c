/* SPDX-License-Identifier: Apache-2.0 */
/* Common to the formats whose rows are outputs. The work is one row at a time: codes to numbers by the format's
 * decode, then zero and scale, run by run of a group, in loops that compilers vectorise (TRI_WIDEST). */
#include "runtime/load/widen.h"

#include "base/widest.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static float scale_at(const tri_widen_view *v, int64_t row, int64_t col) {
  const tri_widen_layout *l = v->layout;
  return tri_load_f32(v->scales, l->scale_type, (size_t)((row - v->first_scale) * l->scale_cols + col));
}

/* One group's elements of a row. */
static void apply(float *x, int64_t n, float zero, float scale) {
  for (int64_t i = 0; i < n; i++) x[i] = (x[i] - zero) * scale;
}

/* Each element in the group that `order` says. */
static void apply_in_order(const tri_widen_view *v, tri_widen_zero zero, int64_t row, int64_t col, int64_t n,
                           float *x) {
  for (int64_t i = 0; i < n; i++) {
    int64_t group = v->order[col + i];
    apply(x + i, 1, zero && v->zeros ? zero(v, row, group) : 0, scale_at(v, row, group));
  }
}

TRI_WIDEST static void apply_groups(const tri_widen_view *v, tri_widen_zero zero, int64_t row, int64_t col, int64_t n,
                                    float *x) {
  int64_t width = v->layout->group_cols;
  for (int64_t i = 0, run; i < n; i += run) {
    int64_t group = (col + i) / width;
    run = least(n - i, (group + 1) * width - (col + i));
    apply(x + i, run, zero && v->zeros ? zero(v, row, group) : 0, scale_at(v, row, group));
  }
}

void tri_widen_by_rows(const tri_widen_view *v, const tri_widen_rect *r, tri_widen_decode decode, tri_widen_zero zero,
                       float *out, size_t ld) {
  for (int64_t i = 0; i < r->rows; i++, out += ld) {
    int64_t row = r->row + i, scales = row / v->layout->group_rows;
    const uint8_t *codes = (const uint8_t *)v->codes + (size_t)(row - v->first_row) * v->pitch;
    decode(codes, (size_t)(r->col - v->first_col), (size_t)r->cols, out);
    if (v->order)
      apply_in_order(v, zero, scales, r->col, r->cols, out);
    else
      apply_groups(v, zero, scales, r->col, r->cols, out);
  }
}

TRI_WIDEST static void pairs(const uint8_t *codes, size_t n, uint8_t *restrict out) {
  for (size_t i = 0; i < n; i++) {
    out[2 * i] = codes[i] & 15;
    out[2 * i + 1] = codes[i] >> 4;
  }
}

void tri_widen_halves(const uint8_t *codes, size_t first, size_t n, uint8_t *out) {
  codes += first / 2;
  if (!n) return;
  if (first % 2) {
    *out++ = *codes++ >> 4;
    n--;
  }
  pairs(codes, n / 2, out);
  if (n % 2) out[n - 1] = codes[n / 2] & 15;
}
