/* Linear layers. Few rows of x: dot products, which read every weight once and convert it in registers. More: outer
 * products with panels of weights, widened and turned in a workspace that fits the first-level cache. Many: the same
 * columns through single-threaded BLAS, the weights widened piece by piece for the second-level cache. Deterministic
 * mode does everything with dot products, whose sums do not depend on the number of rows. */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { OWN, OWN_PACKED, PANEL, BLAS };

/* Rows of x from which the next way wins, measured on Zen 3 with AVX2. Short sums leave dot products little to do
 * between one horizontal addition and the next, and BLAS little between one visit to its result and the next. */
enum { SHORT_K = 512, PANEL_FROM = 64, PANEL_FROM_SHORT = 24, BLAS_FROM = 160, BLAS_FROM_SHORT = 640 };
/* An own panel's share of k, and the most columns that one item takes. */
enum { OWN_PANEL_K = 256, OWN_PANEL_N = 96 };

/* A piece of a BLAS panel: k's share is one pass of the library's own blocking, together they are 576 KiB. */
enum { PANEL_N = 384, PANEL_K = 384 };
/* Columns of an own item: a multiple of the twelve rows of w that the kernel takes at a time. */
enum { OWN_N = 12, OWN_N_MAX = 96 };
/* With more than a few rows, pieces of x (and from WIDEN_ROWS on of w, widened) are first copied side by side: rows a
 * power of two apart would all fall into the same few sets of the caches. The pad keeps the copies from doing the same.
 */
enum { PACK_ROWS = 4, WIDEN_ROWS = 32, PACK_M = 64, PACK_LD = TRI_DOT_CHUNK + 16, PANEL_LD = OWN_PANEL_K + 16 };

/* Whether rows so far apart (in floats) meet in a few sets of the first-level cache. */
static bool rows_collide(size_t ld) { return ld % 256 == 0; }

static int variant_of(const tri_backend *be, const tri_linear_args *a) {
  int m = a->x.rows;
  bool is_short = a->w.k <= SHORT_K;
  /* With an activation between product and accumulation the product needs a place of its own, which only dot products
   * have. */
  bool direct = !be->deterministic && a->w.k > 0 && !(a->accumulate && a->act != TRI_ACT_NONE);
  if (direct && m >= (is_short ? BLAS_FROM_SHORT : BLAS_FROM) && tri_cpu_use_blas(be)) return BLAS;
  if (direct && m >= (is_short ? PANEL_FROM_SHORT : PANEL_FROM)) return PANEL;
  return m >= PACK_ROWS && a->w.k > 0 ? OWN_PACKED : OWN;
}

tri_status tri_cpu_linear_plan(tri_backend *be, const tri_linear_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_linear_plan(be, a, plan);
  if (st != TRI_OK) return st;
  int m = a->x.rows, n = a->w.n, threads = tri_pool_size(be->pool), cols = tri_cpu_isa_of(be)->panel_cols;
  int share = tri_max(1, n / (threads * 8)); /* a few items for every thread */
  size_t floats = 0;
  plan->variant = variant_of(be, a);
  switch (plan->variant) {
  case BLAS: {
    /* The same number of panels for every thread: a third panel for two of them would leave one waiting. */
    int each = (n + threads - 1) / threads, panels = (each + PANEL_N - 1) / PANEL_N;
    plan->split = tri_min(PANEL_N, (int)tri_round_up((size_t)((each + panels - 1) / panels), 16));
    if (a->w.dtype != TRI_F32) floats = (size_t)plan->split * PANEL_K;
    break;
  }
  case PANEL:
    plan->split = tri_min(OWN_PANEL_N, (int)tri_round_up((size_t)share, (size_t)cols));
    floats = (size_t)cols * OWN_PANEL_K + (rows_collide((size_t)a->x.ld) ? (size_t)m * PANEL_LD : 0);
    break;
  default:
    plan->split = tri_min((int)tri_round_up((size_t)share, OWN_N), OWN_N_MAX);
    floats = (size_t)plan->split * (size_t)tri_min(m, PACK_M);
    if (plan->variant == OWN_PACKED) floats += (size_t)(tri_min(m, PACK_M) + OWN_N) * PACK_LD;
  }
  plan->workspace = (size_t)threads * tri_round_up(floats * sizeof(float), 64);
  return TRI_OK;
}

typedef struct linear_run {
  tri_backend *be;
  const tri_linear_args *a;
  const tri_op_plan *plan;
  tri_ticket ticket;
} linear_run;

static const void *weight_row(const tri_weight *w, int row, int col) {
  return (const char *)w->data + ((size_t)row * (size_t)w->k + (size_t)col) * tri_dtype_size(w->dtype);
}

static void finish_rows(const linear_run *r, const float *sums, int row, int m, int column, int n) {
  const tri_linear_args *a = r->a;
  for (int i = 0; i < m; i++) {
    tri_epilogue e = {.sum = sums + (size_t)i * (size_t)n, .n = n, .act = a->act, .accumulate = a->accumulate};
    e.scale = a->w.dtype == TRI_I8 ? a->w.scale + column : NULL;
    e.bias = a->bias ? a->bias + column : NULL;
    e.out = a->out.data + (size_t)(row + i) * (size_t)a->out.ld + column;
    tri_cpu_isa_of(r->be)->epilogue(&e);
  }
}

/* Fewer than PACK_ROWS rows, straight from where they are. */
static void own_item(const linear_run *r, float *sums, int column, int n) {
  const tri_linear_args *a = r->a;
  tri_dot d = {.x = a->x.data, .ldx = (size_t)a->x.ld, .m = a->x.rows, .n = n, .k = a->w.k};
  d.w = weight_row(&a->w, column, 0), d.ldw = (size_t)a->w.k, d.dtype = a->w.dtype;
  /* The rows of w that the kernel takes up next. */
  d.ahead = (ptrdiff_t)((size_t)6 * (size_t)a->w.k * tri_dtype_size(a->w.dtype));
  d.y = sums, d.ldy = (size_t)n;
  tri_cpu_isa_of(r->be)->dot(&d);
  finish_rows(r, sums, 0, a->x.rows, column, n);
}

/* One piece of the sums of up to PACK_M rows. Cut at TRI_DOT_CHUNK as the kernel itself does, so the bits are the same.
 */
static void packed_piece(const linear_run *r, float *sums, float *x, float *wide, int row, int m, int column, int n,
                         int p) {
  const tri_linear_args *a = r->a;
  const tri_cpu_isa *isa = tri_cpu_isa_of(r->be);
  int k = tri_min(TRI_DOT_CHUNK, a->w.k - p);
  size_t ldx = (size_t)a->x.ld;
  const float *from = a->x.data + (size_t)row * ldx + p;
  if (rows_collide(ldx)) {
    for (int i = 0; i < m; i++) memcpy(x + (size_t)i * PACK_LD, from + (size_t)i * ldx, (size_t)k * sizeof *x);
    from = x, ldx = PACK_LD;
  }
  for (int j = 0; j < n; j += OWN_N) {
    tri_dot d = {.x = from, .ldx = ldx, .m = m, .n = tri_min(OWN_N, n - j), .k = k, .add = p > 0};
    d.y = sums + j, d.ldy = (size_t)n;
    d.w = weight_row(&a->w, column + j, p), d.ldw = (size_t)a->w.k, d.dtype = a->w.dtype;
    d.ahead = (ptrdiff_t)((size_t)6 * (size_t)a->w.k * tri_dtype_size(a->w.dtype));
    if (m >= WIDEN_ROWS) {
      for (int i = 0; i < d.n; i++)
        isa->expand(wide + (size_t)i * PACK_LD, weight_row(&a->w, column + j + i, p), a->w.dtype, k, 1);
      d.w = wide, d.ldw = PACK_LD, d.dtype = TRI_F32, d.ahead = 0;
    }
    isa->dot(&d);
  }
}

static void packed_item(const linear_run *r, float *scratch, int column, int n) {
  const tri_linear_args *a = r->a;
  for (int row = 0; row < a->x.rows; row += PACK_M) {
    int m = tri_min(PACK_M, a->x.rows - row);
    float *x = scratch, *wide = x + (size_t)m * PACK_LD, *sums = wide + OWN_N * PACK_LD;
    for (int p = 0; p < a->w.k; p += TRI_DOT_CHUNK) packed_piece(r, sums, x, wide, row, m, column, n, p);
    finish_rows(r, sums, row, m, column, n);
  }
}

/* Bias and activation of columns whose sums are already where they belong. */
static void finish_in_place(const linear_run *r, int column, int n) {
  const tri_linear_args *a = r->a;
  if (!a->bias && a->act == TRI_ACT_NONE) return;
  for (int i = 0; i < a->x.rows; i++) {
    float *row = a->out.data + (size_t)i * (size_t)a->out.ld + column;
    tri_epilogue e = {.sum = row, .bias = a->bias ? a->bias + column : NULL, .out = row, .n = n, .act = a->act};
    tri_cpu_isa_of(r->be)->epilogue(&e);
  }
}

static void panel_item(const linear_run *r, float *scratch, int column, int n) {
  const tri_linear_args *a = r->a;
  const tri_cpu_isa *isa = tri_cpu_isa_of(r->be);
  int m = a->x.rows, cols = isa->panel_cols;
  float *copy = scratch + (size_t)cols * OWN_PANEL_K;
  tri_panel t = {.w = scratch, .ldy = (size_t)a->out.ld, .m = m};
  for (int p = 0; p < a->w.k; p += OWN_PANEL_K) {
    t.k = tri_min(OWN_PANEL_K, a->w.k - p);
    t.x = a->x.data + p, t.ldx = (size_t)a->x.ld, t.add = a->accumulate || p > 0;
    if (rows_collide(t.ldx)) {
      for (int i = 0; i < m; i++)
        memcpy(copy + (size_t)i * PANEL_LD, t.x + (size_t)i * t.ldx, (size_t)t.k * sizeof *copy);
      t.x = copy, t.ldx = PANEL_LD;
    }
    tri_pack pack = {.out = scratch, .ldw = (size_t)a->w.k, .dtype = a->w.dtype, .k = t.k};
    if (a->w.k - p > OWN_PANEL_K) pack.ahead = (ptrdiff_t)(OWN_PANEL_K * tri_dtype_size(a->w.dtype));
    for (int j = column; j < column + n; j += cols) {
      pack.n = t.n = tri_min(cols, column + n - j);
      pack.w = weight_row(&a->w, j, p), pack.scale = a->w.dtype == TRI_I8 ? a->w.scale + j : NULL;
      isa->pack(&pack);
      t.y = a->out.data + j;
      isa->panel(&t);
    }
  }
  finish_in_place(r, column, n);
}

static void blas_item(const linear_run *r, float *wide, int column, int n) {
  const tri_linear_args *a = r->a;
  const tri_cpu_isa *isa = tri_cpu_isa_of(r->be);
  int m = a->x.rows, k = a->w.k;
  float *out = a->out.data + column, beta = a->accumulate ? 1 : 0;
  if (a->w.dtype == TRI_F32) {
    tri_blas_gemm(m, n, k, a->x.data, (size_t)a->x.ld, weight_row(&a->w, column, 0), (size_t)k, beta, out,
                  (size_t)a->out.ld);
  }
  for (int p = 0; p < k && a->w.dtype != TRI_F32; p += PANEL_K, beta = 1) {
    int piece = tri_min(PANEL_K, k - p);
    for (int j = 0; j < n; j++) {
      float scale = a->w.dtype == TRI_I8 ? a->w.scale[column + j] : 1;
      isa->expand(wide + (size_t)j * PANEL_K, weight_row(&a->w, column + j, p), a->w.dtype, piece, scale);
    }
    tri_blas_gemm(m, n, piece, a->x.data + p, (size_t)a->x.ld, wide, PANEL_K, beta, out, (size_t)a->out.ld);
  }
  finish_in_place(r, column, n);
}

static void linear_thread(void *ctx, int index, int count) {
  (void)count;
  linear_run *r = ctx;
  int step = r->plan->split, n = r->a->w.n;
  size_t share = r->plan->workspace / (size_t)tri_pool_size(r->be->pool);
  float *scratch = (float *)((char *)r->be->workspace + (size_t)index * share);
  for (int64_t column; (column = (int64_t)tri_take(&r->ticket) * step) < n;) {
    int width = tri_min(step, n - (int)column);
    if (r->plan->variant == BLAS)
      blas_item(r, scratch, (int)column, width);
    else if (r->plan->variant == PANEL)
      panel_item(r, scratch, (int)column, width);
    else if (r->plan->variant == OWN_PACKED)
      packed_item(r, scratch, (int)column, width);
    else
      own_item(r, scratch, (int)column, width);
  }
}

void tri_cpu_linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_linear_args *a, tri_stream *stream) {
  (void)stream;
  if (a->x.rows == 0 || a->w.n == 0) return;
  linear_run r = {.be = be, .a = a, .plan = plan};
  double work = (double)a->x.rows * a->w.n * a->w.k;
  tri_cpu_run(be, work / 16, linear_thread, &r);
}
