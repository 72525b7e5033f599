/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs get what a step has produced: tokens that were sampled, log probabilities of prompts, or an encoder's rows.
 * They also learn of ends that no sample brings: of aborted jobs, of those past their deadline, and of choices that
 * came with all of their tokens. */
#include <string.h>

#include "worker/schedule/scheduler_impl.h"

/* ---- tokens ---- */

/* num_top: the alternatives of r that are wanted; r has those of the answer or of the prompt, whichever are more. */
static void report_logprobs(tri_outbox *out, tri_replica_token *t, const tri_sample_result *r, int num_top) {
  size_t at = (size_t)(t - out->tokens) * TRI_MAX_LOGPROBS;
  t->flags |= TRI_TOKEN_LOGPROB;
  t->logprob = r->logprob;
  t->num_top = num_top < r->num_top ? num_top : r->num_top;
  memcpy(out->top_ids + at, r->top_ids, (size_t)t->num_top * sizeof *r->top_ids);
  memcpy(out->top_logprobs + at, r->top_logprobs, (size_t)t->num_top * sizeof *r->top_logprobs);
  t->top_ids = out->top_ids + at;
  t->top_logprobs = out->top_logprobs + at;
}

/* Reports the logprob of a prompt's token. After a preemption the prompt is computed again with its scores:
 * those below num_scored are dropped. */
static void take_score(tri_sequence *q, const tri_step_token *scored, tri_outbox *out) {
  tri_job *j = q->job;
  if (scored->scored != (uint32_t)j->num_scored) return;
  tri_replica_token *t = tri_sched_next_entry(out, q);
  t->flags |= TRI_TOKEN_PROMPT;
  t->offset = scored->scored;
  t->token = scored->sample.token;
  report_logprobs(out, t, &scored->sample, j->num_prompt_logprobs);
  j->num_scored++;
}

static void take_token(tri_sched *s, tri_sequence *q, const tri_sample_result *r, tri_outbox *out) {
  tri_job *j = q->job;
  tri_replica_token *t = tri_sched_next_entry(out, q);
  t->token = r->token;
  if (j->num_logprobs >= 0) report_logprobs(out, t, r, j->num_logprobs);
  if (q->num_tokens < j->capacity) q->tokens[q->num_tokens] = r->token;
  q->num_tokens++;
  s->tokens++;
  tri_sched_prefix_enter(s, q);
  int generated = q->num_tokens - j->num_prompt;
  bool stop = !j->score_only && tri_job_stops_at(j, r->token);
  if (!stop && generated < j->max_tokens) {
    if (j->constraint) tri_constraint_take(j->constraint, (int)q->choice, r->token);
    q->mask_late = false;
    return;
  }
  t->flags |= TRI_TOKEN_LAST | (stop ? TRI_TOKEN_STOP_ID : 0);
  if (j->score_only) t->flags |= TRI_TOKEN_NONE;
  t->reason = stop ? TRI_FINISH_STOP : TRI_FINISH_LENGTH;
  tri_sched_end_sequence(s, q);
  tri_sched_retire_if_done(s, j);
}

/* Ends a job of which nothing more can come. Choices that are under way end as those of an aborted one. */
static void give_up(tri_sequence *q, tri_token_error why, tri_outbox *out) {
  tri_replica_token *t = tri_sched_next_entry(out, q);
  t->flags |= TRI_TOKEN_NONE;
  t->token = why;
  t->reason = TRI_FINISH_ERROR;
  q->job->aborted = true;
}

void tri_sched_absorb(tri_sched *s, int micro_batch_index, const tri_step_result *result, tri_outbox *out) {
  tri_sched_micro_batch *micro_batch = &s->micro_batches[micro_batch_index];
  micro_batch->under_way--;
  s->done = out->step = result->step;
  for (uint32_t i = 0; i < result->num_tokens; i++) {
    const tri_step_token *t = &result->tokens[i];
    tri_sequence *q = t->slot < (uint32_t)s->cfg.limits.max_num_seqs ? s->slot_owner[t->slot] : NULL;
    /* A step may have been composed before its slot went to another sequence. */
    if (!q || q->since > result->step) continue;
    if (!t->scored) q->num_pending--;
    if (q->job->aborted) continue;
    if (t->sample.broken && out->num < out->cap)
      give_up(q, TRI_TOKEN_NO_NUMBERS, out);
    else if (q->job->search)
      tri_search_take(s, q, &t->sample);
    else if (out->num < out->cap && t->scored)
      take_score(q, t, out);
    else if (out->num < out->cap)
      take_token(s, q, &t->sample, out);
  }
}

/* ---- an encoder's rows ---- */

static void take_rows(tri_sched *s, tri_sequence *q, const tri_mat *m, int row, int rows, tri_outbox *out) {
  size_t width = (size_t)m->cols, n = (size_t)rows * width;
  float *to = out->values + out->num_values;
  for (int i = 0; i < rows; i++)
    memcpy(to + (size_t)i * width, m->data + (size_t)(row + i) * (size_t)m->ld, width * sizeof *to);
  out->results[out->num_results++] =
      (tri_replica_result){.job = q->job->id, .waited_ns = tri_job_waited_ns(q->job), .values = to, .num_values = n};
  out->num_values += n;
  s->tokens += (uint64_t)q->num_tokens;
  tri_sched_end_sequence(s, q);
  tri_sched_retire_if_done(s, q->job);
}

/* Rows are in the order in which the plan took sequences, those of tokens one sequence after the other. Those of
 * aborted jobs stay until the next reap ends them; those whose prompt has more tokens have none. */
tri_status tri_sched_absorb_embed(tri_sched *s, int micro_batch_index, const tri_embed_result *r, bool by_token,
                                  tri_outbox *out) {
  tri_sched_micro_batch *micro_batch = &s->micro_batches[micro_batch_index];
  int row = 0, padding = by_token ? micro_batch->padding_tokens : micro_batch->num_paddings; /* rows after all others */
  micro_batch->under_way--;
  micro_batch->num_paddings = micro_batch->padding_tokens = 0;
  out->step = r->step;
  for (tri_sequence *q = micro_batch->running.head, *next; q; q = next) {
    next = q->next;
    if (!tri_seq_in_flight(s, q)) continue;
    int rows = by_token ? q->num_tokens : 1, at = by_token ? row : q->row;
    q->num_pending = 0;
    size_t n = (size_t)rows * (size_t)r->values.cols;
    if (rows > r->values.rows - padding - at || out->num_results == out->max_results ||
        n > out->max_values - out->num_values)
      return TRI_CORRUPT;
    if (!q->job->aborted) take_rows(s, q, &r->values, at, rows, out);
    row += rows;
  }
  s->done = r->step;
  return row + padding == r->values.rows ? TRI_OK : TRI_CORRUPT;
}

/* ---- ends that no sample brings ---- */

/* Reports the ends of choices that came with all of their tokens. False when out is full. */
static bool end_over(tri_sched *s, tri_job *j, tri_outbox *out) {
  for (int i = 0; i < j->num_choices; i++) {
    tri_sequence *q = &j->seqs[i];
    if (!q->over) continue;
    if (out->num == out->cap) return false;
    tri_replica_token *t = tri_sched_next_entry(out, q);
    t->flags |= TRI_TOKEN_LAST | TRI_TOKEN_NONE;
    t->reason = tri_job_stops_at(j, q->tokens[q->num_tokens - 1]) ? TRI_FINISH_STOP : TRI_FINISH_LENGTH;
    q->over = false;
    j->num_over--;
    j->num_open--;
  }
  tri_sched_retire_if_done(s, j);
  return true;
}

/* Ends the choices of a job to which its constraint lets no token be added: those that are whole, or else all. False
 * when out is full. */
static bool end_constrained(tri_sched *s, tri_job *j, tri_outbox *out) {
  for (int i = 0; i < j->num_choices && !j->aborted; i++) {
    tri_sequence *q = &j->seqs[i];
    if (q->state == TRI_SCHED_ENDED || tri_seq_in_flight(s, q)) continue;
    tri_mask_state state = tri_constraint_look(j->constraint, i);
    if (state != TRI_MASK_WHOLE && state != TRI_MASK_NONE) continue;
    if (out->num == out->cap) return false;
    if (state == TRI_MASK_NONE) {
      give_up(q, TRI_TOKEN_NO_OTHER, out);
      continue;
    }
    tri_replica_token *t = tri_sched_next_entry(out, q);
    t->flags |= TRI_TOKEN_LAST | TRI_TOKEN_NONE;
    t->reason = TRI_FINISH_STOP;
    tri_sched_end_sequence(s, q);
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
    tri_replica_token *t = tri_sched_next_entry(out, q);
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
    if (j->constraint && tri_constraint_num_over(j->constraint)) {
      if (!end_constrained(s, j, out)) return false;
      if (!j->num_open) continue;
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
