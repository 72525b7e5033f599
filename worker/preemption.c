/* Preemption: when the KV blocks run out, the running sequence that came last gives its blocks back and is computed
 * again later. */
#include "worker/schedule.h"

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
  }
}

void tri_sched_preempt(tri_sched *s, tri_sequence *q) {
  if (q->job->search) {
    tri_search_preempt(s, q->job);
    return;
  }
  tri_sched_leave(s, q);
  q->state = TRI_SCHED_WAITING;
  q->num_computed = 0;
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
