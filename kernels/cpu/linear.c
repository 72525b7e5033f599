/* Linear layers, whole or per head: blocks of columns, which the threads take in turn. */
#include "kernels/cpu/product.h"

tri_status tri_cpu_linear_plan(tri_backend *be, const tri_linear_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_linear_plan(be, a, plan);
  if (st != TRI_OK) return st;
  if (a->int8_activations) return tri_cpu_linear_int8_plan(be, a, plan);
  const tri_cpu_isa *isa = tri_cpu_isa_of(be);
  int threads = tri_pool_size(be->pool);
  tri_product_shape s = {
      .m = a->x.rows, .k = a->w.k, .deterministic = be->deterministic, .use_blas = tri_cpu_use_blas(be)};
  s.direct = !(a->accumulate && a->act != TRI_ACT_NONE);
  tri_product_algorithm algorithm = tri_product_choose(&s);
  plan->variant = (int)algorithm;
  plan->split = tri_product_block(isa, algorithm, a->w.n, threads);
  size_t floats = tri_product_scratch(isa, algorithm, a->w.dtype, a->x.rows, plan->split, (size_t)a->x.ld, false);
  plan->workspace = (size_t)threads * tri_round_up(floats * sizeof(float), 64);
  return TRI_OK;
}

typedef struct linear_run {
  tri_backend *be;
  const tri_linear_args *a;
  const tri_op_plan *plan;
  tri_ticket ticket;
} linear_run;

static void linear_thread(void *ctx, int index, int count) {
  (void)count;
  linear_run *r = ctx;
  const tri_linear_args *a = r->a;
  int step = r->plan->split, n = a->w.n;
  size_t share = r->plan->workspace / (size_t)tri_pool_size(r->be->pool);
  float *scratch = (float *)((char *)r->be->workspace + (size_t)index * share);
  tri_product p = {.isa = tri_cpu_isa_of(r->be), .algorithm = (tri_product_algorithm)r->plan->variant, .x = a->x.data};
  p.ldx = (size_t)a->x.ld;
  p.m = a->x.rows;
  p.act = a->act;
  p.accumulate = a->accumulate;
  p.ldo = (size_t)a->out.ld;
  for (int64_t column; (column = (int64_t)tri_take(&r->ticket) * step) < n;) {
    p.w = tri_weight_rows(&a->w, (size_t)column, tri_min(step, n - (int)column));
    p.bias = a->bias ? a->bias + column : NULL;
    p.out = a->out.data + column;
    tri_product_run(&p, scratch);
  }
}

void tri_cpu_linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_linear_args *a) {
  if (a->x.rows == 0 || a->w.n == 0) return;
  if (a->int8_activations) {
    tri_cpu_linear_int8_launch(be, a);
    return;
  }
  linear_run r = {.be = be, .a = a, .plan = plan};
  double work = (double)a->x.rows * a->w.n * a->w.k;
  tri_cpu_run(be, work / TRI_CPU_MACS_PER_NS, linear_thread, &r);
}

tri_status tri_cpu_head_linear_plan(tri_backend *be, const tri_head_linear_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_head_linear_plan(be, a, plan);
  if (st != TRI_OK) return st;
  const tri_cpu_isa *isa = tri_cpu_isa_of(be);
  int threads = tri_pool_size(be->pool);
  tri_product_shape s = {.m = a->x.rows,
                         .k = a->w.k,
                         .deterministic = be->deterministic,
                         .use_blas = tri_cpu_use_blas(be),
                         .direct = true};
  tri_product_algorithm algorithm = tri_product_choose(&s);
  plan->variant = (int)algorithm;
  plan->split = tri_product_block(isa, algorithm, a->w.n / a->num_heads, tri_max(1, threads / a->num_heads));
  size_t floats = tri_product_scratch(isa, algorithm, a->w.dtype, a->x.rows, plan->split, (size_t)a->x.ld, false);
  plan->workspace = (size_t)threads * tri_round_up(floats * sizeof(float), 64);
  return TRI_OK;
}

typedef struct head_linear_run {
  tri_backend *be;
  const tri_head_linear_args *a;
  const tri_op_plan *plan;
  tri_ticket ticket;
} head_linear_run;

static void head_linear_thread(void *ctx, int index, int count) {
  (void)count;
  head_linear_run *r = ctx;
  const tri_head_linear_args *a = r->a;
  int step = r->plan->split, n = a->w.n / a->num_heads;
  int64_t blocks = ((int64_t)n + step - 1) / step;
  size_t share = r->plan->workspace / (size_t)tri_pool_size(r->be->pool);
  float *scratch = (float *)((char *)r->be->workspace + (size_t)index * share);
  tri_product p = {.isa = tri_cpu_isa_of(r->be), .algorithm = (tri_product_algorithm)r->plan->variant, .m = a->x.rows};
  p.ldx = (size_t)a->x.ld;
  p.ldo = (size_t)a->out.ld;
  for (int64_t item; (item = tri_take(&r->ticket)) < blocks * a->num_heads;) {
    size_t head = (size_t)(item / blocks), column = (size_t)(item % blocks) * (size_t)step;
    p.x = a->x.data + head * (size_t)a->x_stride;
    p.w = tri_weight_rows(&a->w, head * (size_t)n + column, tri_min(step, n - (int)column));
    p.out = a->out.data + head * (size_t)a->out_stride + column;
    tri_product_run(&p, scratch);
  }
}

void tri_cpu_head_linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_head_linear_args *a) {
  if (a->x.rows == 0 || a->w.n == 0) return;
  head_linear_run r = {.be = be, .a = a, .plan = plan};
  tri_cpu_run(be, (double)a->x.rows * a->w.n * a->w.k / TRI_CPU_MACS_PER_NS, head_linear_thread, &r);
}
