/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers with int8 weights and activations: the threads first quantise rows of x, then take blocks of columns in
 * turn. */
#include "kernels/cpu/gemm.h"
#include "kernels/quantize.h"

/* The workspace: rows of x as int16, ld apart; their scales; each thread's scratch. */
typedef struct int8_layout {
  int step;
  size_t ld, scales, threads, thread_bytes, bytes; /* ld in elements, the others in bytes */
} int8_layout;

static bool lay_out(const tri_backend *be, const tri_linear_args *a, int8_layout *l) {
  size_t threads = (size_t)tri_pool_size(be->pool), groups = (size_t)tri_int8_groups(a->w.k), x, scales;
  l->step = tri_cpu_gemm_block(tri_cpu_isa_of(be), TRI_ALGORITHM_DOTS, a->w.n, (int)threads);
  l->ld = tri_int8_row(a->w.k);
  if (!tri_size_mul((size_t)a->x.rows * sizeof(int16_t), l->ld, &x) ||
      !tri_size_mul((size_t)a->x.rows * sizeof(float), groups, &scales))
    return false;
  l->scales = tri_round_up(x, 64);
  l->threads = l->scales + tri_round_up(scales, 64);
  l->thread_bytes = tri_round_up(tri_int8_scratch(l->step), 64);
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

static void block(const int8_run *r, void *scratch, int column, int n) {
  const tri_linear_args *a = r->a;
  tri_cpu_gemm_int8 p = {.isa = r->isa, .x = r->x, .scales = r->scales, .m = a->x.rows, .act = a->act};
  p.w = tri_weight_rows(&a->w, (size_t)column, n);
  p.bias = a->bias ? a->bias + column : NULL;
  p.accumulate = a->accumulate;
  p.out = a->out.data + column;
  p.ldo = (size_t)a->out.ld;
  tri_cpu_gemm_int8_run(&p, scratch);
}

/* Every block of columns reads all rows of x, hence the barrier between rounding them and the first block. */
static void int8_thread(void *ctx, int index, int count) {
  int8_run *r = ctx;
  const tri_linear_args *a = r->a;
  size_t groups = (size_t)tri_int8_groups(a->w.k);
  char *scratch = (char *)r->be->workspace + r->l.threads + (size_t)index * r->l.thread_bytes;
  for (int i; (i = tri_take(&r->rows)) < a->x.rows;)
    r->isa->quantize(r->x + (size_t)i * r->l.ld, r->scales + (size_t)i * groups,
                     a->x.data + (size_t)i * (size_t)a->x.ld, a->w.k, (int)r->l.ld);
  if (count > 1) tri_pool_barrier(r->be->pool);
  for (int64_t column; (column = (int64_t)tri_take(&r->columns) * r->l.step) < a->w.n;)
    block(r, scratch, (int)column, tri_min(r->l.step, a->w.n - (int)column));
}

void tri_cpu_linear_int8_launch(tri_backend *be, const tri_linear_args *a) {
  int8_run r = {.be = be, .isa = tri_cpu_isa_of(be), .a = a};
  if (!lay_out(be, a, &r.l)) return; /* plan saw that it can be laid out */
  r.x = be->workspace;
  r.scales = (float *)((char *)be->workspace + r.l.scales);
  tri_cpu_run(be, (double)a->x.rows * a->w.n * a->w.k / TRI_CPU_INT8_MACS_PER_NS, int8_thread, &r);
}
