/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence's part of a step: how many of its tokens fit, the blocks that they need, and the entries of the plan that
 * say so, for the beams of a search together.
 *
 * A rank knows of a sequence what its slot holds, and the plan brings the rest: parameters with the first entry in a
 * slot, token ids unless the slot sampled them, blocks from the first one that is new. num_computed and the slot are
 * moved on when the entry is written and not when its result comes, since the next step may be composed before. An
 * entry therefore is written only when everything that it needs is there: room in the plan, then blocks. */
#include "base/hash.h"
#include "worker/schedule/scheduler_impl.h"

/* ---- how much fits ---- */

bool tri_seq_is_decoding(const tri_sequence *q) {
  return q->num_computed == tri_seq_length(q) - 1 && tri_seq_length(q) > q->job->num_prompt && !q->fresh;
}

int tri_seq_remaining(const tri_sequence *q) {
  return q->num_tokens - q->num_computed - (tri_seq_waits_to_fork(q) ? 1 : 0);
}

int tri_seq_source_cost(const tri_sequence *q) { return tri_seq_needs_source(q) ? q->job->num_source : 0; }

/* How many samples a prompt that is scored, of which each token takes one, may have of those that a step has left:
 * others that are or come in may end their prompts in it. */
static int samples_for(const tri_sched *s) {
  int others = s->prompts.count + s->waiting.count - 1, kept = s->samples / 2;
  return s->samples - (others < kept ? others : kept);
}

int tri_sched_fitting(const tri_sched *s, const tri_sequence *q, int found, int budget) {
  int left = tri_seq_remaining(q) - found, room = budget - tri_seq_source_cost(q);
  if (tri_seq_scores(q) && room > samples_for(s)) room = samples_for(s);
  bool may_sample = (s->samples && tri_seq_has_mask(q)) || s->cfg.limits.whole_sequences;
  if (left <= room && !may_sample) return left - 1;
  return left < room ? left : room;
}

bool tri_sched_has_room(const tri_sched *s, const tri_plan_writer *plan, const tri_sequence *q, int n, int known) {
  int source = tri_seq_source_cost(q);
  int blocks = n / s->cfg.limits.block_size + 3 + tri_sched_blocks_for(s, source) + tri_sched_blocks_for(s, known);
  bool brings_mask = q->job->constraint || (q->fresh && q->job->params.mask);
  if (brings_mask && !tri_plan_has_mask_room(plan)) return false;
  return plan->h.num_seqs + !!source + !!known < plan->max_seqs &&
         tri_plan_has_room(plan, (size_t)(n + source + known + tri_seq_scores(q)), (size_t)blocks, 1);
}

/* ---- entries of a plan ---- */

static uint64_t choice_seed(const tri_job *j, uint32_t choice) { return j->seed + choice * TRI_SPLITMIX_STEP; }

/* Returns the flags of an entry that brings a sequence's parameters. */
static int params_flags(const tri_job *j) { return TRI_SEQ_FLAG_PARAMS | (j->params.mask ? TRI_SEQ_FLAG_MASK : 0); }

void tri_sched_emit(tri_sched *s, tri_plan_writer *plan, tri_sequence *q, int n, int first_block, bool whole) {
  const tri_job *j = q->job;
  tri_sample_params params = j->params;
  params.seed = choice_seed(j, q->choice);
  bool last = q->num_computed + n == tri_seq_length(q), decode = tri_seq_is_decoding(q);
  bool unknown = q->num_computed == q->num_tokens, scores = !decode && tri_seq_scores(q);
  int generated = tri_seq_length(q) - j->num_prompt;
  int flags = q->fresh ? TRI_SEQ_FLAG_FIRST | params_flags(j) : 0;
  if (last) flags |= TRI_SEQ_FLAG_SAMPLE;
  if (scores) flags |= TRI_SEQ_FLAG_SCORE;
  if (unknown) flags |= TRI_SEQ_FLAG_TOKEN_IN_SLOT;
  if (generated < j->min_tokens && !j->constraint) flags |= TRI_SEQ_FLAG_BAN; /* its mask sees to that */
  if (last && j->constraint) {
    params.mask = tri_constraint_mask(j->constraint, (int)q->choice);
    flags |= TRI_SEQ_FLAG_MASK;
  }
  tri_plan_seq e = {
      .slot = (uint32_t)q->slot,
      .kind = decode ? TRI_SEQ_DECODE : TRI_SEQ_CHUNK,
      .flags = (uint8_t)(whole ? TRI_SEQ_FLAG_FIRST : flags),
      .num_tokens = (uint32_t)n,
      .start = (uint32_t)q->num_computed,
      .first_block = (uint32_t)first_block,
      .num_blocks = (uint32_t)(q->num_blocks - first_block),
      .second_start = (uint32_t)j->second_start,
      .rope_len = decode ? 0 : (uint32_t)j->num_prompt,
      .counter = (uint64_t)generated,
  };
  tri_plan_add(plan, &e, q->tokens + q->num_computed, q->blocks + first_block, &params, (uint32_t)j->num_prompt);
  q->fresh = false;
  q->last_step = plan->h.step;
  q->num_computed += n;
  q->num_pending += last && !whole;
  if (last && s->cfg.limits.embeds) q->row = s->num_rows++;
  if (!whole) s->samples -= scores ? n : last;
}

static void emit_source(tri_plan_writer *plan, const tri_sequence *q) {
  tri_plan_seq e = {.slot = (uint32_t)q->slot,
                    .kind = TRI_SEQ_SOURCE,
                    .num_tokens = (uint32_t)q->job->num_source,
                    .num_blocks = (uint32_t)q->num_source_blocks};
  tri_plan_add(plan, &e, q->job->source, q->source_blocks, NULL, 0);
}

/* Tells the slot of q what its blocks hold: what it had computed, or what others have. */
static void emit_resume(const tri_sched *s, tri_plan_writer *plan, tri_sequence *q) {
  const tri_job *j = q->job;
  tri_sample_params params = j->params;
  params.seed = choice_seed(j, q->choice);
  tri_plan_seq e = {.slot = (uint32_t)q->slot,
                    .kind = TRI_SEQ_RESUME,
                    .flags = (uint8_t)params_flags(j),
                    .num_tokens = (uint32_t)q->num_computed,
                    .num_blocks = (uint32_t)tri_sched_blocks_for(s, q->num_computed)};
  tri_plan_add(plan, &e, q->tokens, q->blocks, &params, (uint32_t)j->num_prompt);
  q->fresh = false;
}

void tri_sched_fork_choices(tri_sched *s, tri_plan_writer *plan, tri_sequence *q) {
  tri_job *j = q->job;
  bool prompt = j->num_prompt > 1;
  for (int i = 1; i < j->num_choices; i++) {
    tri_sequence *c = &j->seqs[i];
    if (c->state != TRI_SCHED_HELD) continue;
    int slot = tri_sched_free_slot(s);
    /* Without a slot, or room in the plan, the choice computes the prompt by itself later. */
    if (slot < 0 || !tri_plan_has_room(plan, 0, 0, 1)) {
      c->state = TRI_SCHED_WAITING;
      tri_seq_list_insert(s, &s->waiting, c);
      continue;
    }
    if (prompt) tri_sched_share_blocks(s, c, q);
    tri_sched_share_source(s, c, q);
    c->num_computed = prompt ? q->num_computed : 0;
    tri_sched_enter(s, c, slot);
    c->fresh = !prompt; /* its first chunk then brings the parameters */
    tri_sample_params params = j->params;
    params.seed = choice_seed(j, c->choice);
    tri_plan_seq e = {.slot = (uint32_t)slot,
                      .kind = TRI_SEQ_FORK,
                      .flags = (uint8_t)(prompt ? params_flags(j) : 0),
                      .fork_from = (uint32_t)q->slot};
    tri_plan_add(plan, &e, NULL, NULL, &params, (uint32_t)j->num_prompt);
  }
}

/* ---- a sequence in a step ---- */

bool tri_sched_schedule(tri_sched *s, tri_plan_writer *plan, tri_sequence *q, int n, bool may_preempt, int *budget) {
  int source = tri_seq_source_cost(q), first;
  bool swapped = q->swapped;
  if (!tri_sched_has_room(s, plan, q, n, q->fresh || swapped ? q->num_computed : 0)) return false;
  if (q->num_host_blocks && !tri_sched_secure_swapped(s, q, n, may_preempt)) return false;
  if (source && !tri_sched_secure_source(s, q, may_preempt)) return false;
  if (!tri_sched_secure_blocks(s, q, n, may_preempt, plan, &first)) {
    if (source) tri_sched_drop_source(s, q);
    return false;
  }
  if (swapped) first = 0; /* the slot knows those that it had */
  if (source) emit_source(plan, q);
  if (q->fresh && q->num_computed) emit_resume(s, plan, q);
  tri_sched_emit(s, plan, q, n, first, s->cfg.limits.whole_sequences);
  tri_sched_prefix_enter(s, q);
  *budget -= n + source;
  if (!q->job->begun_ns) q->job->begun_ns = s->now_ns;
  if (source && tri_seq_has_held(q) && !tri_seq_waits_to_fork(q)) tri_sched_fork_choices(s, plan, q);
  return true;
}

void tri_sched_settle(tri_sched *s, int micro_batch) {
  for (tri_sequence *q = s->prompts.head, *next; q; q = next) {
    const tri_sequence *first = q->job->search ? &q->job->seqs[0] : q;
    next = q->next;
    if (first->last_step == s->step && first->num_computed >= first->num_tokens) tri_sched_move(s, q, micro_batch);
  }
}

/* ---- the beams of a search ---- */

/* Returns whether q is the sequence that computes the prompt of its search, and has not sampled. */
static bool is_in_prompt(const tri_sequence *q) { return !q->choice && !q->job->search->beams->beams[0].length; }

/* Blocks that the live beams need for their next tokens: a new one for each, or a copy of each that another beam
 * shares. */
static int missing_blocks(const tri_sched *s, const tri_job *j) {
  const tri_search *x = j->search;
  int live = x->beams->num_live, computed = j->seqs[x->seq[0]].num_computed, bs = s->cfg.limits.block_size, n = 0;
  if (computed % bs == 0) return live;
  for (int i = 1; i < live; i++)
    for (int k = 0; k < i; k++)
      if (j->seqs[x->seq[i]].blocks[computed / bs] == j->seqs[x->seq[k]].blocks[computed / bs]) {
        n++;
        break;
      }
  return n;
}

static void emit_fork(tri_plan_writer *plan, tri_sequence *q) {
  tri_plan_seq e = {.slot = (uint32_t)q->slot,
                    .kind = TRI_SEQ_FORK,
                    .flags = TRI_SEQ_FLAG_PARAMS,
                    .fork_from = (uint32_t)q->fork_of->slot};
  tri_plan_add(plan, &e, NULL, NULL, &q->job->params, (uint32_t)q->job->num_prompt);
  q->fork_of = NULL;
  q->fresh = false;
}

/* Room in the plan for a fork and a token of each beam. */
static bool has_room_for_beams(const tri_plan_writer *plan, const tri_job *j, int live) {
  size_t n = (size_t)live, more = n * tri_plan_params_bytes(&j->params);
  return plan->max_seqs - plan->h.num_seqs >= 2 * n && plan->max_params - plan->h.params_bytes >= more &&
         tri_plan_has_room(plan, n, n, n);
}

void tri_search_decode(tri_sched *s, tri_plan_writer *plan, tri_job *j, int *budget) {
  tri_search *x = j->search;
  int live = x->beams->num_live, first;
  if (tri_job_under_way(s, j) || is_in_prompt(&j->seqs[0]) || *budget < live || !has_room_for_beams(plan, j, live))
    return;
  int need = missing_blocks(s, j);
  while (tri_block_num_free(&s->pool) < need)
    if (!tri_sched_preempt_one(s, &j->seqs[0])) return;
  /* Forks come first: they copy what their parents' slots hold before the next token. */
  for (int i = 0; i < live; i++)
    if (j->seqs[x->seq[i]].fork_of) emit_fork(plan, &j->seqs[x->seq[i]]);
  for (int i = 0; i < live; i++) {
    tri_sequence *q = &j->seqs[x->seq[i]];
    tri_sched_secure_blocks(s, q, 1, false, plan, &first); /* there are enough */
    tri_sched_emit(s, plan, q, 1, first, false);
    tri_sched_prefix_enter(s, q);
  }
  *budget -= live;
}
