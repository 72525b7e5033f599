/* Linear layers. Few rows: our own products, which read every weight once and convert it in registers. Many rows:
 * panels of output columns, one thread each, through single-threaded BLAS, the weights widened to float32 piece by
 * piece in a workspace that fits the second-level cache. */
#include "kernels/cpu/cpu.h"

enum { OWN = 0, BLAS = 1 };

/* From here on BLAS wins (measured with opcheck --bench on Zen 3 with AVX2): its packing pays after a few dozen rows.
 */
enum { BLAS_ROWS = 48 };
/* A piece of a BLAS panel: k's share is one pass of the library's own blocking, together they are 576 KiB. */
enum { PANEL_N = 384, PANEL_K = 384 };
/* Columns of an own item: a multiple of the twelve rows of w that the kernel takes at a time. */
enum { OWN_N = 12, OWN_N_MAX = 96, OWN_M_MAX = 256 };

tri_status tri_cpu_linear_plan(tri_backend *be, const tri_linear_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_linear_plan(be, a, plan);
  if (st != TRI_OK) return st;
  int m = a->x.rows, n = a->w.n, threads = tri_pool_size(be->pool);
  /* With an activation between product and accumulation the product needs a place of its own: BLAS has none. */
  bool own = be->deterministic || m < BLAS_ROWS || a->w.k == 0 || (a->accumulate && a->act != TRI_ACT_NONE);
  plan->variant = own ? OWN : BLAS;
  size_t floats;
  if (own) {
    plan->split = (int)tri_round_up((size_t)tri_max(1, n / (threads * 8)), OWN_N);
    plan->split = tri_min(plan->split, OWN_N_MAX);
    floats = (size_t)plan->split * (size_t)tri_min(m, OWN_M_MAX);
  } else {
    int share = (int)tri_round_up((size_t)tri_max(1, n / (threads * 2)), 32);
    plan->split = tri_min(PANEL_N, share);
    floats = a->w.dtype == TRI_F32 ? 0 : (size_t)plan->split * PANEL_K;
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

static void own_item(const linear_run *r, float *sums, int column, int n) {
  const tri_linear_args *a = r->a;
  const tri_cpu_isa *isa = tri_cpu_isa_of(r->be);
  for (int row = 0; row < a->x.rows; row += OWN_M_MAX) {
    int m = tri_min(OWN_M_MAX, a->x.rows - row);
    tri_dot d = {.x = a->x.data + (size_t)row * (size_t)a->x.ld, .ldx = (size_t)a->x.ld, .m = m};
    d.w = weight_row(&a->w, column, 0);
    d.ldw = (size_t)a->w.k, d.dtype = a->w.dtype, d.n = n, d.k = a->w.k;
    d.y = sums, d.ldy = (size_t)n;
    isa->dot(&d);
    for (int i = 0; i < m; i++) {
      tri_epilogue e = {.sum = sums + (size_t)i * (size_t)n, .n = n, .act = a->act, .accumulate = a->accumulate};
      e.scale = a->w.dtype == TRI_I8 ? a->w.scale + column : NULL;
      e.bias = a->bias ? a->bias + column : NULL;
      e.out = a->out.data + (size_t)(row + i) * (size_t)a->out.ld + column;
      isa->epilogue(&e);
    }
  }
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
  if (!a->bias && a->act == TRI_ACT_NONE) return;
  for (int i = 0; i < m; i++) {
    float *row = out + (size_t)i * (size_t)a->out.ld;
    tri_epilogue e = {.sum = row, .bias = a->bias ? a->bias + column : NULL, .out = row, .n = n, .act = a->act};
    isa->epilogue(&e);
  }
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
