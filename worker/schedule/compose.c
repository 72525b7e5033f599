/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a lane: which running sequences have tokens in it, and who comes in beside them. */
#include "worker/schedule/scheduler_impl.h"

/* Has a token to be fed in this step, whether that is known or still to be drawn. */
static bool goes_on(const tri_sched *s, const tri_sequence *q) {
  const tri_job *j = q->job;
  return tri_seq_is_decoding(q) && q->last_step != s->step && !j->aborted &&
         tri_seq_length(q) - j->num_prompt < j->max_tokens;
}

static void run_decodes(tri_sched *s, tri_plan_writer *plan, tri_sched_lane *lane, int *budget) {
  for (tri_sequence *q = lane->running.head, *next; q && *budget > 0; q = next) {
    if (q->job->search) {
      if (!q->choice) tri_search_decode(s, plan, q->job, budget); /* for all beams */
    } else if (goes_on(s, q)) {
      tri_sched_schedule(s, plan, q, 1, true, budget);
    }
    next = q->next; /* after schedule: it may have preempted what followed */
  }
}

static void run_prompts(tri_sched *s, tri_plan_writer *plan, int lane, int *budget) {
  for (tri_sequence *q = s->prompts.head, *next; q && *budget > 0; q = next) {
    bool waits = q->job->search && q->choice; /* for the first beam */
    if (!waits && q->last_step != s->step && !q->job->aborted) {
      if (tri_seq_waits_to_fork(q) && !tri_seq_remaining(q)) tri_sched_fork_choices(s, plan, q);
      int n = tri_sched_fitting(s, q, 0, *budget);
      if (n > 0) tri_sched_schedule(s, plan, q, n, true, budget);
    }
    next = q->next;
  }
  tri_sched_settle(s, lane);
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
  else if (s->cfg.whole_batches)
    tri_sched_admit_to_batch(s, lane, plan);
  else
    tri_sched_admit_waiting(s, lane, plan);
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
