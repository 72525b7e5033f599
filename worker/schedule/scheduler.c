/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule/scheduler_impl.h"

static bool has_batches(const tri_sched_config *c) {
  return c->limits.whole_sequences && c->encoder_batching != TRI_BATCHING_PACKED;
}

tri_status tri_sched_create(const tri_sched_config *config, tri_sched **out) {
  tri_sched *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  s->cfg = *config;
  s->prompt_bound = TRI_NO_PROMPT_BOUND;
  if (!s->cfg.depth) s->cfg.depth = 1;
  /* Whole sequences and sources take as much of a step as they need. */
  if (!s->cfg.prompt_tokens || s->cfg.limits.whole_sequences || s->cfg.limits.has_source)
    s->cfg.prompt_tokens = s->cfg.limits.max_num_batched_tokens;
  s->micro_batches = tri_calloc((size_t)config->num_micro_batches, sizeof *s->micro_batches);
  s->slot_owner = tri_calloc((size_t)config->limits.max_num_seqs, sizeof *s->slot_owner);
  s->marks = tri_calloc((size_t)config->limits.num_blocks, sizeof *s->marks);
  s->blocks_read = tri_calloc((size_t)config->limits.num_host_blocks, sizeof *s->blocks_read);
  if (!s->blocks_read || !s->micro_batches || !s->slot_owner || !s->marks ||
      tri_block_pool_init(&s->pool, config->limits.num_blocks) != TRI_OK ||
      tri_block_pool_init(&s->host, config->limits.num_host_blocks) != TRI_OK || tri_sched_prefix_open(s) != TRI_OK ||
      (has_batches(config) && tri_encoder_batches_create(config, &s->batches) != TRI_OK)) {
    tri_sched_destroy(s);
    return TRI_NO_MEMORY;
  }
  *out = s;
  return TRI_OK;
}

static void destroy_jobs(tri_job *j) {
  for (tri_job *next; j; j = next) {
    next = j->next;
    tri_job_destroy(j);
  }
}

void tri_sched_destroy(tri_sched *s) {
  if (!s) return;
  destroy_jobs(s->jobs);
  destroy_jobs(s->retired);
  tri_block_pool_free(&s->pool);
  tri_block_pool_free(&s->host);
  tri_encoder_batches_destroy(s->batches);
  tri_free(s->micro_batches);
  tri_free(s->slot_owner);
  tri_free(s->marks);
  tri_free(s->blocks_read);
  tri_free(s);
}

void tri_sched_add(tri_sched *s, tri_job *j) {
  j->arrival = ++s->arrivals;
  j->prev = NULL;
  j->next = s->jobs;
  if (s->jobs) s->jobs->prev = j;
  s->jobs = j;
  for (int i = 0; i < j->num_seqs; i++)
    if (j->seqs[i].state == TRI_SCHED_WAITING) tri_seq_list_insert(s, &s->waiting, &j->seqs[i]);
}

/* ---- figures ---- */

bool tri_sched_has_work(const tri_sched *s) { return s->jobs != NULL; }

bool tri_sched_micro_batch_busy(const tri_sched *s, int micro_batch) {
  return s->micro_batches[micro_batch].under_way >= s->cfg.depth;
}

int64_t tri_sched_load(const tri_sched *s) {
  int64_t n = 0;
  for (int l = -1; l < s->cfg.num_micro_batches; l++)
    for (const tri_sequence *q = tri_sched_list(s, l)->head; q; q = q->next)
      n += q->num_computed + (q->num_source_blocks ? q->job->num_source : 0);
  for (const tri_sequence *q = s->prompts.head; q; q = q->next)
    if (!q->job->search || !q->choice) n += tri_seq_remaining(q) + tri_seq_source_cost(q);
  for (const tri_sequence *q = s->waiting.head; q; q = q->next) n += tri_seq_remaining(q) + tri_seq_source_cost(q);
  return n;
}

int64_t tri_sched_load_with(const tri_sched *s, const tri_job *j) {
  return tri_sched_load(s) - (int64_t)tri_sched_prefix_find(s, tri_job_first(j)).blocks * s->cfg.limits.block_size;
}

void tri_sched_expect(tri_sched *s, int waiting) { s->expected = waiting; }

void tri_sched_bound_prompts(tri_sched *s, int tokens) {
  bool in_pieces = !s->cfg.limits.whole_sequences && !s->cfg.limits.has_source;
  s->prompt_bound = in_pieces ? tokens : TRI_NO_PROMPT_BOUND;
}

/* Sequences that will find no slot, or that found no blocks, are not counted. */
tri_step_outlook tri_sched_outlook(const tri_sched *s, int micro_batch) {
  int waiting = s->waiting.count + s->expected, most = s->cfg.limits.max_num_seqs;
  bool blocked = s->blocked && s->blocked == s->waiting.head;
  int all = s->num_running + (blocked ? 0 : waiting);
  return (tri_step_outlook){.decodes = s->micro_batches[micro_batch].running.count,
                            .sequences = all < most ? all : most,
                            .prompts = s->prompts.count || waiting};
}

tri_step_load tri_sched_load_of(const tri_sched *s, const tri_plan_writer *plan) {
  return (tri_step_load){.decodes = s->num_decodes, .prompt_tokens = (int)plan->h.num_tokens - s->num_decodes};
}

tri_sched_stats tri_sched_get_stats(const tri_sched *s) {
  return (tri_sched_stats){
      .running = (uint32_t)s->num_running,
      .waiting = (uint32_t)s->waiting.count,
      .blocks_used = (uint64_t)(s->pool.num_blocks - tri_block_num_free(&s->pool)),
      .tokens = s->tokens,
      .preemptions = s->preemptions,
      .host_blocks_used = (uint64_t)(s->host.num_blocks - tri_block_num_free(&s->host) - s->num_blocks_read),
      .swaps_out = s->swaps_out,
      .swaps_in = s->swaps_in,
      .blocks_out = s->blocks_out,
      .blocks_in = s->blocks_in,
      .prefix_queries = s->prefix_queries,
      .prefix_hits = s->prefix_hits,
      .prefix_evictions = s->pool.cache ? tri_prefix_num_evicted(s->pool.cache) : 0,
  };
}
