/* Linear layers with int8 weights and activations: the threads first quantise rows of x, then take blocks of columns in
 * turn. Sums of integers have no order, so a row's bits never depend on the batch. */
#include <string.h>

#include "kernels/cpu/product.h"

/* Rows of x and a piece of their length that stay in the second-level cache, and rows of w that stay in the first. */
enum { ROWS = 64, PIECE = 1024, GROUP = 12, BLOCK_MAX = 96 };
/* From so many rows on, the pieces of w are first copied side by side: as they lie, they may all fall into the same few
 * sets of the cache. */
enum { COPY_ROWS = 8, COPY_LD = PIECE + 64 };

typedef struct int8_layout {
  int step;
  size_t ld, scales, threads, thread_bytes, bytes; /* ld in elements, the others in bytes */
} int8_layout;

static bool lay_out(const tri_backend *be, const tri_linear_args *a, int8_layout *l) {
  size_t threads = (size_t)tri_pool_size(be->pool), x;
  int share = tri_max(1, a->w.n / ((int)threads * 8));
  l->step = tri_min((int)tri_round_up((size_t)share, GROUP), BLOCK_MAX);
  l->ld = tri_round_up((size_t)a->w.k, 64) + 32; /* whole vectors, and rows that do not collide in the caches */
  if (!tri_size_mul((size_t)a->x.rows * sizeof(int16_t), l->ld, &x)) return false;
  l->scales = tri_round_up(x, 64);
  l->threads = l->scales + tri_round_up((size_t)a->x.rows * sizeof(float), 64);
  l->thread_bytes = (size_t)ROWS * (size_t)l->step * sizeof(int32_t) + (size_t)GROUP * COPY_LD;
  l->bytes = l->threads + threads * l->thread_bytes;
  return true;
}

tri_status tri_cpu_linear_int8_plan(tri_backend *be, const tri_linear_args *a, tri_op_plan *plan) {
  int8_layout l;
  if (!lay_out(be, a, &l)) return TRI_OUT_OF_RANGE;
  plan->workspace = l.bytes;
  return TRI_OK;
}

typedef struct int8_run {
  tri_backend *be;
  const tri_cpu_isa *isa;
  const tri_linear_args *a;
  int8_layout l;
  int16_t *x;
  float *scales;
  tri_ticket rows, columns;
} int8_run;

static void finish(const int8_run *r, const int32_t *sums, int row, int m, int column, int n) {
  const tri_linear_args *a = r->a;
  float wide[BLOCK_MAX];
  for (int i = 0; i < m; i++) {
    r->isa->dequantize(wide, sums + (size_t)i * (size_t)n, r->scales[row + i], n);
    tri_epilogue e = {.sum = wide, .scale = a->w.scale + column, .n = n, .act = a->act, .accumulate = a->accumulate};
    e.bias = a->bias ? a->bias + column : NULL;
    e.out = a->out.data + (size_t)(row + i) * (size_t)a->out.ld + column;
    r->isa->epilogue(&e);
  }
}

static void block(const int8_run *r, int32_t *sums, int column, int n) {
  const tri_linear_args *a = r->a;
  size_t k = (size_t)a->w.k;
  int8_t *copy = (int8_t *)(sums + (size_t)ROWS * (size_t)r->l.step);
  for (int row = 0; row < a->x.rows; row += ROWS) {
    int m = tri_min(ROWS, a->x.rows - row), piece = m == 1 ? a->w.k : PIECE;
    memset(sums, 0, (size_t)m * (size_t)n * sizeof *sums);
    for (int p = 0; p < a->w.k; p += piece)
      for (int j = 0; j < n; j += GROUP) {
        tri_int8_dot d = {.ldx = r->l.ld, .ldw = k, .ldy = (size_t)n, .m = m, .n = tri_min(GROUP, n - j), .add = true};
        d.x = r->x + (size_t)row * r->l.ld + p;
        d.w = (const int8_t *)a->w.data + (size_t)(column + j) * k + p;
        d.y = sums + j, d.k = tri_min(piece, a->w.k - p), d.ahead = (ptrdiff_t)(6 * k);
        if (m >= COPY_ROWS) {
          for (int i = 0; i < d.n; i++) memcpy(copy + (size_t)i * COPY_LD, d.w + (size_t)i * k, (size_t)d.k);
          d.w = copy, d.ldw = COPY_LD, d.ahead = 0;
        }
        r->isa->int8_dot(&d);
      }
    finish(r, sums, row, m, column, n);
  }
}

static void int8_thread(void *ctx, int index, int count) {
  int8_run *r = ctx;
  const tri_linear_args *a = r->a;
  int32_t *sums = (int32_t *)((char *)r->be->workspace + r->l.threads + (size_t)index * r->l.thread_bytes);
  for (int i; (i = tri_take(&r->rows)) < a->x.rows;)
    r->scales[i] =
        r->isa->quantize(r->x + (size_t)i * r->l.ld, a->x.data + (size_t)i * (size_t)a->x.ld, a->w.k, (int)r->l.ld);
  if (count > 1) tri_pool_barrier(r->be->pool);
  for (int64_t column; (column = (int64_t)tri_take(&r->columns) * r->l.step) < a->w.n;)
    block(r, sums, (int)column, tri_min(r->l.step, a->w.n - (int)column));
}

void tri_cpu_linear_int8_launch(tri_backend *be, const tri_linear_args *a) {
  int8_run r = {.be = be, .isa = tri_cpu_isa_of(be), .a = a};
  if (!lay_out(be, a, &r.l)) return; /* plan saw that it can be laid out */
  r.x = be->workspace;
  r.scales = (float *)((char *)be->workspace + r.l.scales);
  tri_cpu_run(be, (double)a->x.rows * a->w.n * a->w.k / 24, int8_thread, &r);
}
