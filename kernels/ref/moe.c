/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of a mixture of experts: a token at a time, its choices in their order, sums in double. */
#include "kernels/ref/moe_route.h"
#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

size_t tri_ref_moe_scratch(const tri_moe_route_args *a) { return 2 * (size_t)a->logits.cols + (size_t)a->num_groups; }

tri_status tri_ref_moe_route_plan(tri_backend *be, const tri_moe_route_args *a, tri_op_plan *plan) {
  (void)be;
  *plan = (tri_op_plan){0};
  const tri_mat *m = &a->logits;
  bool ok = m->rows >= 0 && m->cols > 0 && m->ld >= m->cols && a->top_k > 0 && a->num_groups > 0;
  if (!ok || m->cols % a->num_groups) return TRI_INVALID_ARGUMENT;
  int size = m->cols / a->num_groups, candidates = m->cols;
  if (a->num_groups > 1) {
    if (a->top_groups < 1 || a->top_groups > a->num_groups || a->group_best < 1 || a->group_best > size)
      return TRI_INVALID_ARGUMENT;
    candidates = a->top_groups * size;
  }
  plan->workspace = tri_ref_moe_scratch(a) * sizeof(double);
  if (a->slots && (a->most_copies < 1 || a->shard < 0)) return TRI_INVALID_ARGUMENT;
  if (a->map.first && (a->num_experts < 1 || a->first_expert < 0 || (int64_t)m->rows * a->top_k > INT32_MAX))
    return TRI_INVALID_ARGUMENT;
  return a->top_k <= candidates ? TRI_OK : TRI_INVALID_ARGUMENT;
}

void tri_ref_moe_route_row(const tri_moe_route_args *a, int t, double *scratch) { tri_moe_route_row(a, t, scratch); }

void tri_ref_moe_map_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_map_args *a) {
  (void)be;
  (void)plan;
  const tri_expert_map *m = &a->map;
  int choices = a->num_tokens * a->top_k;
  memset(m->first, 0, ((size_t)a->num_experts + 1) * sizeof *m->first);
  for (int i = 0; i < choices; i++) {
    int64_t e = (int64_t)a->experts[i] - a->first_expert;
    bool own = e >= 0 && e < a->num_experts;
    m->row[i] = own ? m->first[e + 1]++ : -1; /* its number among the expert's */
  }
  for (int e = 0; e < a->num_experts; e++) {
    if (a->tally) a->tally[e].rows += (uint64_t)m->first[e + 1];
    if (a->tally) a->tally[e].steps += m->first[e + 1] > 0;
    m->first[e + 1] += m->first[e];
  }
  for (int i = 0; i < choices; i++) {
    if (m->row[i] < 0) continue;
    m->row[i] += m->first[a->experts[i] - a->first_expert];
    m->choice[m->row[i]] = i;
  }
}

tri_status tri_ref_moe_map_plan(tri_backend *be, const tri_moe_map_args *a, tri_op_plan *plan) {
  (void)be;
  *plan = (tri_op_plan){0};
  bool ok = a->map.first && a->num_tokens >= 0 && a->top_k > 0 && a->num_experts > 0 && a->first_expert >= 0;
  return ok && (int64_t)a->num_tokens * a->top_k <= INT32_MAX ? TRI_OK : TRI_INVALID_ARGUMENT;
}

void tri_ref_moe_make_map(const tri_moe_route_args *a) {
  tri_moe_map_args m = tri_moe_map_of(a);
  if (m.map.first) tri_ref_moe_map_launch(NULL, NULL, &m);
}

void tri_ref_moe_route_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_route_args *a) {
  (void)plan;
  for (int t = 0; t < a->logits.rows; t++) tri_ref_moe_route_row(a, t, be->workspace);
  tri_ref_moe_make_map(a);
}

/* The workspace is carved in the launch: sum [H] and hidden [3 F] in double, then x [H], x as integers [H] and the
 * rounded hidden row [F] in float32. */
tri_status tri_ref_moe_experts_plan(tri_backend *be, const tri_moe_experts_args *a, tri_op_plan *plan) {
  (void)be;
  *plan = (tri_op_plan){0};
  const tri_weight *up = &a->up, *down = &a->down;
  int64_t up_n = (a->gated ? 2 : 1) * (int64_t)down->k;
  bool mats = a->x.rows == a->out.rows && a->x.cols == a->out.cols && a->x.ld >= a->x.cols && a->out.ld >= a->out.cols;
  bool weights = a->num_experts > 0 && a->x.rows >= 0 && a->x.cols >= 0 && down->k >= 0 && up->k == a->x.cols &&
                 up->n == a->num_experts * up_n && down->n == (int64_t)a->num_experts * a->x.cols;
  bool act = a->gated ? tri_ref_glu_ok(a->act, a->glu_limit) : !tri_act_has_limit(a->act);
  size_t f = down->k > 0 ? (size_t)down->k : 0, h = a->x.cols > 0 ? (size_t)a->x.cols : 0;
  plan->workspace = (3 * f + 2 * h) * sizeof(double) + (f + h) * sizeof(float);
  bool types = tri_ref_weight_type_ok(up->dtype) && tri_ref_weight_type_ok(down->dtype) && a->out.dtype != TRI_I8 &&
               a->x.dtype != TRI_I8 && (a->x.dtype == TRI_F32 || a->x.dtype == up->dtype || up->dtype > TRI_BF16);
  if (a->rounds_rows) types &= up->dtype == down->dtype && tri_ref_rounds_for(up) && tri_ref_rounds_for(down);
  bool choices = a->top_k > 0 && (int64_t)a->x.rows * a->top_k <= INT32_MAX;
  return mats && weights && act && types && choices ? TRI_OK : TRI_INVALID_ARGUMENT;
}

/* A token's choice, and the scratch that its expert works in. */
typedef struct choice {
  size_t expert;
  double weight;
  const double *x;
  double *hidden; /* [3 F] */
  float *narrow;  /* [F] */
} choice;

/* sum += weight * expert(x) An up GEMM whose gated form has 2 F rows an expert, gates first; then the activation; then
 * the down GEMM. With int8 the hidden row is rounded as a linear layer's input would be. */
static void add_expert(const tri_moe_experts_args *a, const choice *c, double *sum) {
  size_t f = (size_t)a->down.k, up_n = a->gated ? 2 * f : f, h = (size_t)a->x.cols;
  double *hidden = c->hidden, *up = hidden + f;
  for (size_t i = 0; i < up_n; i++) {
    size_t row = c->expert * up_n + i;
    up[i] = 0;
    for (size_t j = 0; j < h; j++) up[i] += c->x[j] * tri_ref_weight_at(&a->up, row, j);
    up[i] += (a->up_bias ? a->up_bias[row] : 0);
  }
  for (size_t i = 0; i < f; i++)
    hidden[i] = a->gated ? tri_formula_glu(a->act, a->glu_limit, up[i], up[f + i]) : tri_formula_act(a->act, up[i]);
  if (a->rounds_rows) {
    for (size_t i = 0; i < f; i++) c->narrow[i] = (float)hidden[i];
    tri_ref_round_row(&a->down, c->narrow, hidden);
  }
  for (size_t i = 0; i < h; i++) {
    size_t row = c->expert * h + i;
    double y = 0;
    for (size_t j = 0; j < f; j++) y += hidden[j] * tri_ref_weight_at(&a->down, row, j);
    sum[i] += c->weight * (y + (a->down_bias ? a->down_bias[row] : 0));
  }
}

/* The expert whose row it is. */
static size_t expert_of(const tri_moe_experts_args *a, int row) {
  size_t e = 0;
  while (a->map.first[e + 1] <= row) e++;
  return e;
}

void tri_ref_moe_experts_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_experts_args *a) {
  (void)plan;
  size_t f = (size_t)a->down.k, h = (size_t)a->x.cols;
  double *sum = be->workspace, *x = sum + h;
  choice one = {.x = x, .hidden = x + h};
  one.narrow = (float *)(one.hidden + 3 * f);
  float *row = one.narrow + f;
  for (int t = 0; t < a->x.rows; t++) {
    size_t out = (size_t)t * (size_t)a->out.ld, in = (size_t)t * (size_t)a->x.ld;
    for (size_t i = 0; i < h; i++) x[i] = row[i] = tri_load_f32(a->x.data, a->x.dtype, in + i);
    if (a->rounds_rows) tri_ref_round_row(&a->up, row, x);
    for (size_t i = 0; i < h; i++) sum[i] = a->accumulate ? tri_load_f32(a->out.data, a->out.dtype, out + i) : 0;
    for (int c = 0; c < a->top_k; c++) {
      size_t at = (size_t)t * (size_t)a->top_k + (size_t)c;
      if (a->map.row[at] < 0) continue;
      one.expert = expert_of(a, a->map.row[at]);
      one.weight = a->weights[at];
      add_expert(a, &one, sum);
    }
    for (size_t i = 0; i < h; i++) tri_store_f32(a->out.data, a->out.dtype, out + i, (float)sum[i]);
  }
}
