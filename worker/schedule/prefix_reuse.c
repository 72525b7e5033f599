/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix cache in the scheduler: a sequence that is let in continues after the blocks that hold what it begins
 * with, and leaves those that it fills to others. */
#include <sys/random.h>

#include "worker/schedule/scheduler_impl.h"

tri_status tri_sched_prefixes_make(const tri_model_config *model, tri_sched_prefixes *out) {
  const tri_rope *rope = &model->attention.rope;
  *out = (tri_sched_prefixes){.rope = rope->kind, .original_len = rope->original_max_len};
  return getrandom(&out->key, sizeof out->key, 0) == (ssize_t)sizeof out->key ? TRI_OK : TRI_INTERNAL;
}

tri_status tri_sched_prefix_open(tri_sched *s) {
  const tri_limits *l = &s->cfg.limits;
  tri_prefix_config c = {.num_blocks = l->num_blocks,
                         .block_size = l->block_size,
                         .key = s->cfg.prefixes.key,
                         .hash = s->cfg.prefixes.hash};
  return l->prefix_caching ? tri_prefix_cache_create(&c, &s->pool.cache) : TRI_OK;
}

/* Returns 0 where the keys of a job's tokens depend on those and their positions alone. Beyond the length that the
 * model was made for, a rotary scaling goes by the prompt's length, whole prompts at a time: by whether it is beyond
 * it, or by how far. */
static uint64_t kind_of(const tri_sched *s, const tri_job *j) {
  const tri_sched_prefixes *p = &s->cfg.prefixes;
  if (p->rope == TRI_ROPE_FIXED || j->num_prompt <= p->original_len) return 0;
  return p->rope == TRI_ROPE_BY_LENGTH ? 1 : (uint64_t)j->num_prompt;
}

static tri_prefix_id root_of(const tri_sched *s, const tri_job *j) {
  return tri_prefix_root(s->pool.cache, kind_of(s, j), j->salt, j->salt_len);
}

/* Returns the next block of a chain, and has *id stand for the prefix with it; -1: there is none. */
static int32_t follow(const tri_sched *s, tri_prefix_id *id, const uint32_t *tokens) {
  int32_t block = tri_prefix_find(s->pool.cache, *id, tokens);
  if (block >= 0) *id = tri_prefix_of(s->pool.cache, block);
  return block;
}

/* Returns how many full blocks may be taken: after them a token is left whose logits are wanted, and of a first choice
 * one more, at which the others are forked. */
static int most_blocks(const tri_sched *s, const tri_sequence *q) {
  int left = tri_seq_waits_to_fork(q) ? 2 : 1;
  if (!s->pool.cache || q->num_host_blocks || tri_seq_scores(q)) return 0;
  return q->num_tokens > left ? (q->num_tokens - left) / s->cfg.limits.block_size : 0;
}

tri_prefix_hit tri_sched_prefix_find(const tri_sched *s, const tri_sequence *q) {
  tri_prefix_hit hit = {0};
  int most = most_blocks(s, q), bs = s->cfg.limits.block_size;
  if (!most) return hit;
  tri_prefix_id id = root_of(s, q->job);
  for (int32_t block; hit.blocks < most && (block = follow(s, &id, q->tokens + hit.blocks * bs)) >= 0; hit.blocks++)
    hit.idle += !s->pool.refs[block];
  return hit;
}

void tri_sched_prefix_take(tri_sched *s, tri_sequence *q) {
  int most = most_blocks(s, q), bs = s->cfg.limits.block_size;
  bool first = !q->job->preemptions; /* later ones find what they have computed themselves */
  if (most) q->prefix = root_of(s, q->job);
  for (int32_t block; q->num_blocks < most && (block = follow(s, &q->prefix, q->tokens + q->num_blocks * bs)) >= 0;) {
    tri_block_share(&s->pool, block);
    q->blocks[q->num_blocks++] = block;
  }
  if (!s->pool.cache || q->num_host_blocks) return;
  q->num_entered = q->num_blocks;
  q->num_computed = q->num_blocks * bs;
  if (!q->job->begun_ns)
    q->job->num_cached = q->num_computed < q->job->num_prompt ? q->num_computed : q->job->num_prompt;
  if (!first) return;
  s->prefix_queries += (uint64_t)q->num_tokens;
  s->prefix_hits += (uint64_t)q->num_computed;
}

void tri_sched_prefix_enter(tri_sched *s, tri_sequence *q) {
  int known = q->num_computed < q->num_tokens ? q->num_computed : q->num_tokens, bs = s->cfg.limits.block_size;
  if (!s->pool.cache || q->swapped || known / bs <= q->num_entered) return;
  if (!q->num_entered) q->prefix = root_of(s, q->job);
  for (; q->num_entered < known / bs; q->num_entered++)
    q->prefix = tri_prefix_enter(s->pool.cache, q->blocks[q->num_entered], q->prefix, q->tokens + q->num_entered * bs);
}
