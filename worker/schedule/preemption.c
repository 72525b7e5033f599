/* SPDX-License-Identifier: Apache-2.0 */
/* Preemption: when the KV blocks run out, the running sequence that came last gives its blocks back and is computed
 * again later, or goes on with what it has left in the host's memory; and by priority who makes way for the first in
 * the queue. */
#include "worker/schedule/scheduler_impl.h"

void tri_sched_count_preemption(tri_sched *s, tri_job *j) {
  s->preemptions++;
  j->preemptions++;
}

void tri_sched_tell_news(tri_job *j, tri_group_token *t) {
  if (j->preemptions != j->preemptions_told) {
    t->flags |= TRI_TOKEN_PREEMPTED;
    t->preemptions = j->preemptions_told = j->preemptions;
  }
  if (j->begun_ns && !j->begun_told) {
    t->flags |= TRI_TOKEN_WAITED;
    t->waited_ns = tri_job_waited_ns(j);
    j->begun_told = true;
    if (j->num_cached) t->flags |= TRI_TOKEN_CACHED;
    t->cached = (uint32_t)j->num_cached;
  }
}

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

tri_sequence *tri_sched_last_idle(const tri_sched *s, const tri_sequence *q) {
  tri_sequence *last = NULL;
  for (int l = -1; l < s->cfg.num_lanes; l++)
    for (tri_sequence *v = tri_sched_list(s, l)->tail; v; v = v->prev) {
      if (!tri_seq_is_idle(s, v) || !(v->num_blocks + v->num_source_blocks) || !tri_seq_before(s, q, v)) continue;
      if (v->job->search && v->job == q->job) continue;
      if (!last || tri_seq_before(s, last, v)) last = v;
      break; /* a list is in order */
    }
  return last;
}

bool tri_sched_preempt_one(tri_sched *s, const tri_sequence *for_whom) {
  tri_sequence *victim = tri_sched_last_idle(s, for_whom);
  if (victim) tri_sched_preempt(s, victim);
  return victim != NULL;
}

/* Adds `by` to the marks of each block, and returns for how many these then are as many as the references. */
static int mark(const tri_sched *s, const int32_t *blocks, int n, int by) {
  int last = 0;
  for (int i = 0; i < n; i++) {
    s->marks[blocks[i]] += by;
    last += s->marks[blocks[i]] == s->pool.refs[blocks[i]];
  }
  return last;
}

/* Counts the running sequences that matter less than q and are idle, and marks their blocks. *freed: those that nobody
 * else has. */
static int mark_victims(const tri_sched *s, const tri_sequence *q, int by, int *freed) {
  int victims = 0;
  for (int l = -1; l < s->cfg.num_lanes; l++)
    for (const tri_sequence *v = tri_sched_list(s, l)->tail; v && v->job->priority > q->job->priority; v = v->prev) {
      if (!tri_seq_is_idle(s, v)) continue;
      victims++;
      *freed += mark(s, v->blocks, v->num_blocks, by) + mark(s, v->source_blocks, v->num_source_blocks, by);
    }
  return victims;
}

/* Says whether the places of running sequences that matter less than q, and are idle, are enough to let it in. */
static bool could_make_way(const tri_sched *s, const tri_sequence *q) {
  int blocks = 0, none = 0, victims = mark_victims(s, q, 1, &blocks);
  mark_victims(s, q, -1, &none);
  return victims + tri_sched_num_free(s) >= tri_seq_slots(q) && tri_sched_would_find_blocks(s, q, blocks);
}

void tri_sched_make_way(tri_sched *s) {
  const tri_sequence *q = s->waiting.head;
  if (!q || !s->cfg.by_priority || !could_make_way(s, q)) return;
  while (!tri_seq_finds_place(s, q)) {
    tri_sequence *last = tri_sched_last_idle(s, q);
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
  const tri_sequence *last = tri_sched_last_idle(s, q);
  if (!last || last->job->priority <= j->priority) return false;
  *yields = last->job->priority;
  return true;
}
