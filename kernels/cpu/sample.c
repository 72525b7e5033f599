/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling: one thread per row, a few vector passes over the logits and no sort of the vocabulary.
 *
 * top_k comes from scanning with a rising threshold, top_p from a weighted selection (Hoare's quickselect with
 * probability mass in place of counts) among candidates that a first scan of the best few hundred usually already
 * contains. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/sampling.h"

#define NS_PER_LOGIT 0.5 /* roughly, of one thread: tri_cpu_run */

/* The first guess at how many ids hold top_p of the mass. */
enum { FIRST_CANDIDATES = 512, SCAN_PIECE = 256, SLACK = 64 };

typedef struct sample_scratch {
  float *raw;      /* [vocab] logits before adjustment, when logprobs are wanted */
  uint32_t *ids;   /* [vocab] candidates */
  int32_t *counts; /* [vocab] for the penalties, then what the sample needs */
} sample_scratch;

static size_t scratch_bytes(size_t vocab) {
  return tri_round_up((vocab + SLACK) * (sizeof(float) + sizeof(uint32_t) + sizeof(int32_t)), 64);
}

tri_status tri_cpu_sample_plan(tri_backend *be, const tri_sample_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_sample_plan(be, a, plan));
  plan->workspace = scratch_bytes((size_t)a->logits.cols) * (size_t)(a->logits.rows > 1 ? tri_pool_size(be->pool) : 1);
  return TRI_OK;
}

static bool before(const float *x, uint32_t a, uint32_t b) { return tri_sample_before(x[a], a, x[b], b); }

static void swap_ids(uint32_t *ids, int i, int j) {
  uint32_t t = ids[i];
  ids[i] = ids[j];
  ids[j] = t;
}

/* Partitions ids[lo..hi] around a median of three; returns the pivot's place, those before it in the order to its left.
 */
static int partition(uint32_t *ids, const float *x, int lo, int hi) {
  int mid = lo + (hi - lo) / 2;
  if (before(x, ids[mid], ids[lo])) swap_ids(ids, mid, lo);
  if (before(x, ids[hi], ids[lo])) swap_ids(ids, hi, lo);
  if (before(x, ids[mid], ids[hi])) swap_ids(ids, mid, hi);
  uint32_t pivot = ids[hi];
  int at = lo;
  for (int i = lo; i < hi; i++)
    if (before(x, ids[i], pivot)) swap_ids(ids, i, at++);
  swap_ids(ids, at, hi);
  return at;
}

/* Brings the k first of n in the order to the front, in no order among themselves. */
static void select_best(uint32_t *ids, const float *x, int n, int k) {
  for (int lo = 0, hi = n - 1; lo < hi;) {
    int at = partition(ids, x, lo, hi);
    if (at == k || at == k - 1) return;
    if (at > k)
      hi = at - 1;
    else
      lo = at + 1;
  }
}

static void sort_best(uint32_t *ids, const float *x, int n) { /* n is at most TRI_MAX_LOGPROBS */
  for (int i = 1; i < n; i++)
    for (int j = i; j > 0 && before(x, ids[j], ids[j - 1]); j--) swap_ids(ids, j, j - 1);
}

/* The k best ids with a value of at least `floor`, unordered. The buffer fills up to about twice k; then the better
 * half stays and its worst value is the new threshold, so that few later ids get in at all. */
static int best_ids(const tri_cpu_isa *isa, const float *x, int n, int k, float floor, uint32_t *ids) {
  int cap = k < n / 2 - SCAN_PIECE ? 2 * k + SCAN_PIECE : n + SLACK, count = 0;
  for (int at = 0; at < n;) {
    count += isa->collect(x, at, n, floor, ids + count, cap - count, &at);
    if (count <= k) continue;
    select_best(ids, x, count, k);
    count = k;
    floor = x[ids[0]];
    for (int i = 1; i < k; i++) floor = fminf(floor, x[ids[i]]);
  }
  return count;
}

static double weight_of(const tri_sample_params *p, float logit, double max) {
  return exp((logit - max) / p->temperature);
}

static double weights_of(const tri_sample_params *p, const float *x, const uint32_t *ids, int n, double max) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += weight_of(p, x[ids[i]], max);
  return sum;
}

/* Brings the shortest prefix, in the order, whose weight reaches `need` to the front and returns its length. */
static int nucleus(const tri_sample_params *p, const float *x, uint32_t *ids, int n, double max, double need) {
  int lo = 0, hi = n - 1; /* the length is in lo + 1 .. hi + 1 */
  double below = 0;       /* weight of ids[0 .. lo - 1] */
  while (lo < hi) {
    int at = partition(ids, x, lo, hi);
    double left = below + weights_of(p, x, ids + lo, at - lo, max);
    if (at > lo && left >= need) {
      hi = at - 1;
      continue;
    }
    below = left + weight_of(p, x[ids[at]], max);
    if (below >= need) return at + 1;
    lo = at + 1;
  }
  return tri_min(lo, hi) + 1;
}

/* The smallest float that a value must reach to have min_p times the best one's probability. */
static float min_p_floor(const tri_sample_params *p, double max) {
  if (p->min_p <= 0) return -INFINITY;
  double exact = max + p->temperature * log(p->min_p);
  float f = (float)exact;
  if ((double)f < exact) f = nextafterf(f, INFINITY);
  return fminf(f, (float)max);
}

/* The ids that the cuts leave; 0 when nothing is cut. */
static int candidates(const tri_cpu_isa *isa, const tri_sample_params *p, const float *x, int n, float max,
                      uint32_t *ids) {
  bool top_k = p->top_k > 0 && p->top_k < n;
  if (!top_k && p->min_p <= 0 && p->top_p >= 1) return 0;
  float floor = min_p_floor(p, max);
  int count;
  if (top_k || p->min_p > 0) {
    count = best_ids(isa, x, n, top_k ? p->top_k : n, floor, ids);
    if (p->top_p >= 1) return count;
    return nucleus(p, x, ids, count, max, p->top_p * weights_of(p, x, ids, count, max));
  }
  double need = p->top_p * isa->sum_exp(x, n, max, 1 / p->temperature);
  for (int k = tri_min(n, FIRST_CANDIDATES);; k = k < n / 16 ? k * 16 : n) {
    count = best_ids(isa, x, n, k, floor, ids);
    if (k == n || weights_of(p, x, ids, count, max) >= need) return nucleus(p, x, ids, count, max, need);
  }
}

/* Walks the candidates in ascending order of id. */
static uint32_t sample_candidate(const tri_sample_params *p, const float *x, int vocab, const uint32_t *ids, int n,
                                 double max, double u, uint64_t *bits) {
  size_t words = ((size_t)vocab + 63) / 64;
  memset(bits, 0, words * sizeof *bits);
  for (int i = 0; i < n; i++) bits[ids[i] / 64] |= 1ull << ids[i] % 64;
  double target = u * weights_of(p, x, ids, n, max), sum = 0;
  uint32_t id = 0;
  for (size_t w = 0; w < words; w++)
    for (uint64_t b = bits[w]; b; b &= b - 1) {
      uint32_t next = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(b);
      double weight = weight_of(p, x[next], max);
      if (weight == 0) continue;
      id = next;
      if ((sum += weight) > target) return id;
    }
  return id; /* rounding left the target unreached */
}

/* The same over the whole vocabulary: the first pass leaves the sum of each piece, and the walk skips whole pieces. */
static uint32_t sample_any(const tri_cpu_isa *isa, const tri_sample_params *p, const float *x, int vocab, float max,
                           double u, double *pieces) {
  double total = 0, sum = 0;
  for (int i = 0, n = 0; i < vocab; i += SCAN_PIECE, n++)
    total += pieces[n] = isa->sum_exp(x + i, tri_min(SCAN_PIECE, vocab - i), max, 1 / p->temperature);
  double target = u * total;
  uint32_t id = 0;
  for (int i = 0, n = 0; i < vocab; i += SCAN_PIECE, n++) {
    if (sum + pieces[n] <= target && i + SCAN_PIECE < vocab) {
      sum += pieces[n];
      continue;
    }
    for (int j = i; j < tri_min(vocab, i + SCAN_PIECE); j++) {
      double weight = weight_of(p, x[j], max);
      if (!(weight > 0)) continue;
      id = (uint32_t)j;
      if ((sum += weight) > target) return id;
    }
  }
  return id;
}

static uint32_t sample(const tri_cpu_isa *isa, const tri_sample_params *p, const float *x, int vocab, float max,
                       uint64_t counter, const sample_scratch *s) {
  if (max == -INFINITY) return 0;
  if (p->temperature <= 0 || max == INFINITY) {
    int next;
    return isa->collect(x, 0, vocab, max, s->ids, SLACK, &next) ? s->ids[0] : 0;
  }
  double u = tri_sample_uniform(p->seed, counter);
  int n = candidates(isa, p, x, vocab, max, s->ids);
  return n ? sample_candidate(p, x, vocab, s->ids, n, max, u, (uint64_t *)s->counts)
           : sample_any(isa, p, x, vocab, max, u, (double *)s->counts);
}

static void report_logprobs(const tri_cpu_isa *isa, const tri_sample_params *p, int vocab, const sample_scratch *s,
                            tri_sample_result *r) {
  float max = isa->maximum(s->raw, vocab);
  double log_sum = max < INFINITY ? max + log(isa->sum_exp(s->raw, vocab, max, 1)) : NAN;
  r->logprob = (float)(s->raw[r->token] - log_sum);
  int want = tri_min(tri_min(p->num_logprobs, TRI_MAX_LOGPROBS), vocab);
  if (want == 0) return;
  r->num_top = best_ids(isa, s->raw, vocab, want, -INFINITY, s->ids);
  sort_best(s->ids, s->raw, r->num_top);
  for (int i = 0; i < r->num_top; i++) {
    r->top_ids[i] = s->ids[i];
    r->top_logprobs[i] = (float)(s->raw[s->ids[i]] - log_sum);
  }
}

typedef struct sample_run {
  tri_backend *be;
  const tri_sample_args *a;
  tri_ticket ticket;
} sample_run;

/* A row is one thread's from its adjustments to its logprobs. The logits are copied first where logprobs are wanted, as
 * those are of the model's own distribution, before penalties and masks. */
static void sample_thread(void *ctx, int index, int count) {
  (void)count;
  sample_run *r = ctx;
  const tri_sample_args *a = r->a;
  const tri_cpu_isa *isa = tri_cpu_isa_of(r->be);
  size_t vocab = (size_t)a->logits.cols;
  sample_scratch s;
  for (int i; (i = tri_take(&r->ticket)) < a->logits.rows;) {
    s.counts = (int32_t *)((char *)r->be->workspace + (size_t)index * scratch_bytes(vocab));
    s.ids = (uint32_t *)(s.counts + vocab + SLACK);
    s.raw = (float *)(s.ids + vocab + SLACK);
    const tri_sample_params *p = a->params[i];
    float *logits = a->logits.data + (size_t)i * (size_t)a->logits.ld;
    if (p->num_logprobs >= 0)
      for (size_t j = 0; j < vocab; j++) s.raw[j] = tri_sample_value(logits[j]);
    tri_sample_result *result = &a->results[i];
    memset(result, 0, sizeof *result);
    result->token = tri_sample_target(a, i);
    if (result->token == TRI_SAMPLE_NO_TARGET) {
      tri_sample_adjust(logits, (int)vocab, p, a->history[i], a->num_prompt[i], a->num_history[i], s.counts);
      float largest = isa->maximum(logits, (int)vocab);
      result->token = sample(isa, p, logits, (int)vocab, largest, a->counter[i], &s);
      result->broken = tri_sample_is_broken(p, largest);
    }
    if (p->num_logprobs >= 0) report_logprobs(isa, p, (int)vocab, &s, result);
    result->broken |= isnan(result->logprob);
    if (a->sampled) a->sampled[i] = result->token;
  }
}

void tri_cpu_sample_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_args *a) {
  (void)plan;
  sample_run r = {.be = be, .a = a};
  if (a->logits.rows == 1)
    sample_thread(&r, 0, 1);
  else
    tri_cpu_run(be, (double)a->logits.rows * a->logits.cols * NS_PER_LOGIT, sample_thread, &r);
}

/* ---- over a cut vocabulary ---- */

tri_status tri_cpu_sample_part_plan(tri_backend *be, const tri_sample_part_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_sample_part_plan(be, a, plan);
  if (st == TRI_OK) plan->workspace = scratch_bytes((size_t)a->rows.logits.cols) * (size_t)tri_pool_size(be->pool);
  return st;
}

typedef struct part_run {
  tri_backend *be;
  const tri_sample_part_args *a;
  tri_ticket ticket;
} part_run;

/* A rank's part of the vocabulary: its best candidates, of which the rank that merges them finds the best of all. */
static void part_thread(void *ctx, int index, int count) {
  (void)count;
  part_run *r = ctx;
  const tri_sample_part_args *a = r->a;
  const tri_cpu_isa *isa = tri_cpu_isa_of(r->be);
  tri_mat m = a->rows.logits;
  uint32_t *ids = (uint32_t *)((char *)r->be->workspace + (size_t)index * scratch_bytes((size_t)m.cols));
  for (int i; (i = tri_take(&r->ticket)) < m.rows;) {
    const tri_sample_params *p = a->rows.params[i];
    const float *logits = m.data + (size_t)i * (size_t)m.ld;
    tri_sample_candidate *out = a->candidates + (size_t)i * (size_t)a->width;
    tri_sample_adjust_part(m.data + (size_t)i * (size_t)m.ld, a->first_id, m.cols, p);
    int n = best_ids(isa, logits, m.cols, tri_sample_num_candidates(p), -INFINITY, ids);
    for (int j = 0; j < n; j++) out[j] = (tri_sample_candidate){logits[ids[j]], a->first_id + ids[j]};
    for (int j = n; j < a->width; j++) out[j] = (tri_sample_candidate){-INFINITY, TRI_NO_CANDIDATE};
    if (tri_sample_is_broken(p, isa->maximum(logits, m.cols)))
      out[0] = (tri_sample_candidate){-INFINITY, TRI_BROKEN_CANDIDATE};
  }
}

void tri_cpu_sample_part_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_part_args *a) {
  (void)plan;
  part_run r = {.be = be, .a = a};
  tri_cpu_run(be, (double)a->rows.logits.rows * a->rows.logits.cols * NS_PER_LOGIT, part_thread, &r);
}
