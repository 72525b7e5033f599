/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of sampling: the whole vocabulary is sorted, cut and walked. */
#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

#include "kernels/sampling.h"

/* Heapsort of ids by tri_sample_before, because it needs neither memory nor luck. */
static void sift(uint32_t *ids, const float *v, size_t root, size_t n) {
  for (size_t child; (child = 2 * root + 1) < n; root = child) {
    if (child + 1 < n && tri_sample_before(v[ids[child]], ids[child], v[ids[child + 1]], ids[child + 1])) child++;
    if (!tri_sample_before(v[ids[root]], ids[root], v[ids[child]], ids[child])) return;
    uint32_t t = ids[root];
    ids[root] = ids[child];
    ids[child] = t;
  }
}

static void sort_ids(uint32_t *ids, const float *v, size_t n) {
  for (size_t i = 0; i < n; i++) ids[i] = (uint32_t)i;
  for (size_t i = n / 2; i-- > 0;) sift(ids, v, i, n);
  for (size_t i = n; i-- > 1;) {
    uint32_t t = ids[0];
    ids[0] = ids[i];
    ids[i] = t;
    sift(ids, v, 0, i);
  }
}

/* top_k and min_p cut first; top_p is of the mass that they leave. The first id stays in any case. */
double tri_ref_sample_weights(const tri_sample_params *p, const float *adjusted, int vocab, uint32_t *order,
                              double *weight) {
  sort_ids(order, adjusted, (size_t)vocab);
  memset(weight, 0, (size_t)vocab * sizeof *weight);
  double max = adjusted[order[0]];
  if (p->temperature <= 0 || !isfinite(max)) return weight[order[0]] = 1;
  /* Probability at least min_p times the best one's, as a bound on the logit. */
  double floor = p->min_p > 0 ? max + p->temperature * log(p->min_p) : -INFINITY, mass = 0;
  int kept = 0, limit = p->top_k > 0 && p->top_k < vocab ? p->top_k : vocab;
  for (; kept < limit && (kept == 0 || adjusted[order[kept]] >= floor); kept++)
    mass += weight[order[kept]] = exp((adjusted[order[kept]] - max) / p->temperature);
  if (p->top_p >= 1) return mass;
  /* The shortest prefix that holds top_p of what the other cuts left. */
  double sum = 0;
  int i = 0;
  while (i < kept && (i == 0 || sum < p->top_p * mass)) sum += weight[order[i++]];
  for (; i < kept; i++) weight[order[i]] = 0;
  return sum;
}

static float largest_of(const float *x, int n) {
  float largest = -INFINITY;
  for (int i = 0; i < n; i++) largest = fmaxf(largest, tri_sample_value(x[i]));
  return largest;
}

tri_status tri_ref_sample_plan(tri_backend *be, const tri_sample_args *a, tri_op_plan *plan) {
  (void)be;
  *plan = (tri_op_plan){0};
  if (a->logits.rows < 0 || a->logits.cols < 1 || a->logits.ld < a->logits.cols) return TRI_INVALID_ARGUMENT;
  plan->workspace = (size_t)a->logits.cols * (sizeof(double) + sizeof(float) + sizeof(uint32_t) + sizeof(int32_t));
  return TRI_OK;
}

static void report_logprobs(const tri_sample_params *p, const float *raw, int vocab, uint32_t *order,
                            tri_sample_result *r) {
  sort_ids(order, raw, (size_t)vocab);
  double max = raw[order[0]], sum = 0;
  for (int i = 0; i < vocab; i++) sum += exp(raw[i] - max);
  double log_sum = max + log(sum);
  r->logprob = (float)(raw[r->token] - log_sum);
  r->num_top = p->num_logprobs < TRI_MAX_LOGPROBS ? p->num_logprobs : TRI_MAX_LOGPROBS;
  if (r->num_top > vocab) r->num_top = vocab;
  for (int i = 0; i < r->num_top; i++) {
    r->top_ids[i] = order[i];
    r->top_logprobs[i] = (float)(raw[order[i]] - log_sum);
  }
}

/* The sample walks the kept ids in ascending order. */
static int sample(const tri_sample_params *p, uint64_t counter, const double *weight, int n, double mass) {
  double target = tri_sample_uniform(p->seed, counter) * mass, sum = 0;
  int sampled = 0;
  for (int i = 0; i < n; i++) {
    if (weight[i] == 0) continue;
    sampled = i; /* rounding may leave the target unreached: then the last kept id stands */
    if ((sum += weight[i]) > target) break;
  }
  return sampled;
}

void tri_ref_sample_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_args *a) {
  (void)plan;
  int vocab = a->logits.cols;
  double *weight = be->workspace;
  float *raw = (float *)(weight + vocab);
  uint32_t *order = (uint32_t *)(raw + vocab);
  int32_t *counts = (int32_t *)(order + vocab);
  for (int i = 0; i < a->logits.rows; i++) {
    const tri_sample_params *p = a->params[i];
    uint32_t target = tri_sample_target(a, i);
    float *logits = a->logits.data + (size_t)i * (size_t)a->logits.ld;
    tri_sample_result *r = &a->results[i];
    for (int id = 0; id < vocab; id++) raw[id] = tri_sample_value(logits[id]);
    tri_sample_adjust(logits, vocab, p, a->history[i], a->num_prompt[i], a->num_history[i], counts);
    double mass = tri_ref_sample_weights(p, logits, vocab, order, weight);
    memset(r, 0, sizeof *r);
    r->token = target;
    if (target == TRI_SAMPLE_NO_TARGET) {
      r->token = (uint32_t)sample(p, a->counter[i], weight, vocab, mass);
      r->broken = tri_sample_is_broken(p, largest_of(logits, vocab));
    }
    if (p->num_logprobs >= 0) report_logprobs(p, raw, vocab, order, r);
    r->broken |= isnan(r->logprob);
    if (a->sampled) a->sampled[i] = r->token;
  }
}

/* ---- over a cut vocabulary ---- */

/* A row that needs its whole distribution (no candidates) cannot be sampled from parts. */
static bool width_fits(const tri_sample_args *a, int width) {
  if (width < 1 || width > TRI_SAMPLE_CANDIDATES) return false;
  for (int i = 0; i < a->logits.rows; i++) {
    int n = tri_sample_num_candidates(a->params[i]);
    if (n < 1 || n > width) return false;
  }
  return true;
}

tri_status tri_ref_sample_part_plan(tri_backend *be, const tri_sample_part_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_sample_plan(be, &a->rows, plan);
  plan->workspace = 0;
  return st != TRI_OK || width_fits(&a->rows, a->width) ? st : TRI_INVALID_ARGUMENT;
}

/* The `most` first of a row, in their order. Returns how many there are. */
static int first_of(const float *logits, int cols, uint32_t first_id, int most, tri_sample_candidate *best) {
  int n = 0;
  for (int i = 0; i < cols; i++) {
    tri_sample_candidate c = {logits[i], first_id + (uint32_t)i};
    if (c.logit == -INFINITY) continue;
    if (n == most && !tri_sample_before(c.logit, c.id, best[n - 1].logit, best[n - 1].id)) continue;
    int at = n < most ? n++ : most - 1;
    for (; at > 0 && tri_sample_before(c.logit, c.id, best[at - 1].logit, best[at - 1].id); at--)
      best[at] = best[at - 1];
    best[at] = c;
  }
  return n;
}

void tri_ref_sample_part_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_part_args *a) {
  (void)be;
  (void)plan;
  tri_mat m = a->rows.logits;
  for (int i = 0; i < m.rows; i++) {
    const tri_sample_params *p = a->rows.params[i];
    float *logits = m.data + (size_t)i * (size_t)m.ld;
    tri_sample_candidate *best = a->candidates + (size_t)i * (size_t)a->width;
    tri_sample_adjust_part(logits, a->first_id, m.cols, p);
    int n = first_of(logits, m.cols, a->first_id, tri_sample_num_candidates(p), best);
    for (; n < a->width; n++) best[n] = (tri_sample_candidate){-INFINITY, TRI_NO_CANDIDATE};
    if (tri_sample_is_broken(p, largest_of(logits, m.cols)))
      best[0] = (tri_sample_candidate){-INFINITY, TRI_BROKEN_CANDIDATE};
  }
}

tri_status tri_ref_sample_merge_plan(tri_backend *be, const tri_sample_merge_args *a, tri_op_plan *plan) {
  (void)be;
  *plan = (tri_op_plan){0};
  if (a->rows.logits.rows < 0 || a->rows.logits.cols < 1 || !width_fits(&a->rows, a->width))
    return TRI_INVALID_ARGUMENT;
  if (a->num_parts < 1 || a->num_parts > TRI_SAMPLE_MERGED / a->width) return TRI_INVALID_ARGUMENT;
  plan->workspace = (size_t)(a->num_parts * a->width) * (sizeof(double) + sizeof(float) + 2 * sizeof(uint32_t));
  return TRI_OK;
}

/* A row's candidates of all parts, in ascending order of id. Returns how many there are. *broken: a part is. */
static int collect(const tri_sample_merge_args *a, int row, float *logits, uint32_t *ids, bool *broken) {
  int n = 0;
  *broken = false;
  for (int i = 0; i < a->num_parts * a->width; i++) {
    size_t in_part = (size_t)(i / a->width) * (size_t)a->rows.logits.rows + (size_t)row;
    tri_sample_candidate c = a->candidates[in_part * (size_t)a->width + (size_t)(i % a->width)];
    *broken |= c.id == TRI_BROKEN_CANDIDATE;
    if (c.id == TRI_NO_CANDIDATE || c.id == TRI_BROKEN_CANDIDATE) continue;
    int at = n++;
    for (; at > 0 && ids[at - 1] > c.id; at--) {
      ids[at] = ids[at - 1];
      logits[at] = logits[at - 1];
    }
    ids[at] = c.id;
    logits[at] = c.logit;
  }
  return n;
}

/* The candidates are a row of their own, on which everything is as on the whole one: what is not among them the cuts
 * would leave out. With none of them finite every logit is minus infinity, and the first id stands. */
void tri_ref_sample_merge_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_merge_args *a) {
  (void)plan;
  size_t most = (size_t)(a->num_parts * a->width);
  double *weight = be->workspace;
  float *logits = (float *)(weight + most);
  uint32_t *ids = (uint32_t *)(logits + most), *order = ids + most;
  for (int i = 0; i < a->rows.logits.rows; i++) {
    const tri_sample_params *p = a->rows.params[i];
    bool broken;
    int n = collect(a, i, logits, ids, &broken);
    uint32_t token = 0;
    if (n) {
      double mass = tri_ref_sample_weights(p, logits, n, order, weight);
      token = logits[order[0]] > -INFINITY ? ids[sample(p, a->rows.counter[i], weight, n, mass)] : 0;
      broken |= logits[order[0]] == INFINITY;
    }
    if (a->rows.results) a->rows.results[i] = (tri_sample_result){.token = token, .broken = broken};
    if (a->rows.sampled) a->rows.sampled[i] = token;
  }
}
