/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's state, and the lists, slots and blocks that all of its files move (schedule_blocks.c). */
#ifndef TRI_WORKER_SCHEDULE_SCHEDULER_IMPL_H
#define TRI_WORKER_SCHEDULE_SCHEDULER_IMPL_H

#include "worker/schedule/scheduler.h"

typedef struct tri_seq_list {
  tri_sequence *head, *tail;
  int count;
} tri_seq_list;

typedef struct tri_sched_lane {
  tri_seq_list running;             /* those that decode, oldest first */
  int under_way;                    /* steps */
  uint64_t last_step;               /* 0: none yet */
  int num_tied;                     /* running sequences whose next step needs to know the last one's draws */
  int num_paddings, padding_tokens; /* of the step under way: sequences of nobody behind an encoder's own */
} tri_sched_lane;

typedef struct tri_encoder_batches tri_encoder_batches;

/* Blocks of the prefix cache that hold what a sequence begins with. */
typedef struct tri_prefix_hit {
  int blocks; /* full ones */
  int idle;   /* of them, that have no owner */
} tri_prefix_hit;

struct tri_sched {
  tri_sched_config cfg;
  tri_block_pool pool, host; /* host: blocks in the host's memory */
  tri_seq_list waiting;      /* by (priority, arrival) */
  tri_seq_list prompts;      /* of running sequences, oldest first: their chunks go with any lane's steps */
  tri_sched_lane *lanes;
  tri_sequence **slot_owner;   /* [max_num_seqs]; NULL: free */
  int32_t *marks;              /* [num_blocks] zeros, but for the count of references of some sequences */
  const tri_sequence *blocked; /* the first in the queue, for want of blocks: compared, and never followed */
  uint64_t blocked_at;         /* pool.num_released then */
  int num_running;
  int batch_size; /* with whole_batches: sequences that the batch at hand has had, or all slots once it is closed */
  tri_job *jobs, *retired;
  tri_plan_writer *plan; /* of the step that is being composed */
  uint64_t arrivals, tokens, preemptions;
  uint64_t swaps_out, swaps_in, blocks_out,
      blocks_in;        /* sequences and blocks that have left for there, and come back */
  int blocks_away;      /* of the host's, of running sequences */
  int32_t *blocks_read; /* [num_host_blocks] the host's that come in with the step at hand */
  int num_blocks_read;
  uint64_t prefix_queries, prefix_hits; /* see tri_sched_stats */
  uint64_t step;                        /* that is being composed, or was last */
  int budget;                           /* tokens that it still has room for */
  int draws;                            /* likewise draws */
  int expected;   /* sequences that wait elsewhere and may come: what a lane's share is reckoned with */
  uint64_t done;  /* the last step whose result has come back: steps of all lanes run one behind the other */
  int64_t now_ns; /* as of the last reap */
  tri_encoder_batches *batches; /* of an encoder whose batches are not packed; else NULL */
  int enough_tokens;            /* of an encoder's packed step (tri_batch_cost_enough_tokens); 0: as many as fit */
};

static inline int tri_sched_blocks_for(const tri_sched *s, int tokens) {
  return (tokens + s->cfg.limits.block_size - 1) / s->cfg.limits.block_size;
}

/* Its source has yet to be computed, or to be computed again. */
static inline bool tri_seq_needs_source(const tri_sequence *q) { return q->job->num_source && !q->num_source_blocks; }

/* A step with it is under way, or being composed. */
static inline bool tri_seq_in_flight(const tri_sched *s, const tri_sequence *q) {
  return q->state == TRI_SCHED_RUNNING && q->last_step > s->done;
}

static inline bool tri_job_under_way(const tri_sched *s, const tri_job *j) {
  for (int i = 0; i < j->num_seqs; i++)
    if (tri_seq_in_flight(s, &j->seqs[i])) return true;
  return false;
}

/* With what is pending. */
static inline bool tri_seq_ends(const tri_sequence *q) {
  return q->num_tokens + q->num_pending - q->job->num_prompt >= q->job->max_tokens;
}

/* May be preempted: it has its blocks, and is in no step under way, or in none that draws for it, or, where a lane's
 * steps run ahead, not in the one that is being composed. One that ends with what is pending may not: its blocks come
 * back with that step, and begun anew it would compute its tokens for nothing. */
static inline bool tri_seq_is_idle(const tri_sched *s, const tri_sequence *q) {
  if (q->away) return false;
  if (q->job->search) return !tri_job_under_way(s, q->job);
  bool goes_on = s->cfg.depth > 1 ? !tri_seq_ends(q) : !q->num_pending && !s->cfg.limits.whole_sequences;
  return goes_on ? q->last_step != s->step : !tri_seq_in_flight(s, q);
}

/* Other choices wait for what it computes. */
static inline bool tri_seq_has_held(const tri_sequence *q) {
  return !q->choice && !q->job->search && q->job->num_choices > 1 && q->job->seqs[1].state == TRI_SCHED_HELD;
}

/* The first choice stops one token short of its prompt's end, so that every choice can draw its own first token. */
static inline bool tri_seq_waits_to_fork(const tri_sequence *q) {
  return tri_seq_has_held(q) && q->job->num_prompt > 1;
}

/* Computes tokens of the prompt whose log probabilities are wanted and have not been told: all of them, whatever others
 * or it itself have left. */
static inline bool tri_seq_scores(const tri_sequence *q) {
  const tri_job *j = q->job;
  return !q->choice && j->num_prompt_logprobs >= 0 && j->num_scored < j->num_prompt;
}

/* Tokens known and pending. */
static inline int tri_seq_length(const tri_sequence *q) { return q->num_tokens + q->num_pending; }

/* How many slots it takes to let q in: a search takes all of its own at once. */
static inline int tri_seq_slots(const tri_sequence *q) { return q->job->search ? q->job->num_seqs : 1; }

void tri_seq_list_remove(tri_seq_list *l, tri_sequence *q);
void tri_seq_list_insert(const tri_sched *s, tri_seq_list *l, tri_sequence *q); /* in its order */
bool tri_seq_before(const tri_sched *s, const tri_sequence *a, const tri_sequence *b);

static inline int tri_sched_num_free(const tri_sched *s) { return s->cfg.limits.max_num_seqs - s->num_running; }
int tri_sched_free_slot(const tri_sched *s);                   /* -1: none */
void tri_sched_enter(tri_sched *s, tri_sequence *q, int slot); /* into s->prompts */
void tri_sched_move(tri_sched *s, tri_sequence *q, int lane);  /* into that lane's list */
void tri_sched_leave(tri_sched *s, tri_sequence *q);           /* drops its blocks */
/* The lists of running sequences, by lane; -1: s->prompts. */
static inline tri_seq_list *tri_sched_list(const tri_sched *s, int lane) {
  return lane < 0 ? (tri_seq_list *)&s->prompts : &s->lanes[lane].running;
}

/* ---- scheduler.c: tri_sched_compose in parts, for those who compose a step on several shards ---- */

bool tri_sched_lane_has_any(const tri_sched *s, int lane); /* sequences that could be in its next step */
bool tri_sched_lane_is_tied(const tri_sched *s, int lane); /* that step needs to know the last one's draws */
void tri_sched_begin_step(tri_sched *s, int lane, uint64_t step, tri_plan_writer *plan);
void tri_sched_run(tri_sched *s, int lane, tri_plan_writer *plan);   /* those that run already */
void tri_sched_admit(tri_sched *s, int lane, tri_plan_writer *plan); /* those that wait, as often as jobs come */
/* False: nobody is in the step, and no result of it is taken in. */
bool tri_sched_end_step(tri_sched *s, int lane, const tri_plan_writer *plan);

/* A job that comes in this step would go with it, as far as slots and blocks go, and nobody is in front of it. */
bool tri_sched_has_place(const tri_sched *s, const tri_job *j);
/* Tokens in the cache, and those of prompts that are still to be computed. A prompt that choices share counts for each
 * of them: attention reads it for each. */
int64_t tri_sched_load(const tri_sched *s);

/* ---- preemption.c ---- */

/* Puts q back into the queue. Unless it is swapped out, its tokens, the generated ones too, are the prompt of its
 * second computation. A search goes with all of its beams. */
void tri_sched_preempt(tri_sched *s, tri_sequence *q);
/* The last in order of the running sequences that are idle (above) and come after q; NULL when there is none. The
 * beams of a search spare one another. */
tri_sequence *tri_sched_last_idle(const tri_sched *s, const tri_sequence *q);
bool tri_sched_preempt_one(tri_sched *s, const tri_sequence *for_whom);
/* By priority, the first in the queue takes the places of running sequences that matter less, where that is enough to
 * let it in. */
void tri_sched_make_way(tri_sched *s);
/* Says whether that would let a job in that is not in the queue yet, with nobody in front of it there. *yields: the
 * priority of who would go first, INT64_MAX where nobody has to. */
bool tri_sched_would_make_way(const tri_sched *s, const tri_job *j, int64_t *yields);
void tri_sched_count_preemption(tri_sched *s, tri_job *j);
/* Adds to an entry what is new of its job since the last one: preemptions, and how long it waited for its first step.
 */
void tri_sched_tell_news(tri_job *j, tri_group_token *t);
static inline uint64_t tri_job_waited_ns(const tri_job *j) { return (uint64_t)(j->begun_ns - j->came_ns); }

/* ---- swap.c: KV blocks in the host's memory ---- */

/* Has the step move out what q's blocks hold, where there is room for it and that is predicted to cost less than
 * computing it again. False: q is to be computed again. Not for searches, for sequences with a source, nor for those
 * that share a block. */
bool tri_sched_swap_out(tri_sched *s, tri_sequence *q);
/* Takes blocks for what was moved out, and has the step move it there. False: there are not enough for that and n more
 * tokens. */
bool tri_sched_swap_in(tri_sched *s, tri_sequence *q, int n, bool may_preempt);
void tri_sched_drop_host_blocks(tri_sched *s, tri_sequence *q);
/* Has the step move out the blocks of a running sequence of another lane, which keeps its slot and its draw and gets
 * blocks again in its lane's next step. It is one of the lane that runs last. False: there is none for which that is
 * possible and predicted to cost less than a sequence in flight is worth. */
bool tri_sched_send_away(tri_sched *s);
/* Lets the host's blocks be taken that came in with the step before. */
void tri_sched_end_reads(tri_sched *s);

/* ---- schedule_prefix.c: blocks that hold what a sequence begins with ---- */

tri_status tri_sched_prefix_open(tri_sched *s);
/* Looks for the blocks of a sequence that has none. At least one of its tokens is left to compute. */
tri_prefix_hit tri_sched_prefix_find(const tri_sched *s, const tri_sequence *q);
/* Gives it these blocks. */
void tri_sched_prefix_take(tri_sched *s, tri_sequence *q);
/* Enters the blocks of q that are full of known tokens, in steps that have been composed. */
void tri_sched_prefix_enter(tri_sched *s, tri_sequence *q);

/* ---- schedule_blocks.c: blocks ---- */

void tri_sched_drop_blocks(tri_sched *s, tri_sequence *q);
void tri_sched_drop_source(tri_sched *s, tri_sequence *q);
/* `to` holds what `from` holds, by reference. */
void tri_sched_share_blocks(tri_sched *s, tri_sequence *to, const tri_sequence *from);
void tri_sched_share_source(tri_sched *s, tri_sequence *to, const tri_sequence *from);
/* Has a sequence of another lane leave, or one that comes after q give its blocks back. False: there is none. */
bool tri_sched_make_room(tri_sched *s, const tri_sequence *q);
/* Blocks for the source of q, all or none. */
bool tri_sched_secure_source(tri_sched *s, tri_sequence *q, bool may_preempt);
/* Blocks for tokens num_computed .. +n-1 of q. *first is the index of the first block that the plan must name. A block
 * that is shared and about to be written is copied. On failure q has the blocks that it had: the plan names only those
 * taken for it, so none may be left over from a plan that did not come. */
bool tri_sched_secure_blocks(tri_sched *s, tri_sequence *q, int n, bool may_preempt, tri_plan_writer *plan, int *first);

/* The whole prompt, with its source, must find blocks beside those of its prefix that are there, or it would only push
 * others out and be pushed out again. */
bool tri_sched_finds_blocks(const tri_sched *s, const tri_sequence *q, tri_prefix_hit hit);
/* The same without a prefix, where so many more could become free. */
bool tri_sched_would_find_blocks(const tri_sched *s, const tri_sequence *q, int more);
/* Slots for all that q takes at once, and blocks. */
bool tri_seq_finds_place(const tri_sched *s, const tri_sequence *q);

/* Adds n tokens of q to the plan. whole: an encoder's sequence, of which nothing is drawn. */
void tri_sched_emit(tri_sched *s, tri_plan_writer *plan, tri_sequence *q, int n, int first_block, bool whole);
bool tri_job_stops_at(const tri_job *j, uint32_t token);

/* ---- schedule_ends.c ---- */

/* Adds an entry for q, with the number of its next token and what is new of its job. There is room in out. */
tri_group_token *tri_sched_next_entry(tri_outbox *out, const tri_sequence *q);

void tri_sched_end_sequence(tri_sched *s, tri_sequence *q);
void tri_sched_retire_if_done(tri_sched *s, tri_job *j);

/* ---- encoder_batches.c: batches by their cost ---- */

tri_status tri_encoder_batches_create(const tri_sched_config *c, tri_encoder_batches **out);
void tri_encoder_batches_destroy(tri_encoder_batches *b); /* NULL is fine */
/* Puts the next batch into the lane's step. */
void tri_encoder_admit(tri_sched *s, int lane, tri_plan_writer *plan);

/* ---- beam_schedule.c: jobs with a search ---- */

void tri_search_enter(tri_sched *s, tri_job *j);  /* there are slots enough */
bool tri_search_in_prompt(const tri_sequence *q); /* q is the sequence that computes it, and has not drawn */
/* The next token of every live beam, if there are blocks for all. */
void tri_search_decode(tri_sched *s, tri_plan_writer *plan, tri_job *j, int *budget);
void tri_search_preempt(tri_sched *s, tri_job *j);
/* Takes what was drawn for one of the beams. */
void tri_search_take(tri_sched *s, tri_sequence *q, const tri_sample_result *drawn);
/* The answers of a search that is done; the end of one that is aborted. False: out is full, call again. */
bool tri_search_deliver(tri_sched *s, tri_job *j, tri_outbox *out);
bool tri_search_end(tri_sched *s, tri_job *j, tri_outbox *out);

#endif
