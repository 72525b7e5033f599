/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/wait.h"
#include "base/hash.h"
#include "worker/schedule/scheduler_impl.h"

static bool has_batches(const tri_sched_config *c) {
  return c->limits.whole_sequences && c->encoder_batching != TRI_BATCHING_PACKED;
}

tri_status tri_sched_create(const tri_sched_config *config, tri_sched **out) {
  tri_sched *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  s->cfg = *config;
  if (!s->cfg.depth) s->cfg.depth = 1;
  /* Whole sequences and sources take as much of a step as they need. */
  if (!s->cfg.prompt_tokens || s->cfg.limits.whole_sequences || s->cfg.limits.has_source)
    s->cfg.prompt_tokens = s->cfg.limits.max_num_batched_tokens;
  s->lanes = tri_calloc((size_t)config->num_lanes, sizeof *s->lanes);
  s->slot_owner = tri_calloc((size_t)config->limits.max_num_seqs, sizeof *s->slot_owner);
  s->marks = tri_calloc((size_t)config->limits.num_blocks, sizeof *s->marks);
  s->blocks_read = tri_calloc((size_t)config->limits.num_host_blocks, sizeof *s->blocks_read);
  if (!s->blocks_read || !s->lanes || !s->slot_owner || !s->marks ||
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
  tri_free(s->lanes);
  tri_free(s->slot_owner);
  tri_free(s->marks);
  tri_free(s->blocks_read);
  tri_free(s);
}

/* ---- composing ---- */

static bool is_decoding(const tri_sequence *q) {
  return q->num_computed == tri_seq_length(q) - 1 && tri_seq_length(q) > q->job->num_prompt && !q->fresh;
}

static int remaining(const tri_sequence *q) {
  return q->num_tokens - q->num_computed - (tri_seq_waits_to_fork(q) ? 1 : 0);
}

/* The tokens that the first ones of q cost besides themselves. */
static int source_cost(const tri_sequence *q) { return tri_seq_needs_source(q) ? q->job->num_source : 0; }

/* How many draws a prompt that is scored, of which each token takes one, may have of those that a step has left: others
 * that are or come in may end their prompts in it. */
static int draws_for(const tri_sched *s) {
  int others = s->prompts.count + s->waiting.count - 1, kept = s->draws / 2;
  return s->draws - (others < kept ? others : kept);
}

/* How many tokens of q fit into what is left of a step, where so many more need not be computed; less than 1: none. The
 * last one is drawn behind. */
static int fitting(const tri_sched *s, const tri_sequence *q, int found, int budget) {
  int left = remaining(q) - found, room = budget - source_cost(q);
  if (tri_seq_scores(q) && room > draws_for(s)) room = draws_for(s);
  if (left <= room && !s->draws && !s->cfg.limits.whole_sequences) return left - 1;
  return left < room ? left : room;
}

static uint64_t choice_seed(const tri_job *j, uint32_t choice) { return j->seed + choice * TRI_SPLITMIX_STEP; }

/* Returns the flags of an entry that brings a sequence's parameters. */
static int params_flags(const tri_job *j) { return TRI_SEQ_FLAG_PARAMS | (j->params.mask ? TRI_SEQ_FLAG_MASK : 0); }

void tri_sched_emit(tri_sched *s, tri_plan_writer *plan, tri_sequence *q, int n, int first_block, bool whole) {
  const tri_job *j = q->job;
  tri_sample_params params = j->params;
  params.seed = choice_seed(j, q->choice);
  bool last = q->num_computed + n == tri_seq_length(q), decode = is_decoding(q);
  bool unknown = q->num_computed == q->num_tokens, scores = !decode && tri_seq_scores(q);
  int generated = tri_seq_length(q) - j->num_prompt;
  int flags = q->fresh ? TRI_SEQ_FLAG_FIRST | params_flags(j) : 0;
  if (last) flags |= TRI_SEQ_FLAG_SAMPLE;
  if (scores) flags |= TRI_SEQ_FLAG_SCORE;
  if (unknown) flags |= TRI_SEQ_FLAG_TOKEN_IN_SLOT;
  if (generated < j->min_tokens) flags |= TRI_SEQ_FLAG_BAN;
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
  if (!whole) s->draws -= scores ? n : last;
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

/* The other choices get slots of their own beside q and share what it has: the blocks of the prompt, or, where the
 * first token is the whole prompt, those of the source. */
static void fork_choices(tri_sched *s, tri_plan_writer *plan, tri_sequence *q) {
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

/* Room in the plan for n tokens of q and what comes in front of them, so many that its blocks hold included. */
static bool has_room(const tri_sched *s, const tri_plan_writer *plan, const tri_sequence *q, int n, int known) {
  int source = source_cost(q);
  int blocks = n / s->cfg.limits.block_size + 3 + tri_sched_blocks_for(s, source) + tri_sched_blocks_for(s, known);
  if (q->fresh && q->job->params.mask && !tri_plan_has_mask_room(plan)) return false;
  return plan->h.num_seqs + !!source + !!known < plan->max_seqs &&
         tri_plan_has_room(plan, (size_t)(n + source + known + tri_seq_scores(q)), (size_t)blocks, 1);
}

/* Schedules n tokens of q, its source in front of them where that is due. False when blocks are missing. */
static bool schedule(tri_sched *s, tri_plan_writer *plan, tri_sequence *q, int n, bool may_preempt, int *budget) {
  int source = source_cost(q), first;
  bool away = q->away;
  if (!has_room(s, plan, q, n, q->fresh || away ? q->num_computed : 0)) return false;
  if (q->num_host_blocks && !tri_sched_swap_in(s, q, n, may_preempt)) return false;
  if (source && !tri_sched_secure_source(s, q, may_preempt)) return false;
  if (!tri_sched_secure_blocks(s, q, n, may_preempt, plan, &first)) {
    if (source) tri_sched_drop_source(s, q);
    return false;
  }
  if (away) first = 0; /* the slot knows those that it had */
  if (source) emit_source(plan, q);
  if (q->fresh && q->num_computed) emit_resume(s, plan, q);
  tri_sched_emit(s, plan, q, n, first, s->cfg.limits.whole_sequences);
  tri_sched_prefix_enter(s, q);
  *budget -= n + source;
  if (!q->job->begun_ns) q->job->begun_ns = s->now_ns;
  if (source && tri_seq_has_held(q) && !tri_seq_waits_to_fork(q)) fork_choices(s, plan, q);
  return true;
}

/* Has a token to be fed in this step, whether that is known or still to be drawn. */
static bool goes_on(const tri_sched *s, const tri_sequence *q) {
  const tri_job *j = q->job;
  return is_decoding(q) && q->last_step != s->step && !j->aborted && tri_seq_length(q) - j->num_prompt < j->max_tokens;
}

static void run_decodes(tri_sched *s, tri_plan_writer *plan, tri_sched_lane *lane, int *budget) {
  for (tri_sequence *q = lane->running.head, *next; q && *budget > 0; q = next) {
    if (q->job->search) {
      if (!q->choice) tri_search_decode(s, plan, q->job, budget); /* for all beams */
    } else if (goes_on(s, q)) {
      schedule(s, plan, q, 1, true, budget);
    }
    next = q->next; /* after schedule: it may have preempted what followed */
  }
}

/* Moves those whose last chunk is in this step to its lane. The beams of a search stay together. */
static void settle(tri_sched *s, int lane) {
  for (tri_sequence *q = s->prompts.head, *next; q; q = next) {
    const tri_sequence *first = q->job->search ? &q->job->seqs[0] : q;
    next = q->next;
    if (first->last_step == s->step && first->num_computed >= first->num_tokens) tri_sched_move(s, q, lane);
  }
}

static void run_prompts(tri_sched *s, tri_plan_writer *plan, int lane, int *budget) {
  for (tri_sequence *q = s->prompts.head, *next; q && *budget > 0; q = next) {
    bool waits = q->job->search && q->choice; /* for the first beam */
    if (!waits && q->last_step != s->step && !q->job->aborted) {
      if (tri_seq_waits_to_fork(q) && !remaining(q)) fork_choices(s, plan, q);
      int n = fitting(s, q, 0, *budget);
      if (n > 0) schedule(s, plan, q, n, true, budget);
    }
    next = q->next;
  }
  settle(s, lane);
}

/* Lanes share the sequences evenly: an uneven split leaves stages waiting. */
static bool lane_is_full(const tri_sched *s, const tri_sched_lane *lane) {
  int all = s->num_running + s->waiting.count + s->expected, most = s->cfg.limits.max_num_seqs;
  if (all > most) all = most; /* the others will find no slot */
  return lane->running.count * s->cfg.num_lanes >= all;
}

/* Gives the last of a lane that has more than its share, since others have lost theirs or prompts ended in it, to the
 * lane that has least. Its steps have all ended, so that they are in none. */
static void share_out(tri_sched *s, tri_sched_lane *lane) {
  int decoding = s->num_running - s->prompts.count;
  for (tri_sequence *q = lane->running.tail, *prev; q; q = prev) {
    int least = 0;
    for (int l = 1; l < s->cfg.num_lanes; l++)
      if (s->lanes[l].running.count < s->lanes[least].running.count) least = l;
    if ((lane->running.count - 1) * s->cfg.num_lanes < decoding) return;
    prev = q->prev;
    if (!q->job->search) tri_sched_move(s, q, least);
  }
}

bool tri_sched_has_place(const tri_sched *s, const tri_job *j) {
  return s->budget > 0 && !s->waiting.count && tri_seq_finds_place(s, tri_job_first(j));
}

int64_t tri_sched_load(const tri_sched *s) {
  int64_t n = 0;
  for (int l = -1; l < s->cfg.num_lanes; l++)
    for (const tri_sequence *q = tri_sched_list(s, l)->head; q; q = q->next)
      n += q->num_computed + (q->num_source_blocks ? q->job->num_source : 0);
  for (const tri_sequence *q = s->prompts.head; q; q = q->next)
    if (!q->job->search || !q->choice) n += remaining(q) + source_cost(q);
  for (const tri_sequence *q = s->waiting.head; q; q = q->next) n += remaining(q) + source_cost(q);
  return n;
}

/* A slot that a sequence of a whole batch has left stays empty. */
static int slots_left(const tri_sched *s) {
  int left = tri_sched_num_free(s), batch = s->cfg.limits.max_num_seqs - s->batch_size;
  return s->cfg.whole_batches && batch < left ? batch : left;
}

/* Looking for a prefix takes time: who has found no blocks does so again when some have been released. Nothing needs to
 * be where nothing runs. */
static bool is_blocked(const tri_sched *s, const tri_sequence *q) {
  return q == s->blocked && s->pool.num_released == s->blocked_at && s->num_running;
}

static void admit(tri_sched *s, tri_plan_writer *plan, int lane, int *budget) {
  while (s->waiting.head && *budget > 0 && !lane_is_full(s, &s->lanes[lane])) {
    tri_sequence *q = s->waiting.head;
    if (slots_left(s) < tri_seq_slots(q) || is_blocked(s, q)) return;
    tri_prefix_hit hit = tri_sched_prefix_find(s, q);
    int found = hit.blocks * s->cfg.limits.block_size, n = fitting(s, q, found, *budget);
    /* A sequence that has to go in one piece waits for a step with room for all of it. */
    if (n < 1 || (s->cfg.limits.whole_sequences && n < remaining(q))) return;
    bool fits = tri_sched_finds_blocks(s, q, hit);
    s->blocked = fits ? NULL : q;
    s->blocked_at = s->pool.num_released;
    if (!fits || !has_room(s, plan, q, n, q->num_computed + found)) return;
    tri_seq_list_remove(&s->waiting, q);
    if (q->job->search)
      tri_search_enter(s, q->job);
    else
      tri_sched_enter(s, q, tri_sched_free_slot(s));
    tri_sched_prefix_take(s, q);
    if (!schedule(s, plan, q, n, false, budget)) {
      tri_sched_preempt(s, q);
      return;
    }
    settle(s, lane);
  }
}

/* Request-level batches. A lane that has its share leaves the batch open for the others. */
static void admit_to_batch(tri_sched *s, tri_plan_writer *plan, int lane, int *budget) {
  if (!s->num_running) s->batch_size = 0; /* the last one has ended */
  admit(s, plan, lane, budget);
  const tri_sequence *next = s->waiting.head;
  if (!next || (fitting(s, next, 0, *budget) > 0 && !lane_is_full(s, &s->lanes[lane])))
    s->batch_size = s->cfg.limits.max_num_seqs;
}

bool tri_sched_lane_has_any(const tri_sched *s, int lane) {
  return s->lanes[lane].running.count || s->prompts.count || s->waiting.count;
}

bool tri_sched_lane_is_tied(const tri_sched *s, int lane) {
  return s->lanes[lane].under_way && s->lanes[lane].num_tied;
}

void tri_sched_begin_step(tri_sched *s, int lane_index, uint64_t step, tri_plan_writer *plan) {
  tri_sched_lane *lane = &s->lanes[lane_index];
  s->step = step;
  s->plan = plan;
  tri_sched_end_reads(s);
  s->budget = s->enough_tokens ? s->enough_tokens : s->cfg.limits.max_num_batched_tokens;
  if (!lane->under_way) share_out(s, lane);
  s->draws = s->cfg.limits.max_num_seqs;
  tri_plan_begin(plan, (uint32_t)lane_index, step);
}

void tri_sched_run(tri_sched *s, int lane, tri_plan_writer *plan) {
  tri_sched_make_way(s);
  run_decodes(s, plan, &s->lanes[lane], &s->budget);
  if (s->budget > s->cfg.prompt_tokens) s->budget = s->cfg.prompt_tokens;
  run_prompts(s, plan, lane, &s->budget);
}

void tri_sched_admit(tri_sched *s, int lane, tri_plan_writer *plan) {
  if (s->batches)
    tri_encoder_admit(s, lane, plan);
  else
    (s->cfg.whole_batches ? admit_to_batch : admit)(s, plan, lane, &s->budget);
}

bool tri_sched_end_step(tri_sched *s, int lane, const tri_plan_writer *plan) {
  bool any = plan->h.num_seqs || plan->h.num_copies || plan->h.num_swaps_out;
  s->lanes[lane].under_way += any;
  if (any) s->lanes[lane].last_step = s->step;
  return any;
}

bool tri_sched_compose(tri_sched *s, int lane, tri_plan_writer *plan) {
  if (!tri_sched_lane_has_any(s, lane) || tri_sched_lane_is_tied(s, lane)) return false;
  tri_sched_begin_step(s, lane, s->step + 1, plan);
  tri_sched_run(s, lane, plan);
  tri_sched_admit(s, lane, plan);
  if (tri_sched_end_step(s, lane, plan)) return true;
  s->step--; /* the number is the next one's */
  return false;
}

/* ---- absorbing ---- */

bool tri_job_stops_at(const tri_job *j, uint32_t token) {
  for (int i = 0; i < j->num_stop_ids; i++)
    if (j->stop_ids[i] == token) return true;
  return false;
}

/* num_top: the alternatives of r that are wanted; r has those of the answer or of the prompt, whichever are more. */
static void report_logprobs(tri_outbox *out, tri_group_token *t, const tri_sample_result *r, int num_top) {
  size_t at = (size_t)(t - out->tokens) * TRI_MAX_LOGPROBS;
  t->flags |= TRI_TOKEN_LOGPROB;
  t->logprob = r->logprob;
  t->num_top = num_top < r->num_top ? num_top : r->num_top;
  memcpy(out->top_ids + at, r->top_ids, (size_t)t->num_top * sizeof *r->top_ids);
  memcpy(out->top_logprobs + at, r->top_logprobs, (size_t)t->num_top * sizeof *r->top_logprobs);
  t->top_ids = out->top_ids + at;
  t->top_logprobs = out->top_logprobs + at;
}

/* A prompt that is computed again says nothing that has been told. */
static void take_score(tri_sequence *q, const tri_step_token *scored, tri_outbox *out) {
  tri_job *j = q->job;
  if (scored->scored != (uint32_t)j->num_scored) return;
  tri_group_token *t = tri_sched_next_entry(out, q);
  t->flags |= TRI_TOKEN_PROMPT;
  t->offset = scored->scored;
  t->token = scored->sample.token;
  report_logprobs(out, t, &scored->sample, j->num_prompt_logprobs);
  j->num_scored++;
}

static void take_token(tri_sched *s, tri_sequence *q, const tri_sample_result *r, tri_outbox *out) {
  tri_job *j = q->job;
  tri_group_token *t = tri_sched_next_entry(out, q);
  t->token = r->token;
  if (j->num_logprobs >= 0) report_logprobs(out, t, r, j->num_logprobs);
  if (q->num_tokens < j->capacity) q->tokens[q->num_tokens] = r->token;
  q->num_tokens++;
  s->tokens++;
  tri_sched_prefix_enter(s, q);
  int generated = q->num_tokens - j->num_prompt;
  bool stop = !j->score_only && tri_job_stops_at(j, r->token);
  if (!stop && generated < j->max_tokens) return;
  t->flags |= TRI_TOKEN_LAST | (stop ? TRI_TOKEN_STOP_ID : 0);
  if (j->score_only) t->flags |= TRI_TOKEN_NONE;
  t->reason = stop ? TRI_FINISH_STOP : TRI_FINISH_LENGTH;
  tri_sched_end_sequence(s, q);
  tri_sched_retire_if_done(s, j);
}

/* Ends a job whose draw is no answer, since the logits were no numbers. Choices that are under way end as those of an
 * aborted one. */
static void give_up(tri_sequence *q, tri_outbox *out) {
  tri_group_token *t = tri_sched_next_entry(out, q);
  t->flags |= TRI_TOKEN_NONE;
  t->reason = TRI_FINISH_ERROR;
  q->job->aborted = true;
}

void tri_sched_absorb(tri_sched *s, int lane_index, const tri_step_result *result, tri_outbox *out) {
  tri_sched_lane *lane = &s->lanes[lane_index];
  lane->under_way--;
  s->done = out->step = result->step;
  for (uint32_t i = 0; i < result->num_tokens; i++) {
    const tri_step_token *t = &result->tokens[i];
    tri_sequence *q = t->slot < (uint32_t)s->cfg.limits.max_num_seqs ? s->slot_owner[t->slot] : NULL;
    /* A step may have been composed before its slot went to another sequence. */
    if (!q || q->since > result->step) continue;
    if (!t->scored) q->num_pending--;
    if (q->job->aborted) continue;
    if (t->sample.broken && out->num < out->cap)
      give_up(q, out);
    else if (q->job->search)
      tri_search_take(s, q, &t->sample);
    else if (out->num < out->cap && t->scored)
      take_score(q, t, out);
    else if (out->num < out->cap)
      take_token(s, q, &t->sample, out);
  }
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

bool tri_sched_has_work(const tri_sched *s) { return s->jobs != NULL; }

bool tri_sched_is_busy(const tri_sched *s) {
  for (int l = 0; l < s->cfg.num_lanes; l++)
    if (s->lanes[l].under_way) return true;
  return tri_sched_has_work(s);
}
bool tri_sched_lane_busy(const tri_sched *s, int lane) { return s->lanes[lane].under_way >= s->cfg.depth; }
