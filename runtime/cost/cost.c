/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cost/cost.h"

#include <math.h>

#include "base/hash.h"

/* ---- experts ---- */

enum { MAX_EXPERTS = 2048, TRIALS = 48 };

/* A fixed sequence: a prediction is the same in every run. */
static uint32_t sample(uint64_t *state, uint32_t below) {
  return (uint32_t)((tri_splitmix64(state) >> 32) * below >> 32);
}

/* Draws top_k different experts for each token, and counts the choices of each expert. */
static void sample_step(int experts, int top_k, int tokens, uint64_t *state, int *count) {
  int order[MAX_EXPERTS];
  for (int e = 0; e < experts; e++) {
    count[e] = 0;
    order[e] = e;
  }
  for (int t = 0; t < tokens; t++)
    for (int k = 0; k < top_k; k++) { /* the first k places of a shuffle (Fisher and Yates), in whatever order before */
      int at = k + (int)sample(state, (uint32_t)(experts - k)), chosen = order[at];
      order[at] = order[k];
      order[k] = chosen;
      count[chosen]++;
    }
}

static tri_expert_load busiest(const int *count, int experts, int shares) {
  tri_expert_load most = {0};
  for (int s = 0; s < shares; s++) {
    tri_range own = tri_range_part(experts, shares, s);
    tri_expert_load l = {0};
    for (int e = own.first; e < own.first + own.count; e++) {
      l.experts += count[e] > 0;
      l.choices += count[e];
    }
    most.experts = fmax(most.experts, l.experts);
    most.choices = fmax(most.choices, l.choices);
  }
  return most;
}

/* By trials: the most of several random counts has no closed form that holds for few tokens. */
tri_expert_load tri_cost_experts(int experts, int top_k, int shares, double tokens) {
  int count[MAX_EXPERTS];
  if (experts < 1 || top_k < 1 || tokens < 1) return (tri_expert_load){0};
  double largest = ceil((double)experts / shares);
  /* Beyond this an expert without a token is rarer than one in a thousand steps: all are read, and choices are near
   * their mean. */
  double missed = experts * pow(1 - (double)top_k / experts, tokens);
  if (missed < 1e-3 || experts > MAX_EXPERTS) return (tri_expert_load){largest, tokens * top_k * largest / experts};
  tri_expert_load sum = {0};
  uint64_t state = 1;
  for (int i = 0; i < TRIALS; i++) {
    sample_step(experts, top_k, (int)tokens, &state, count);
    tri_expert_load l = busiest(count, experts, shares);
    sum.experts += l.experts / TRIALS;
    sum.choices += l.choices / TRIALS;
  }
  return sum;
}

/* ---- links ---- */

double tri_cost_link(const tri_link *l, int ranks, double bytes) {
  return l->start_s + l->rank_s * ranks + bytes / l->bytes_per_s;
}

bool tri_cost_crosses(const tri_machine *m, int ranks) {
  return m->ranks_per_host && (ranks > m->ranks_per_host || m->ranks_per_host % ranks);
}

double tri_cost_all2all(const tri_machine *m, tri_parallel p, double bytes, bool flat) {
  int dp = tri_parallel_dp(p), stage = tri_parallel_stage_size(p);
  const tri_link *l = tri_cost_crosses(m, stage) ? &m->far_all2all : &m->near_all2all;
  if (dp == 1) return 0;
  return tri_cost_link(l, flat ? stage : dp, bytes);
}

/* Returns whether some rank's next stage is on another host than it. A replica begins with a host. */
static bool transfer_crosses(const tri_machine *m, tri_parallel p, int stage) {
  int size = tri_parallel_stage_size(p), last = (stage + 1) * size - 1;
  return m->ranks_per_host &&
         (size > m->ranks_per_host || last / m->ranks_per_host != (last + size) / m->ranks_per_host);
}

/* ---- a stage ---- */

static double row_share(const tri_machine *m, int i) { return m->row_shares[i] > 0 ? m->row_shares[i] : 1; }

double tri_cost_gemm_rate(const tri_machine *m, double rows) {
  double at = rows > 1 ? log2(rows) : 0;
  int i = (int)at;
  if (i + 1 >= TRI_CPU_GEMM_ROWS) return m->flops_per_s * row_share(m, TRI_CPU_GEMM_ROWS - 1);
  return m->flops_per_s * (row_share(m, i) + (at - i) * (row_share(m, i + 1) - row_share(m, i)));
}

/* Returns what reading and computing take together. Where a device needs about as long for both, neither hides the
 * other whole: as two sides of a right angle, which is within a tenth of what products of 64 to 256 rows take. Rates
 * that were measured by rows have their reads in them. */
static double together(const tri_machine *m, double read_s, double compute_s) {
  return m->row_shares[0] > 0 ? fmax(read_s, compute_s) : hypot(read_s, compute_s);
}

/* Gives the time of a part of the step to what bounds it. */
static void bound(const tri_machine *m, tri_cost *c, double read_s, double compute_s) {
  double seconds = together(m, read_s, compute_s);
  if (read_s >= compute_s)
    c->reads += seconds;
  else
    c->gemms += seconds;
}

/* All matrices are read once whatever the number of tokens. */
static void add_dense(const tri_cost_model *m, const tri_cost_share *s, const tri_cost_load *l, tri_cost *c) {
  const tri_machine *at = &m->machine;
  double compute_s = (s->dense_flops - s->last_flops) * l->tokens / tri_cost_gemm_rate(at, l->tokens) +
                     s->last_flops * l->sampled / tri_cost_gemm_rate(at, l->sampled);
  bound(at, c, s->dense_bytes / at->read_bytes_per_s, compute_s);
  bound(at, c, s->head_bytes / at->read_bytes_per_s, s->head_flops * l->sampled / tri_cost_gemm_rate(at, l->sampled));
}

/* Experts are read that some token has chosen; the busiest rank sets the pace, in each layer another one. */
static void add_layers_experts(const tri_cost_model *m, const tri_cost_share *s, int layers, double tokens,
                               tri_cost *c) {
  const tri_machine *at = &m->machine;
  if (layers <= 0) return;
  tri_expert_load busy = tri_cost_experts(m->experts, m->top_k, tri_parallel_ep(m->p), tokens);
  double rows = busy.experts > 0 ? busy.choices / busy.experts : 0;
  bound(at, c, layers * busy.experts * s->expert_bytes / at->read_bytes_per_s,
        layers * busy.choices * s->expert_flops / tri_cost_gemm_rate(at, rows));
}

static void add_experts(const tri_cost_model *m, const tri_cost_share *s, const tri_cost_load *l, tri_cost *c) {
  add_layers_experts(m, s, s->sparse_layers - s->last_sparse, l->all_tokens, c);
  add_layers_experts(m, s, s->last_sparse, l->sampled, c);
}

/* The host and the device take turns but for experts that both have. Those on the device are the ones that are wanted
 * most: where some are, the host has less to do than this says. */
double tri_cost_host_experts(const tri_cost_model *m, int stage, double tokens) {
  const tri_cost_share *s = &m->stages[stage];
  const tri_machine *at = &m->machine;
  if (!s->host_layers) return 0;
  tri_expert_load busy = tri_cost_experts(m->experts, m->top_k, tri_parallel_ep(m->p), tokens);
  double bytes = s->host_layers * busy.experts * s->expert_bytes, rows = busy.choices / busy.experts;
  double flops = s->host_layers * busy.choices * s->expert_flops, here = s->hot_share;
  double host = fmax(bytes / at->host_read_bytes_per_s, flops / at->host_flops_per_s) * (1 - here);
  if (here <= 0 || tokens < 1) return host;
  return fmax(host, fmax(bytes / at->read_bytes_per_s, flops / tri_cost_gemm_rate(at, rows)) * here);
}

/* Each sequence's keys and values are read once. */
static void add_attention(const tri_cost_model *m, const tri_cost_share *s, const tri_cost_load *l, tri_cost *c) {
  const tri_machine *at = &m->machine;
  double seen = s->local_layers ? fmin(l->context, m->window) : 0;
  double all = l->sequences * (s->layers - s->local_layers) * l->context;
  double local = l->sequences * s->local_layers * seen;
  double bytes = all * s->key_bytes + local * s->local_key_bytes;
  double flops = (all * s->key_flops + local * s->local_key_flops) * l->queries;
  double rate = at->attention_flops_per_s;
  if (l->queries <= 1 && at->query_flops_per_s > 0) rate = at->query_flops_per_s;
  bound(at, c, bytes / at->read_bytes_per_s, flops / rate);
}

/* Tokens go to the data-parallel ranks that have one of their experts and return as one row each (DeepSpeed-MoE,
 * section 5.3). Of dp - 1 other data-parallel ranks with equal parts of the experts a token reaches each with
 * probability 1 - (1 - 1/dp)^top_k. */
static double all2all_seconds(const tri_cost_model *m, const tri_cost_share *s, const tri_cost_load *l) {
  enum { ROW_BYTES = 2 }; /* of an element: rows travel in 16 bits */
  int dp = tri_parallel_dp(m->p);
  double others = (dp - 1) * (1 - pow(1 - 1.0 / dp, m->top_k));
  double bytes = l->tokens * others * m->hidden_size * ROW_BYTES;
  return s->sparse_layers * 2 * tri_cost_all2all(&m->machine, m->p, bytes, false);
}

tri_cost tri_cost_stage(const tri_cost_model *m, int stage, const tri_cost_load *l) {
  const tri_machine *at = &m->machine;
  const tri_cost_share *s = &m->stages[stage];
  double row_bytes = l->tokens * m->hidden_size * sizeof(float);
  tri_cost c = {.launches = s->ops * at->op_s + s->row_elements * l->tokens * at->element_s};
  add_dense(m, s, l, &c);
  add_experts(m, s, l, &c);
  c.host = tri_cost_host_experts(m, stage, l->all_tokens);
  add_attention(m, s, l, &c);
  const tri_link *sum = tri_cost_crosses(at, m->p.tp) ? &at->far_sum : &at->near_sum;
  if (m->p.tp > 1) c.sums = s->sums * tri_cost_link(sum, m->p.tp, row_bytes);
  c.all2all = all2all_seconds(m, s, l);
  const tri_link *next = transfer_crosses(at, m->p, stage) ? &at->far_transfer : &at->near_transfer;
  if (stage + 1 < m->p.pp) c.transfers = tri_cost_link(next, 1, row_bytes);
  return c;
}

tri_cost tri_cost_step(const tri_cost_model *m, const tri_cost_load *l) {
  tri_cost sum = {0};
  for (int stage = 0; stage < m->p.pp; stage++) {
    tri_cost c = tri_cost_stage(m, stage, l);
    sum.reads += c.reads;
    sum.gemms += c.gemms;
    sum.sums += c.sums;
    sum.all2all += c.all2all;
    sum.launches += c.launches;
    sum.transfers += c.transfers;
    sum.host += c.host;
  }
  return sum;
}

/* ---- loads ---- */

tri_cost_load tri_cost_decode_load(const tri_cost_model *m, int sequences, double context) {
  int dp = tri_parallel_dp(m->p);
  int micro_batch = (sequences + m->p.pp - 1) / m->p.pp;
  int own = (micro_batch + dp - 1) / dp;
  return (tri_cost_load){
      .tokens = own, .all_tokens = micro_batch, .sampled = own, .sequences = own, .context = context, .queries = 1};
}

double tri_cost_decode(const tri_cost_model *m, int sequences, double context, tri_cost *out) {
  tri_cost_load l = tri_cost_decode_load(m, sequences, context);
  double slowest = 0;
  for (int stage = 0; stage < m->p.pp; stage++) {
    tri_cost c = tri_cost_stage(m, stage, &l);
    slowest = fmax(slowest, tri_cost_seconds(&c));
  }
  *out = tri_cost_step(m, &l);
  int micro_batches = sequences < m->p.pp ? sequences : m->p.pp;
  return fmax(tri_cost_seconds(out), micro_batches * slowest);
}

tri_cost tri_cost_prompt(const tri_cost_model *m, double tokens) {
  tri_cost_load l = {
      .tokens = tokens, .all_tokens = tokens, .sampled = 1, .sequences = 1, .context = tokens, .queries = tokens / 2};
  return tri_cost_step(m, &l);
}
