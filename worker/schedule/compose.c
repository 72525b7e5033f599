/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a micro-batch: which running sequences have tokens in it, and who joins them.
 *
 * In this order: by priority, running sequences make way for the first in the queue; then the micro-batch's decodes, so
 * that no prompt delays a token; then chunks of prompts that run; then sequences from the queue. All draw on one budget
 * of tokens, of which prompts may have a smaller part (tri_sched_bound_prompts), and on one of samples, which are slots
 * of the step's result. A sequence is in a step once (last_step). */
#include "worker/schedule/scheduler_impl.h"

/* Returns whether q decodes in this step: it has a token to be fed, whether that is known or still to be sampled. */
static bool goes_on(const tri_sched *s, const tri_sequence *q) {
  const tri_job *j = q->job;
  return tri_seq_is_decoding(q) && q->last_step != s->step && !j->aborted &&
         tri_seq_length(q) - j->num_prompt < j->max_tokens;
}

static bool awaits_mask(const tri_sequence *q) {
  return q->job->constraint && tri_constraint_look(q->job->constraint, (int)q->choice) == TRI_MASK_AWAITED;
}

bool tri_sched_awaits_masks(const tri_sched *s, int micro_batch, bool late) {
  if (!s->micro_batches[micro_batch].num_tied || s->micro_batches[micro_batch].under_way) return false;
  for (const tri_sequence *q = s->micro_batches[micro_batch].running.head; q; q = q->next)
    if (awaits_mask(q) && (late || !q->mask_late) && !q->job->aborted) return true;
  return false;
}

static void run_decodes(tri_sched *s, tri_plan_writer *plan, tri_sched_micro_batch *micro_batch, int *budget) {
  for (tri_sequence *q = micro_batch->running.head, *next; q && *budget > 0; q = next) {
    if (q->job->search) {
      if (!q->choice) tri_search_decode(s, plan, q->job, budget); /* for all beams */
    } else if (goes_on(s, q)) {
      q->mask_late = !tri_seq_has_mask(q);
      if (!q->mask_late) tri_sched_schedule(s, plan, q, 1, true, budget);
    }
    next = q->next; /* after schedule: it may have preempted what followed */
  }
}

static void run_prompts(tri_sched *s, tri_plan_writer *plan, int micro_batch, int *budget) {
  for (tri_sequence *q = s->prompts.head, *next; q && *budget > 0; q = next) {
    bool waits = q->job->search && q->choice; /* for the first beam */
    if (!waits && q->last_step != s->step && !q->job->aborted) {
      if (tri_seq_waits_to_fork(q) && !tri_seq_remaining(q)) tri_sched_fork_choices(s, plan, q);
      int n = tri_sched_fitting(s, q, 0, *budget);
      if (n > 0) tri_sched_schedule(s, plan, q, n, true, budget);
    }
    next = q->next;
  }
  tri_sched_settle(s, micro_batch);
}

/* Gives the last of a micro-batch that has more than its share, since others have lost theirs or prompts ended in it,
 * to the micro-batch that has least. Its steps have all ended, so that they are in none. */
static void share_out(tri_sched *s, tri_sched_micro_batch *micro_batch) {
  int decoding = s->num_running - s->prompts.count;
  for (tri_sequence *q = micro_batch->running.tail, *prev; q; q = prev) {
    int least = 0;
    for (int l = 1; l < s->cfg.num_micro_batches; l++)
      if (s->micro_batches[l].running.count < s->micro_batches[least].running.count) least = l;
    if ((micro_batch->running.count - 1) * s->cfg.num_micro_batches < decoding) return;
    prev = q->prev;
    if (!q->job->search) tri_sched_move(s, q, least);
  }
}

bool tri_sched_micro_batch_has_any(const tri_sched *s, int micro_batch) {
  return s->micro_batches[micro_batch].running.count || s->prompts.count || s->waiting.count;
}

bool tri_sched_micro_batch_is_tied(const tri_sched *s, int micro_batch) {
  return s->micro_batches[micro_batch].under_way && s->micro_batches[micro_batch].num_tied;
}

void tri_sched_begin_step(tri_sched *s, int micro_batch_index, uint64_t step, tri_plan_writer *plan) {
  tri_sched_micro_batch *micro_batch = &s->micro_batches[micro_batch_index];
  s->step = step;
  s->plan = plan;
  tri_sched_end_reads(s);
  s->budget = s->enough_tokens ? s->enough_tokens : s->cfg.limits.max_num_batched_tokens;
  if (!micro_batch->under_way) share_out(s, micro_batch);
  s->samples = s->cfg.limits.max_num_seqs;
  s->num_rows = 0;
  tri_plan_begin(plan, (uint32_t)micro_batch_index, step);
}

void tri_sched_run(tri_sched *s, int micro_batch, tri_plan_writer *plan) {
  int tokens = s->budget;
  tri_sched_make_way(s);
  run_decodes(s, plan, &s->micro_batches[micro_batch], &s->budget);
  s->num_decodes = tokens - s->budget;
  if (s->budget > s->cfg.prompt_tokens) s->budget = s->cfg.prompt_tokens;
  if (s->budget > s->prompt_bound) s->budget = s->prompt_bound;
  run_prompts(s, plan, micro_batch, &s->budget);
}

void tri_sched_admit(tri_sched *s, int micro_batch, tri_plan_writer *plan) {
  if (s->batches)
    tri_encoder_admit(s, micro_batch, plan);
  else
    tri_sched_admit_waiting(s, micro_batch, plan);
}

bool tri_sched_end_step(tri_sched *s, int micro_batch, const tri_plan_writer *plan) {
  bool any = plan->h.num_seqs || plan->h.num_copies || plan->h.num_swaps_out;
  s->micro_batches[micro_batch].under_way += any;
  if (any) s->micro_batches[micro_batch].last_step = s->step;
  return any;
}

bool tri_sched_compose(tri_sched *s, int micro_batch, tri_plan_writer *plan) {
  if (!tri_sched_micro_batch_has_any(s, micro_batch) || tri_sched_micro_batch_is_tied(s, micro_batch)) return false;
  tri_sched_begin_step(s, micro_batch, s->step + 1, plan);
  tri_sched_run(s, micro_batch, plan);
  tri_sched_admit(s, micro_batch, plan);
  if (tri_sched_end_step(s, micro_batch, plan)) return true;
  s->step--; /* the number is the next one's */
  return false;
}
