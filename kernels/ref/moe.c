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

static void scores_of(const tri_moe_route_args *a, const float *logits, double *score) {
  int n = a->logits.cols;
  double max = -INFINITY, sum = 0;
  for (int e = 0; e < n; e++) max = fmax(max, logits[e]);
  for (int e = 0; e < n; e++) {
    switch (a->score) {
    case TRI_MOE_SOFTMAX: sum += score[e] = exp(logits[e] - max); break;
    case TRI_MOE_SIGMOID: score[e] = 1 / (1 + exp(-(double)logits[e])); break;
    case TRI_MOE_TOPK_SOFTMAX: score[e] = logits[e]; break;
    }
  }
  for (int e = 0; e < n && a->score == TRI_MOE_SOFTMAX; e++) score[e] /= sum;
}

/* The sum of the `best` largest of v[0..n-1]. */
static double best_sum(const double *v, int n, int best) {
  double sum = 0, last = INFINITY;
  for (int taken = 0; taken < best;) { /* a value at a time, as often as it occurs */
    double top = -INFINITY;
    int times = 0;
    for (int i = 0; i < n; i++) {
      if (v[i] >= last) continue;
      if (v[i] > top) top = v[i], times = 0;
      times += v[i] == top;
    }
    if (!times) return NAN; /* NaN among them */
    for (; times > 0 && taken < best; times--, taken++) sum += top;
    last = top;
  }
  return sum;
}

/* Sets the choice scores of all but the best groups to -infinity. */
static void cut_groups(const tri_moe_route_args *a, double *choice, double *group) {
  int size = a->logits.cols / a->num_groups;
  for (int g = 0; g < a->num_groups; g++) group[g] = best_sum(choice + (size_t)g * (size_t)size, size, a->group_best);
  for (int g = 0; g < a->num_groups; g++) {
    int better = 0;
    for (int o = 0; o < a->num_groups; o++) better += group[o] > group[g] || (group[o] == group[g] && o < g);
    if (better < a->top_groups) continue;
    for (int i = 0; i < size; i++) choice[g * size + i] = -INFINITY;
  }
}

/* Ids of the k best, best first, of equal ones the lowest id first; NaN comes after everything that is there before it.
 */
static void take_best(const double *choice, int n, int k, int32_t *ids) {
  int have = 0;
  for (int e = 0; e < n; e++) {
    int at = have;
    while (at > 0 && choice[e] > choice[ids[at - 1]]) at--;
    if (at == k) continue;
    if (have < k) have++;
    for (int i = have - 1; i > at; i--) ids[i] = ids[i - 1];
    ids[at] = e;
  }
}

static void weights_of(const tri_moe_route_args *a, const double *score, const int32_t *ids, float *weights) {
  double sum = 0, top = score[ids[0]];
  for (int c = 1; c < a->top_k; c++) top = fmax(top, score[ids[c]]); /* with a bias the first need not be the largest */
  bool softmax = a->score == TRI_MOE_TOPK_SOFTMAX;
  for (int c = 0; c < a->top_k; c++) sum += softmax ? exp(score[ids[c]] - top) : score[ids[c]];
  if (!softmax) sum = !a->renormalize ? 1 : a->score == TRI_MOE_SIGMOID ? sum + 1e-20 : sum;
  for (int c = 0; c < a->top_k; c++) {
    double w = softmax ? exp(score[ids[c]] - top) : score[ids[c]];
    weights[c] = (float)(w / sum * a->scale);
  }
}

void tri_ref_moe_route_row(const tri_moe_route_args *a, int t, double *scratch) {
  int n = a->logits.cols;
  double *score = scratch, *choice = score + n, *group = choice + n;
  int32_t *ids = a->experts + (size_t)t * (size_t)a->top_k;
  scores_of(a, a->logits.data + (size_t)t * (size_t)a->logits.ld, score);
  for (int e = 0; e < n; e++) choice[e] = score[e] + (a->bias ? a->bias[e] : 0);
  if (a->num_groups > 1) cut_groups(a, choice, group);
  take_best(choice, n, a->top_k, ids);
  weights_of(a, score, ids, a->weights + (size_t)t * (size_t)a->top_k);
}

void tri_ref_moe_route_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_route_args *a,
                              tri_stream *stream) {
  (void)plan, (void)stream;
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
  plan->workspace = ((size_t)(down->k > 0 ? 3 * (size_t)down->k : 0) + (size_t)(a->x.cols > 0 ? a->x.cols : 0)) * 8;
  bool types = tri_ref_weight_type_ok(up->dtype) && tri_ref_weight_type_ok(down->dtype);
  return mats && weights && act && types && a->top_k > 0 ? TRI_OK : TRI_INVALID_ARGUMENT;
}

static double weight_at(const tri_weight *w, size_t row, size_t j) {
  double q = tri_load_f32(w->data, w->dtype, row * (size_t)w->k + j);
  return w->dtype == TRI_I8 ? q * w->scale[row] : q;
}

/* sum += weight * expert(x) */
static void add_expert(const tri_moe_experts_args *a, size_t expert, double weight, const float *x, double *hidden,
                       double *sum) {
  size_t f = (size_t)a->down.k, up_n = a->gated ? 2 * f : f, h = (size_t)a->x.cols;
  double *up = hidden + f;
  for (size_t i = 0; i < up_n; i++) {
    size_t row = expert * up_n + i;
    up[i] = a->up_bias ? a->up_bias[row] : 0;
    for (size_t j = 0; j < h; j++) up[i] += x[j] * weight_at(&a->up, row, j);
  }
  for (size_t i = 0; i < f; i++)
    hidden[i] = a->gated ? tri_ref_glu(a->act, a->glu_limit, up[i], up[f + i]) : tri_ref_act(a->act, up[i]);
  for (size_t i = 0; i < h; i++) {
    size_t row = expert * h + i;
    double y = a->down_bias ? a->down_bias[row] : 0;
    for (size_t j = 0; j < f; j++) y += hidden[j] * weight_at(&a->down, row, j);
    sum[i] += weight * y;
  }
}

void tri_ref_moe_experts_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_experts_args *a,
                                tri_stream *stream) {
  (void)plan, (void)stream;
  double *sum = be->workspace, *hidden = sum + a->x.cols;
  for (int t = 0; t < a->x.rows; t++) {
    float *out = a->out.data + (size_t)t * (size_t)a->out.ld;
    for (int i = 0; i < a->x.cols; i++) sum[i] = a->accumulate ? out[i] : 0;
    for (int c = 0; c < a->top_k; c++) {
      size_t choice = (size_t)t * (size_t)a->top_k + (size_t)c;
      int64_t expert = (int64_t)a->experts[choice] - a->first_expert;
      if (expert < 0 || expert >= a->num_experts) continue;
      add_expert(a, (size_t)expert, a->weights[choice], a->x.data + (size_t)t * (size_t)a->x.ld, hidden, sum);
    }
    for (int i = 0; i < a->x.cols; i++) out[i] = (float)sum[i];
  }
}
