/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search in the scheduler: one sequence for each beam, all in slots of one micro-batch from admission to the end.
 *
 * The first sequence computes the prompt; from the first sample on all live beams decode together or not at all, so
 * that a step's result has the samples of all of them. Each child of a beam takes its parent's slot, if it is the first
 * one, or that of a beam that has ended, and shares its parent's blocks until it writes to them. */
#include <string.h>

#include "worker/schedule/scheduler_impl.h"

/* Gives up slots, blocks and the position in the queue. */
static void release(tri_sched *s, tri_job *j, tri_seq_state state) {
  for (int i = 0; i < j->num_seqs; i++) {
    tri_sequence *q = &j->seqs[i];
    if (q->state == TRI_SCHED_RUNNING) tri_sched_leave(s, q);
    if (q->state == TRI_SCHED_WAITING) tri_seq_list_remove(&s->waiting, q);
    q->state = state;
    q->num_tokens = j->num_prompt;
    q->num_computed = 0;
    q->fork_of = NULL;
  }
}

/* ---- a step's samples ---- */

/* Gives every beam a sequence: seq[i] is that of beam i afterwards. The first child of a beam keeps its sequence. The
 * others take those whose beams have ended, after these have given their blocks back, and share the parent's; their
 * slots become copies when the next step is composed (fork_of), before the parent's slot gets another token. */
static void assign_beams(tri_sched *s, tri_job *j) {
  tri_search *x = j->search;
  const tri_beams *b = x->beams;
  int next[TRI_MAX_BEAMS], parent[TRI_MAX_BEAMS], unused = 0;
  bool taken[TRI_MAX_BEAMS] = {0};
  for (int i = 0; i < b->num_live; i++) {
    parent[i] = x->seq[b->parent[i]];
    next[i] = taken[parent[i]] ? -1 : parent[i];
    taken[parent[i]] = true;
  }
  for (int k = 0; k < j->num_seqs; k++)
    if (!taken[k]) {
      tri_sched_drop_blocks(s, &j->seqs[k]);
      tri_sched_drop_source(s, &j->seqs[k]);
    }
  for (int i = 0; i < b->num_live; i++) {
    if (next[i] < 0) {
      while (taken[unused]) unused++;
      taken[next[i] = unused] = true;
      tri_sequence *q = &j->seqs[unused];
      q->fork_of = &j->seqs[parent[i]];
      q->num_computed = q->fork_of->num_computed;
      tri_sched_share_blocks(s, q, q->fork_of);
      tri_sched_share_source(s, q, q->fork_of);
    }
    tri_sequence *q = &j->seqs[next[i]];
    memcpy(q->tokens + j->num_prompt, b->beams[i].tokens, (size_t)b->beams[i].length * sizeof *q->tokens);
    q->num_tokens = j->num_prompt + b->beams[i].length;
  }
  memcpy(x->seq, next, (size_t)b->num_live * sizeof *x->seq);
}

void tri_search_take(tri_sched *s, tri_sequence *q, const tri_sample_result *sampled) {
  tri_job *j = q->job;
  tri_search *x = j->search;
  int live = x->beams->num_live;
  for (int i = 0; i < live; i++)
    if (x->seq[i] == (int)q->choice) {
      x->sampled[i] = sampled;
      x->num_sampled++;
    }
  s->tokens++;
  if (x->num_sampled < live) return;
  x->num_sampled = 0;
  tri_beams_advance(x->beams, x->sampled);
  if (x->beams->done)
    release(s, j, TRI_SCHED_ENDED); /* the answers are in the beams' own memory */
  else
    assign_beams(s, j);
}

/* ---- the way in, and back to the queue ---- */

void tri_search_enter(tri_sched *s, tri_job *j) {
  for (int i = 0; i < j->num_seqs; i++) tri_sched_enter(s, &j->seqs[i], tri_sched_free_slot(s));
}

/* The search begins anew: its beams' scores are those of blocks that are gone, and what comes out is the same. */
void tri_search_preempt(tri_sched *s, tri_job *j) {
  release(s, j, TRI_SCHED_HELD);
  tri_beams_reset(j->search->beams);
  j->search->seq[0] = 0;
  j->seqs[0].state = TRI_SCHED_WAITING;
  tri_seq_list_insert(s, &s->waiting, &j->seqs[0]);
  tri_sched_count_preemption(s, j);
}

/* ---- the end ---- */

static tri_replica_token *next_entry(tri_job *j, tri_outbox *out) {
  const tri_search *x = j->search;
  tri_replica_token *t = &out->tokens[out->num++];
  *t = (tri_replica_token){.job = j->id, .choice = (uint32_t)x->answer, .offset = (uint64_t)x->sent};
  tri_sched_tell_news(j, t);
  return t;
}

static void end_answer(tri_job *j, tri_replica_token *t, int flags, tri_finish reason) {
  t->flags |= (uint8_t)(TRI_TOKEN_LAST | flags);
  t->reason = reason;
  j->search->answer++;
  j->search->sent = 0;
  j->num_open--;
}

bool tri_search_deliver(tri_sched *s, tri_job *j, tri_outbox *out) {
  tri_search *x = j->search;
  while (j->num_open) {
    const tri_hypothesis *h = &x->beams->answers[x->answer];
    if (out->num == out->cap) return false;
    tri_replica_token *t = next_entry(j, out);
    if (!h->finished) { /* a vocabulary smaller than the search */
      end_answer(j, t, TRI_TOKEN_NONE, TRI_FINISH_LENGTH);
      continue;
    }
    t->token = h->tokens[x->sent++];
    if (x->sent < h->length) continue;
    bool stop = tri_job_stops_at(j, t->token);
    end_answer(j, t, stop ? TRI_TOKEN_STOP_ID : 0, stop ? TRI_FINISH_STOP : TRI_FINISH_LENGTH);
  }
  tri_sched_retire_if_done(s, j);
  return true;
}

bool tri_search_end(tri_sched *s, tri_job *j, tri_outbox *out) {
  if (tri_job_under_way(s, j)) return true; /* the next call sees to it */
  release(s, j, TRI_SCHED_ENDED);
  while (j->num_open) {
    if (out->num == out->cap) return false;
    end_answer(j, next_entry(j, out), TRI_TOKEN_NONE, TRI_FINISH_ABORT);
  }
  tri_sched_retire_if_done(s, j);
  return true;
}
