/* SPDX-License-Identifier: Apache-2.0 */
/* The routing of one token in double: one text for the host and for a device, so that no two backends choose
 * differently but by the rounding of exp. */
#ifndef TRI_KERNELS_REF_MOE_ROUTE_H
#define TRI_KERNELS_REF_MOE_ROUTE_H

#include "kernels/ref/formulas.h"

/* The score that is computed: a softmax over all experts whose chosen ones are made to sum to 1 is that of the chosen
 * ones alone, and chooses what their logits do. */
TRI_FORMULA tri_moe_score tri_moe_score_of(const tri_moe_route_args *a) {
  bool cancels = a->score == TRI_MOE_SOFTMAX && a->renormalize && !a->bias && a->num_groups <= 1;
  return cancels ? TRI_MOE_TOPK_SOFTMAX : a->score;
}

TRI_FORMULA void scores_of(const tri_moe_route_args *a, const float *logits, double *score) {
  int n = a->logits.cols;
  tri_moe_score kind = tri_moe_score_of(a);
  double max = -INFINITY, sum = 0;
  for (int e = 0; e < n; e++) max = fmax(max, (double)logits[e]);
  for (int e = 0; e < n; e++) {
    switch (kind) {
    case TRI_MOE_SOFTMAX: sum += score[e] = exp(logits[e] - max); break;
    case TRI_MOE_SIGMOID: score[e] = 1 / (1 + exp(-(double)logits[e])); break;
    case TRI_MOE_TOPK_SOFTMAX:
    case TRI_MOE_SPARSEMIXER: score[e] = logits[e]; break;
    }
  }
  for (int e = 0; e < n && kind == TRI_MOE_SOFTMAX; e++) score[e] /= sum;
}

/* The sum of the `best` largest of v[0..n-1]. */
TRI_FORMULA double best_sum(const double *v, int n, int best) {
  double sum = 0, last = INFINITY;
  for (int taken = 0; taken < best;) { /* a value at a time, as often as it occurs */
    double top = -INFINITY;
    int times = 0;
    for (int i = 0; i < n; i++) {
      if (v[i] >= last) continue;
      if (v[i] > top) {
        top = v[i];
        times = 0;
      }
      times += v[i] == top;
    }
    if (!times) return NAN; /* NaN among them */
    for (; times > 0 && taken < best; times--, taken++) sum += top;
    last = top;
  }
  return sum;
}

/* Sets the choice scores of all but the best groups to -infinity. */
TRI_FORMULA void cut_groups(const tri_moe_route_args *a, double *choice, double *group) {
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
TRI_FORMULA void take_best(const double *choice, int n, int k, int32_t *ids) {
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

/* The weight of choice c under SPARSEMIXER. */
TRI_FORMULA double sparse_weight(const tri_moe_route_args *a, const double *score, const int32_t *ids, int c) {
  double own = score[ids[c]], sum = 0;
  for (int e = 0; e < a->logits.cols; e++) {
    bool out = (own - score[e]) / fmax(fabs(score[e]), own) > 2 * (double)a->jitter;
    for (int i = 0; i < c; i++) out |= ids[i] == e;
    if (!out) sum += exp(score[e] - own);
  }
  return 1 / sum;
}

/* Returns a choice's weight from its part of their sum. */
TRI_FORMULA float tri_moe_scaled(const tri_moe_route_args *a, double part, int32_t expert) {
  double w = part * a->scale;
  return (float)(a->expert_scale ? w * a->expert_scale[expert] : w);
}

TRI_FORMULA void weights_of(const tri_moe_route_args *a, const double *score, const int32_t *ids, float *weights) {
  double sum = 0, top = score[ids[0]];
  for (int c = 1; c < a->top_k; c++) top = fmax(top, score[ids[c]]); /* with a bias the first need not be the largest */
  bool softmax = tri_moe_score_of(a) == TRI_MOE_TOPK_SOFTMAX;
  for (int c = 0; c < a->top_k; c++) sum += softmax ? exp(score[ids[c]] - top) : score[ids[c]];
  if (!softmax) {
    if (a->renormalize)
      sum = a->score == TRI_MOE_SIGMOID ? sum + 1e-20 : sum;
    else
      sum = 1;
  }
  for (int c = 0; c < a->top_k; c++) {
    if (a->score == TRI_MOE_SPARSEMIXER) {
      weights[c] = tri_moe_scaled(a, sparse_weight(a, score, ids, c), ids[c]);
      continue;
    }
    double w = softmax ? exp(score[ids[c]] - top) : score[ids[c]];
    weights[c] = tri_moe_scaled(a, w / sum, ids[c]);
  }
}

/* True for a row that only pads the step; it has no expert then. */
TRI_FORMULA bool tri_moe_goes_nowhere(const tri_moe_route_args *a, int t) {
  size_t first = (size_t)t * (size_t)a->top_k;
  if (!a->kv_slot || a->kv_slot[t] >= 0) return false;
  for (int c = 0; c < a->top_k; c++) {
    a->experts[first + (size_t)c] = -1;
    a->weights[first + (size_t)c] = 0;
  }
  return true;
}

/* The slot of token t's choice of an expert; slots come in order, so that the own ones are neighbours. */
TRI_FORMULA int32_t tri_moe_slot_of(const tri_moe_route_args *a, int t, int32_t expert) {
  const int32_t *row = a->slots + (size_t)expert * (size_t)(1 + a->most_copies), *slot = row + 1;
  int first = 0, own = 0;
  for (int i = 0; i < row[0]; i++) {
    bool is_own = slot[i] >= a->own_first && slot[i] < a->own_end;
    if (is_own && !own++) first = i;
  }
  return slot[first + (t + a->shard) % (own ? own : row[0])];
}

/* Chooses token t's experts, [top_k] with their weights. scratch: [2 E + num_groups] */
TRI_FORMULA void tri_moe_choose(const tri_moe_route_args *a, int t, double *scratch, int32_t *ids, float *weights) {
  int n = a->logits.cols;
  double *score = scratch, *choice = score + n, *group = choice + n;
  scores_of(a, a->logits.data + (size_t)t * (size_t)a->logits.ld, score);
  for (int e = 0; e < n; e++) choice[e] = score[e] + (a->bias ? a->bias[e] : 0);
  if (a->num_groups > 1) cut_groups(a, choice, group);
  take_best(choice, n, a->top_k, ids);
  weights_of(a, score, ids, weights);
  for (int c = 0; a->slots && c < a->top_k; c++) ids[c] = tri_moe_slot_of(a, t, ids[c]);
}

TRI_FORMULA void tri_moe_route_row(const tri_moe_route_args *a, int t, double *scratch) {
  size_t first = (size_t)t * (size_t)a->top_k;
  if (tri_moe_goes_nowhere(a, t)) return;
  tri_moe_choose(a, t, scratch, a->experts + first, a->weights + first);
}

#endif
