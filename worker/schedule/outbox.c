/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens and results of a step on their way to the coordinator. */
#include "worker/schedule/scheduler_impl.h"

tri_status tri_outbox_init(tri_outbox *o, int max_num_seqs) {
  /* A step's samples, and as many choices that ended without one. */
  size_t n = 2 * (size_t)max_num_seqs + 64;
  *o = (tri_outbox){.cap = (uint32_t)n};
  o->tokens = tri_calloc(n, sizeof *o->tokens);
  o->top_ids = tri_calloc(n * TRI_MAX_LOGPROBS, sizeof *o->top_ids);
  o->top_logprobs = tri_calloc(n * TRI_MAX_LOGPROBS, sizeof *o->top_logprobs);
  if (o->tokens && o->top_ids && o->top_logprobs) return TRI_OK;
  tri_outbox_free(o);
  return TRI_NO_MEMORY;
}

tri_status tri_outbox_init_results(tri_outbox *o, int max_num_seqs, size_t num_values) {
  TRI_CHECK(tri_outbox_init(o, max_num_seqs));
  o->max_results = (uint32_t)max_num_seqs;
  o->max_values = num_values;
  o->results = tri_calloc(o->max_results, sizeof *o->results);
  o->values = tri_malloc(num_values, sizeof *o->values);
  if (o->results && o->values) return TRI_OK;
  tri_outbox_free(o);
  return TRI_NO_MEMORY;
}

void tri_outbox_free(tri_outbox *o) {
  tri_free(o->results);
  tri_free(o->values);
  tri_free(o->tokens);
  tri_free(o->top_ids);
  tri_free(o->top_logprobs);
  *o = (tri_outbox){0};
}

/* ---- entries ---- */

void tri_sched_tell_news(tri_job *j, tri_replica_token *t) {
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

tri_replica_token *tri_sched_next_entry(tri_outbox *out, const tri_sequence *q) {
  tri_replica_token *t = &out->tokens[out->num++];
  *t = (tri_replica_token){
      .job = q->job->id, .choice = q->choice, .offset = (uint64_t)(q->num_tokens - q->job->num_prompt)};
  tri_sched_tell_news(q->job, t);
  return t;
}
