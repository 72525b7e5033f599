/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of integers are exact in any order: pieces and tiles are cut for the caches alone, also in deterministic mode.
 */
#include <string.h>

#include "kernels/cpu/gemm.h"

/* Rows of x and a piece of their length that stay in the second-level cache, and rows of w that stay in the first. */
enum { ROWS = 64, PIECE = 1024, GROUP = 12 };
/* From so many rows on, the pieces of w are first copied side by side: as they lie, they may all fall into the same few
 * sets of the cache. */
enum { COPY_ROWS = 8, COPY_LD = PIECE + 64 };

/* Whole vectors, and rows that do not collide in the caches. */
size_t tri_int8_row(int k) { return tri_round_up((size_t)k, 64) + 32; }

size_t tri_int8_scratch(int n) { return (size_t)ROWS * (size_t)n * sizeof(int32_t) + (size_t)GROUP * COPY_LD; }

static void finish(const tri_cpu_gemm_int8 *p, const int32_t *sums, int row, int m) {
  int n = p->w.n;
  float wide[TRI_INT8_BLOCK];
  for (int i = 0; i < m; i++) {
    p->isa->dequantize(wide, sums + (size_t)i * (size_t)n, p->scales[row + i], n);
    tri_epilogue e = {.sum = wide, .scale = p->w.scale, .bias = p->bias, .n = n, .act = p->act};
    e.accumulate = p->accumulate;
    e.out = p->out + (size_t)(row + i) * p->ldo;
    p->isa->epilogue(&e);
  }
}

/* One piece of the sums of up to ROWS rows. */
static void add_piece(const tri_cpu_gemm_int8 *p, int32_t *sums, int8_t *copy, int row, int m, int from, int length) {
  size_t k = (size_t)p->w.k, ldx = tri_int8_row(p->w.k);
  int n = p->w.n;
  for (int j = 0; j < n; j += GROUP) {
    tri_int8_dot d = {.ldx = ldx, .ldw = k, .ldy = (size_t)n, .m = m, .n = tri_min(GROUP, n - j), .add = true};
    d.x = p->x + (size_t)row * ldx + from;
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
}

void tri_cpu_gemm_int8_run(const tri_cpu_gemm_int8 *p, void *scratch) {
  int32_t *sums = scratch;
  int8_t *copy = (int8_t *)(sums + (size_t)ROWS * (size_t)p->w.n);
  for (int row = 0; row < p->m; row += ROWS) {
    int m = tri_min(ROWS, p->m - row), piece = m == 1 ? p->w.k : PIECE;
    memset(sums, 0, (size_t)m * (size_t)p->w.n * sizeof *sums);
    for (int from = 0; from < p->w.k; from += piece)
      add_piece(p, sums, copy, row, m, from, tri_min(piece, p->w.k - from));
    finish(p, sums, row, m);
  }
}
