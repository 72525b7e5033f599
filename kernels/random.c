/* SPDX-License-Identifier: Apache-2.0 */
/* The host's maker of random weights; kernels/cuda/rows/random.cu makes the same bits. */
#include "kernels/random.h"

#include "kernels/quantize.h"

static void put(const tri_random_fill *f, int64_t row, int64_t col, float factor) {
  float product = f->width * tri_random_unit(f->key, f->first_row + row * f->row_step, f->first_col + col);
  float x = f->mean + product;
  size_t at = (size_t)(row * f->ld + col);
  if (f->dtype == TRI_I8)
    ((int8_t *)f->to)[at] = tri_quantize_one(x, factor);
  else
    tri_store_f32(f->to, f->dtype, at, f->dtype == TRI_F8_E4M3 ? x * (TRI_F8_E4M3_MAX / f->width) : x);
}

/* A part of the elements, in the order of rows. */
static void fill_share(void *ctx, int index, int count) {
  const tri_random_fill *f = ctx;
  int64_t all = f->rows * f->cols, end = all / count * (index + 1) + (index == count - 1 ? all % count : 0);
  float factor = tri_quantize_factor(f->width);
  for (int64_t i = all / count * index; i < end; i++) put(f, i / f->cols, i % f->cols, factor);
}

void tri_random_fill_host(tri_backend *be, const tri_random_fill *fill) {
  enum { WORTH_THREADS = 1 << 14 };
  tri_random_fill f = *fill;
  if (!fill->rows || !fill->cols) return;
  if (fill->dtype == TRI_I8)
    for (int64_t r = 0; r < fill->rows; r++) fill->scales[r] = tri_quantize_scale(fill->width);
  if (fill->rows > WORTH_THREADS / fill->cols)
    tri_pool_run(be->pool, fill_share, &f);
  else
    fill_share(&f, 0, 1);
}
