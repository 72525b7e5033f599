#include "kernels/ref/moe_route.h"
#include "kernels/ref/ref.h"

#include <math.h>

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
  return a->top_k <= candidates ? TRI_OK : TRI_INVALID_ARGUMENT;
}

void tri_ref_moe_route_row(const tri_moe_route_args *a, int t, double *scratch) { tri_moe_route_row(a, t, scratch); }

void tri_ref_moe_route_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_route_args *a) {
  (void)plan;
  for (int t = 0; t < a->logits.rows; t++) tri_ref_moe_route_row(a, t, be->workspace);
}

tri_status tri_ref_moe_experts_plan(tri_backend *be, const tri_moe_experts_args *a, tri_op_plan *plan) {
  (void)be;
  *plan = (tri_op_plan){0};
  const tri_weight *up = &a->up, *down = &a->down;
  int64_t up_n = (a->gated ? 2 : 1) * (int64_t)down->k;
  bool mats = a->x.rows == a->out.rows && a->x.cols == a->out.cols && a->x.ld >= a->x.cols && a->out.ld >= a->out.cols;
  bool weights = a->num_experts > 0 && a->x.rows >= 0 && a->x.cols >= 0 && down->k >= 0 && up->k == a->x.cols &&
                 up->n == a->num_experts * up_n && down->n == (int64_t)a->num_experts * a->x.cols;
  bool act = a->gated ? tri_ref_glu_ok(a->act, a->glu_limit) : a->act != TRI_ACT_SWIGLU_OAI;
  size_t f = down->k > 0 ? (size_t)down->k : 0, h = a->x.cols > 0 ? (size_t)a->x.cols : 0;
  plan->workspace = (3 * f + h) * sizeof(double) + (f + h) * sizeof(float);
  bool types = tri_ref_weight_type_ok(up->dtype) && tri_ref_weight_type_ok(down->dtype);
  if (a->int8_activations)
    types = up->dtype == TRI_I8 && down->dtype == TRI_I8 && up->k <= TRI_INT8_MAX_K && down->k <= TRI_INT8_MAX_K;
  return mats && weights && act && types && a->top_k > 0 ? TRI_OK : TRI_INVALID_ARGUMENT;
}

/* A token's choice, and the scratch that its expert works in. */
typedef struct choice {
  size_t expert;
  double weight;
  const float *x;
  double x_scale;
  double *hidden; /* [3 F] */
  float *rounded; /* [F] */
} choice;

/* sum += weight * expert(x) */
static void add_expert(const tri_moe_experts_args *a, const choice *c, double *sum) {
  size_t f = (size_t)a->down.k, up_n = a->gated ? 2 * f : f, h = (size_t)a->x.cols;
  double *hidden = c->hidden, *up = hidden + f, scale = 1;
  for (size_t i = 0; i < up_n; i++) {
    size_t row = c->expert * up_n + i;
    up[i] = 0;
    for (size_t j = 0; j < h; j++) up[i] += c->x[j] * tri_ref_weight_at(&a->up, row, j);
    up[i] = up[i] * c->x_scale + (a->up_bias ? a->up_bias[row] : 0);
  }
  for (size_t i = 0; i < f; i++)
    hidden[i] = a->gated ? tri_formula_glu(a->act, a->glu_limit, up[i], up[f + i]) : tri_formula_act(a->act, up[i]);
  if (a->int8_activations) {
    for (size_t i = 0; i < f; i++) c->rounded[i] = (float)hidden[i];
    scale = tri_ref_round_row(c->rounded, a->down.k, c->rounded);
    for (size_t i = 0; i < f; i++) hidden[i] = c->rounded[i];
  }
  for (size_t i = 0; i < h; i++) {
    size_t row = c->expert * h + i;
    double y = 0;
    for (size_t j = 0; j < f; j++) y += hidden[j] * tri_ref_weight_at(&a->down, row, j);
    sum[i] += c->weight * (y * scale + (a->down_bias ? a->down_bias[row] : 0));
  }
}

void tri_ref_moe_experts_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_experts_args *a) {
  (void)plan;
  size_t f = (size_t)a->down.k;
  double *sum = be->workspace;
  choice one = {.hidden = sum + a->x.cols, .x_scale = 1};
  float *x_rounded = (float *)(one.hidden + 3 * f);
  one.rounded = x_rounded + a->x.cols;
  for (int t = 0; t < a->x.rows; t++) {
    float *out = a->out.data + (size_t)t * (size_t)a->out.ld;
    one.x = a->x.data + (size_t)t * (size_t)a->x.ld;
    if (a->int8_activations) {
      one.x_scale = tri_ref_round_row(one.x, a->x.cols, x_rounded);
      one.x = x_rounded;
    }
    for (int i = 0; i < a->x.cols; i++) sum[i] = a->accumulate ? out[i] : 0;
    for (int c = 0; c < a->top_k; c++) {
      size_t at = (size_t)t * (size_t)a->top_k + (size_t)c;
      int64_t expert = (int64_t)a->experts[at] - a->first_expert;
      if (expert < 0 || expert >= a->num_experts) continue;
      one.expert = (size_t)expert;
      one.weight = a->weights[at];
      add_expert(a, &one, sum);
    }
    for (int i = 0; i < a->x.cols; i++) out[i] = (float)sum[i];
  }
}
