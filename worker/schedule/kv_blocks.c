/* SPDX-License-Identifier: Apache-2.0 */
/* KV blocks for sequences: how many one needs, and who gives some up when they run out. The running sequence that came
 * last gives its blocks back and is computed again later, or continues with what it has left in the host's memory; by
 * priority, sequences that matter less make way for the first in the queue. */
#include "worker/schedule/scheduler_impl.h"

/* ---- what a sequence needs ---- */

/* Decoders that run will soon want one more block, and so will the beams of a search; those that are away want theirs
 * again. */
static int needed_blocks(const tri_sched *s, const tri_sequence *q) {
  int need = tri_sched_blocks_for(s, q->num_tokens);
  if (tri_seq_needs_source(q)) need += tri_sched_blocks_for(s, q->job->num_source);
  if (q->job->search && q->job->max_tokens > 1) need += q->job->num_seqs - 1;
  return need + s->blocks_swapped + (s->num_running > 0 && !s->cfg.limits.whole_sequences);
}

bool tri_sched_finds_blocks(const tri_sched *s, const tri_sequence *q, tri_prefix_hit hit) {
  return tri_block_num_free(&s->pool) - hit.idle >= needed_blocks(s, q) - hit.blocks;
}

/* Returns whether q finds its blocks without a prefix where so many more could become free. */
static bool would_find_blocks(const tri_sched *s, const tri_sequence *q, int more) {
  return tri_block_num_free(&s->pool) + more >= needed_blocks(s, q);
}

bool tri_seq_finds_place(const tri_sched *s, const tri_sequence *q) {
  return tri_sched_num_free(s) >= tri_seq_slots(q) && tri_sched_finds_blocks(s, q, tri_sched_prefix_find(s, q));
}

/* ---- preemption ---- */

void tri_sched_preempt(tri_sched *s, tri_sequence *q) {
  if (q->job->search) {
    tri_search_preempt(s, q->job);
    return;
  }
  if (!tri_sched_swap_out(s, q)) q->num_computed = 0;
  tri_sched_leave(s, q);
  q->state = TRI_SCHED_WAITING;
  tri_seq_list_insert(s, &s->waiting, q);
  tri_sched_count_preemption(s, q->job);
}

/* Returns the last in order of the running sequences that are idle and come after q; NULL when there is none. The beams
 * of a search spare one another. */
static tri_sequence *last_idle(const tri_sched *s, const tri_sequence *q) {
  tri_sequence *last = NULL;
  for (int l = -1; l < s->cfg.num_micro_batches; l++)
    for (tri_sequence *v = tri_sched_list(s, l)->tail; v; v = v->prev) {
      if (!tri_seq_is_idle(s, v) || !(v->num_blocks + v->num_source_blocks) || !tri_seq_before(s, q, v)) continue;
      if (v->job->search && v->job == q->job) continue;
      if (!last || tri_seq_before(s, last, v)) last = v;
      break; /* a list is in order */
    }
  return last;
}

bool tri_sched_preempt_one(tri_sched *s, const tri_sequence *for_whom) {
  tri_sequence *victim = last_idle(s, for_whom);
  if (victim) tri_sched_preempt(s, victim);
  return victim != NULL;
}

/* ---- by priority ---- */

/* Adds `by` to the marks of each block, and returns for how many these then are as many as the references: all owners
 * of such a block are victims, so that preempting them frees it. A block that two victims share counts once, and one
 * that a survivor shares does not count. */
static int mark(const tri_sched *s, const int32_t *blocks, int n, int by) {
  int last = 0;
  for (int i = 0; i < n; i++) {
    s->marks[blocks[i]] += by;
    last += s->marks[blocks[i]] == s->pool.refs[blocks[i]];
  }
  return last;
}

/* Counts the running sequences that matter less than q and are idle, and marks their blocks. *freed: those that no
 * other has. */
static int mark_victims(const tri_sched *s, const tri_sequence *q, int by, int *freed) {
  int victims = 0;
  for (int l = -1; l < s->cfg.num_micro_batches; l++)
    for (const tri_sequence *v = tri_sched_list(s, l)->tail; v && v->job->priority > q->job->priority; v = v->prev) {
      if (!tri_seq_is_idle(s, v)) continue;
      victims++;
      *freed += mark(s, v->blocks, v->num_blocks, by) + mark(s, v->source_blocks, v->num_source_blocks, by);
    }
  return victims;
}

/* Returns whether the places of running sequences that matter less than q, and are idle, are enough to let it in. */
static bool could_make_way(const tri_sched *s, const tri_sequence *q) {
  int blocks = 0, none = 0, victims = mark_victims(s, q, 1, &blocks);
  mark_victims(s, q, -1, &none);
  return victims + tri_sched_num_free(s) >= tri_seq_slots(q) && would_find_blocks(s, q, blocks);
}

void tri_sched_make_way(tri_sched *s) {
  const tri_sequence *q = s->waiting.head;
  if (!q || !s->cfg.by_priority || !tri_seq_has_mask(q) || !could_make_way(s, q)) return;
  while (!tri_seq_finds_place(s, q)) {
    tri_sequence *last = last_idle(s, q);
    if (!last || last->job->priority <= q->job->priority) return;
    tri_sched_preempt(s, last);
  }
}

bool tri_sched_would_make_way(const tri_sched *s, const tri_job *j, int64_t *yields) {
  const tri_sequence *q = tri_job_first(j), *first = s->waiting.head;
  if (!s->cfg.by_priority || (first && first->job->priority <= j->priority)) return false;
  if (!could_make_way(s, q)) return false;
  *yields = INT64_MAX;
  if (tri_seq_finds_place(s, q)) return true;
  const tri_sequence *last = last_idle(s, q);
  if (!last || last->job->priority <= j->priority) return false;
  *yields = last->job->priority;
  return true;
}

/* ---- blocks for a step ---- */

/* Has a sequence of another micro-batch leave, or one that comes after q give its blocks back. False: there is none. */
static bool make_room(tri_sched *s, const tri_sequence *q) {
  return tri_sched_swap_out_one(s) || tri_sched_preempt_one(s, q);
}

static bool take_block(tri_sched *s, const tri_sequence *q, int32_t *block, bool may_preempt) {
  while ((*block = tri_block_take(&s->pool)) < 0)
    if (!may_preempt || !make_room(s, q)) return false;
  return true;
}

bool tri_sched_secure_swapped(tri_sched *s, tri_sequence *q, int n, bool may_preempt) {
  int need = tri_sched_blocks_for(s, q->num_computed + n);
  while (tri_block_num_free(&s->pool) < need)
    if (!may_preempt || !make_room(s, q)) return false;
  tri_sched_swap_in(s, q);
  return true;
}

bool tri_sched_secure_source(tri_sched *s, tri_sequence *q, bool may_preempt) {
  int need = tri_sched_blocks_for(s, q->job->num_source);
  while (q->num_source_blocks < need) {
    if (!take_block(s, q, &q->source_blocks[q->num_source_blocks], may_preempt)) {
      tri_sched_drop_source(s, q);
      return false;
    }
    q->num_source_blocks++;
  }
  return true;
}

static bool is_shared(const tri_sched *s, const tri_sequence *q, int index) {
  return q->num_computed % s->cfg.limits.block_size && s->pool.refs[q->blocks[index]] > 1;
}

bool tri_sched_secure_blocks(tri_sched *s, tri_sequence *q, int n, bool may_preempt, tri_plan_writer *plan,
                             int *first) {
  int need = tri_sched_blocks_for(s, q->num_computed + n), at = q->num_computed / s->cfg.limits.block_size;
  int had = q->num_blocks;
  int32_t copy;
  while (q->num_blocks < need) {
    if (!take_block(s, q, &q->blocks[q->num_blocks], may_preempt)) goto fail;
    q->num_blocks++;
  }
  *first = had;
  if (!is_shared(s, q, at)) return true;
  if (take_block(s, q, &copy, may_preempt)) {
    tri_plan_add_copy(plan, q->blocks[at], copy);
    tri_block_drop(&s->pool, q->blocks[at]);
    q->blocks[at] = copy;
    *first = at;
  } else if (is_shared(s, q, at)) { /* those who shared it may just have been preempted */
    goto fail;
  }
  return true;
fail:
  while (q->num_blocks > had) tri_block_drop(&s->pool, q->blocks[--q->num_blocks]);
  return false;
}
