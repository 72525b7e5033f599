/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of jobs that no draw brings: aborted ones, those past their deadline, and choices that came with all of
 * their tokens. */
#include "worker/schedule/scheduler_impl.h"

tri_group_token *tri_sched_next_entry(tri_outbox *out, const tri_sequence *q) {
  tri_group_token *t = &out->tokens[out->num++];
  *t = (tri_group_token){
      .job = q->job->id, .choice = q->choice, .offset = (uint64_t)(q->num_tokens - q->job->num_prompt)};
  tri_sched_tell_news(q->job, t);
  return t;
}

/* Tells the ends of choices that came with all of their tokens. False when out is full. */
static bool end_over(tri_sched *s, tri_job *j, tri_outbox *out) {
  for (int i = 0; i < j->num_choices; i++) {
    tri_sequence *q = &j->seqs[i];
    if (!q->over) continue;
    if (out->num == out->cap) return false;
    tri_group_token *t = tri_sched_next_entry(out, q);
    t->flags |= TRI_TOKEN_LAST | TRI_TOKEN_NONE;
    t->reason = tri_job_stops_at(j, q->tokens[q->num_tokens - 1]) ? TRI_FINISH_STOP : TRI_FINISH_LENGTH;
    q->over = false;
    j->num_over--;
    j->num_open--;
  }
  tri_sched_retire_if_done(s, j);
  return true;
}

/* Ends the choices of a job that are not under way. False when out is full. */
static bool end_job(tri_sched *s, tri_job *j, tri_outbox *out) {
  if (j->search) return tri_search_end(s, j, out);
  for (int i = 0; i < j->num_choices; i++) {
    tri_sequence *q = &j->seqs[i];
    if (q->state == TRI_SCHED_ENDED || tri_seq_in_flight(s, q)) continue;
    if (out->num == out->cap) return false;
    tri_group_token *t = tri_sched_next_entry(out, q);
    t->flags |= TRI_TOKEN_LAST | TRI_TOKEN_NONE;
    t->reason = TRI_FINISH_ABORT;
    tri_sched_end_sequence(s, q);
  }
  tri_sched_retire_if_done(s, j);
  return true;
}

bool tri_sched_reap(tri_sched *s, int64_t now_ns, tri_outbox *out) {
  s->now_ns = now_ns;
  for (tri_job *j = s->jobs, *next; j; j = next) {
    next = j->next;
    if (now_ns >= j->deadline_ns) j->aborted = true;
    if (j->num_over) {
      bool all = j->num_over == j->num_open;
      if (!end_over(s, j, out)) return false;
      if (all) continue; /* it is among the retired now */
    }
    if (j->aborted && !end_job(s, j, out)) return false;
    if (!j->aborted && j->search && j->search->beams->done && !tri_search_deliver(s, j, out)) return false;
  }
  return true;
}

bool tri_sched_abort(tri_sched *s, uint64_t job_id) {
  for (tri_job *j = s->jobs; j; j = j->next)
    if (j->id == job_id) {
      j->aborted = true;
      return true;
    }
  return false;
}

void tri_sched_abort_all(tri_sched *s) {
  for (tri_job *j = s->jobs; j; j = j->next) j->aborted = true;
}

tri_job *tri_sched_retired(tri_sched *s) {
  tri_job *j = s->retired;
  if (j) s->retired = j->next;
  return j;
}
