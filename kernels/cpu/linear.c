/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers, whole or per head: blocks of columns, which the threads take in turn. */
#include "kernels/cpu/gemm.h"

/* Linear layers side by side: each has its own part of x's columns, of w's rows and of out's columns. */
typedef struct layers {
  tri_linear_args a;
  int count;
  size_t x_stride, out_stride; /* from one's part of a row to the next one's */
} layers;

static layers one_layer(const tri_linear_args *a) { return (layers){.a = *a, .count = 1}; }

static layers layers_of_heads(const tri_head_linear_args *a) {
  return (layers){.a = {.x = a->x, .w = a->w, .out = a->out},
                  .count = a->num_heads,
                  .x_stride = (size_t)a->x_stride,
                  .out_stride = (size_t)a->out_stride};
}

/* plan->variant is the algorithm, plan->split the columns of a block; the workspace is cut into equal scratch for each
 * thread. */
static void plan_layers(tri_backend *be, layers l, tri_op_plan *plan) {
  const tri_linear_args *a = &l.a;
  const tri_cpu_isa *isa = tri_cpu_isa_of(be);
  int threads = tri_pool_size(be->pool);
  tri_cpu_gemm_shape s = {
      .m = a->x.rows, .k = a->w.k, .deterministic = be->deterministic, .use_blas = tri_cpu_use_blas(be)};
  s.direct = !(a->accumulate && a->act != TRI_ACT_NONE);
  s.tiles = tri_cpu_has_tiles(isa, &a->w);
  tri_cpu_gemm_algorithm algorithm = tri_cpu_gemm_choose(&s);
  plan->variant = (int)algorithm;
  plan->split = tri_cpu_gemm_block(isa, algorithm, a->w.n / l.count, tri_max(1, threads / l.count));
  size_t floats = tri_cpu_gemm_scratch(isa, algorithm, a->w.dtype, a->x.rows, plan->split, (size_t)a->x.ld, false);
  plan->workspace = (size_t)threads * tri_round_up(floats * sizeof(float), 64);
}

typedef struct layers_run {
  tri_backend *be;
  layers l;
  const tri_op_plan *plan;
  tri_ticket ticket;
} layers_run;

static void layers_thread(void *ctx, int index, int count) {
  (void)count;
  layers_run *r = ctx;
  const layers *l = &r->l;
  const tri_linear_args *a = &l->a;
  int step = r->plan->split, n = a->w.n / l->count;
  int64_t blocks = ((int64_t)n + step - 1) / step;
  size_t share = r->plan->workspace / (size_t)tri_pool_size(r->be->pool);
  float *scratch = (float *)((char *)r->be->workspace + (size_t)index * share);
  tri_cpu_gemm p = {
      .isa = tri_cpu_isa_of(r->be), .algorithm = (tri_cpu_gemm_algorithm)r->plan->variant, .m = a->x.rows};
  p.ldx = (size_t)a->x.ld;
  p.act = a->act;
  p.accumulate = a->accumulate;
  p.ldo = (size_t)a->out.ld;
  for (int64_t item; (item = tri_take(&r->ticket)) < blocks * l->count;) {
    size_t which = (size_t)(item / blocks), column = (size_t)(item % blocks) * (size_t)step;
    size_t row = which * (size_t)n + column;
    p.x = a->x.data + which * l->x_stride;
    p.w = tri_weight_rows(&a->w, row, tri_min(step, n - (int)column));
    p.bias = a->bias ? a->bias + row : NULL;
    p.out = a->out.data + which * l->out_stride + column;
    tri_cpu_gemm_run(&p, scratch);
  }
}

static void run_layers(tri_backend *be, const tri_op_plan *plan, layers l) {
  layers_run r = {.be = be, .l = l, .plan = plan};
  double work = (double)l.a.x.rows * l.a.w.n * l.a.w.k;
  if (l.a.x.rows && l.a.w.n) tri_cpu_run(be, work / TRI_CPU_MACS_PER_NS, layers_thread, &r);
}

tri_status tri_cpu_linear_plan(tri_backend *be, const tri_linear_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_linear_plan(be, a, plan));
  if (a->rounds_rows && a->w.dtype != TRI_I8) return TRI_UNSUPPORTED;
  if (a->rounds_rows) return tri_cpu_linear_int8_plan(be, a, plan);
  plan_layers(be, one_layer(a), plan);
  return TRI_OK;
}

void tri_cpu_linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_linear_args *a) {
  if (a->rounds_rows)
    tri_cpu_linear_int8_launch(be, a);
  else
    run_layers(be, plan, one_layer(a));
}

tri_status tri_cpu_head_linear_plan(tri_backend *be, const tri_head_linear_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_head_linear_plan(be, a, plan));
  plan_layers(be, layers_of_heads(a), plan);
  return TRI_OK;
}

void tri_cpu_head_linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_head_linear_args *a) {
  run_layers(be, plan, layers_of_heads(a));
}
