/* SPDX-License-Identifier: Apache-2.0 */
/* A group's sum of integers is exact in any order; groups are added in float32, those of a piece first. The piece is
 * therefore the same for any number of rows: a row has the same bits in every batch. Tiles are cut for the caches
 * alone.
 */
#include <string.h>

#include "kernels/cpu/gemm.h"
#include "kernels/quantize.h"

/* Rows of x and a piece of their length that stay in the second-level cache, and rows of w that stay in the first. */
enum { ROWS = 64, PIECE = 1024, GROUP = 12 };
/* From so many rows on, the pieces of w are first copied side by side: as they lie, they may all fall into the same few
 * sets of the cache. */
enum { COPY_ROWS = 8, COPY_LD = PIECE + 64 };

/* Whole vectors, and rows that do not collide in the caches. */
size_t tri_int8_row(int k) { return tri_round_up((size_t)k, 64) + 32; }

size_t tri_int8_scratch(int n) { return (size_t)ROWS * (size_t)n * sizeof(float) + (size_t)GROUP * COPY_LD; }

static void finish(const tri_cpu_gemm_int8 *p, const float *sums, int row, int m) {
  int n = p->w.n;
  for (int i = 0; i < m; i++) {
    tri_epilogue e = {.sum = sums + (size_t)i * (size_t)n, .scale = p->w.scale, .bias = p->bias, .n = n, .act = p->act};
    e.accumulate = p->accumulate;
    e.out = p->out + (size_t)(row + i) * p->ldo;
    p->isa->epilogue(&e);
  }
}

/* One piece of the sums of up to ROWS rows with GROUP columns from j on. */
static void add_columns(const tri_cpu_gemm_int8 *p, float *sums, int8_t *copy, int row, int m, int from, int j) {
  size_t k = (size_t)p->w.k, ldx = tri_int8_row(p->w.k), groups = (size_t)tri_int8_groups(p->w.k);
  int length = tri_min(PIECE, p->w.k - from);
  tri_int8_dot d = {
      .ldx = ldx, .lds = groups, .ldw = k, .ldy = (size_t)p->w.n, .m = m, .n = tri_min(GROUP, p->w.n - j)};
  d.x = p->x + (size_t)row * ldx + from;
  d.scales = p->scales + (size_t)row * groups + from / TRI_INT8_GROUP;
  d.w = (const int8_t *)p->w.data + (size_t)j * k + from;
  d.y = sums + j;
  d.k = length;
  d.ahead = (ptrdiff_t)(6 * k);
  if (m >= COPY_ROWS) {
    for (int i = 0; i < d.n; i++) memcpy(copy + (size_t)i * COPY_LD, d.w + (size_t)i * k, (size_t)length);
    d.w = copy;
    d.ldw = COPY_LD;
    d.ahead = 0;
  }
  p->isa->int8_dot(&d);
}

/* Weights stream by whole columns for one row; for more, a piece of x stays in the cache while all columns pass by.
 * Sums are added piece by piece either way. */
void tri_cpu_gemm_int8_run(const tri_cpu_gemm_int8 *p, void *scratch) {
  float *sums = scratch;
  int8_t *copy = (int8_t *)(sums + (size_t)ROWS * (size_t)p->w.n);
  for (int row = 0; row < p->m; row += ROWS) {
    int m = tri_min(ROWS, p->m - row);
    memset(sums, 0, (size_t)m * (size_t)p->w.n * sizeof *sums);
    for (int j = 0; m == 1 && j < p->w.n; j += GROUP)
      for (int from = 0; from < p->w.k; from += PIECE) add_columns(p, sums, copy, row, m, from, j);
    for (int from = 0; m > 1 && from < p->w.k; from += PIECE)
      for (int j = 0; j < p->w.n; j += GROUP) add_columns(p, sums, copy, row, m, from, j);
    finish(p, sums, row, m);
  }
}
