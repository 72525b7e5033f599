/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: which of the waiting sequences come into a step.
 *
 * The queue is served from its head, and the first sequence that finds no slot, no blocks or no room in the plan ends
 * the admission of this step. A smaller one after it does not overtake: with a steady flow of small ones the large one
 * would never come in. */
#include "worker/schedule/scheduler_impl.h"

/* Micro-batches share the sequences evenly: an uneven split leaves stages waiting. */
bool tri_sched_micro_batch_is_full(const tri_sched *s, int micro_batch) {
  int all = s->num_running + s->waiting.count + s->expected, most = s->cfg.limits.max_num_seqs;
  if (all > most) all = most; /* the others will find no slot */
  return s->micro_batches[micro_batch].running.count * s->cfg.num_micro_batches >= all;
}

bool tri_sched_has_place(const tri_sched *s, const tri_job *j) {
  return s->budget > 0 && !s->waiting.count && tri_seq_finds_place(s, tri_job_first(j));
}

/* Returns whether q is known to find no blocks: it found none, and none has been released since. Without it every step
 * would look the prompt of the first in the queue up in the prefix cache again, block by block. Where nothing runs,
 * nothing will be released that could end the wait, so q is looked at. */
static bool is_blocked(const tri_sched *s, const tri_sequence *q) {
  return q == s->blocked && s->pool.num_released == s->blocked_at && s->num_running;
}

/* Returns the first in the queue. Those whose schema or mask is still being worked out are passed over: that is no want
 * of room, which would be there for them later. */
static tri_sequence *first_ready(const tri_sched *s) {
  tri_sequence *q = s->waiting.head;
  while (q && !tri_seq_has_mask(q)) q = q->next;
  return q;
}

void tri_sched_admit_waiting(tri_sched *s, int micro_batch, tri_plan_writer *plan) {
  for (tri_sequence *q; (q = first_ready(s)) && s->budget > 0 && !tri_sched_micro_batch_is_full(s, micro_batch);) {
    /* Looks for every reason to stop before q leaves the queue: from then on it could only go back as one preempted. */
    if (tri_sched_num_free(s) < tri_seq_slots(q) || is_blocked(s, q)) return;
    tri_prefix_hit hit = tri_sched_prefix_find(s, q);
    int found = hit.blocks * s->cfg.limits.block_size, n = tri_sched_fitting(s, q, found, s->budget);
    /* A sequence that has to go in one piece waits for a step with room for all of it. */
    if (n < 1 || (s->cfg.limits.whole_sequences && n < tri_seq_remaining(q))) return;
    bool fits = tri_sched_finds_blocks(s, q, hit);
    s->blocked = fits ? NULL : q;
    s->blocked_at = s->pool.num_released;
    if (!fits || !tri_sched_has_room(s, plan, q, n, q->num_computed + found)) return;
    tri_seq_list_remove(&s->waiting, q);
    if (q->job->search)
      tri_search_enter(s, q->job);
    else
      tri_sched_enter(s, q, tri_sched_free_slot(s));
    tri_sched_prefix_take(s, q);
    if (!tri_sched_schedule(s, plan, q, n, false, &s->budget)) {
      tri_sched_preempt(s, q);
      return;
    }
    tri_sched_settle(s, micro_batch);
  }
}
