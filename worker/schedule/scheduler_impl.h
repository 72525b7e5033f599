/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's inside: jobs and their sequences, its state, and what its files do for each other, in the order in
 * which they build on one another. Included by its files and their unit tests alone. */
#ifndef TRI_WORKER_SCHEDULE_SCHEDULER_IMPL_H
#define TRI_WORKER_SCHEDULE_SCHEDULER_IMPL_H

#include "runtime/step/batch.h"
#include "worker/schedule/beam.h"
#include "worker/schedule/block_pool.h"
#include "worker/schedule/scheduler.h"

/* The life of a sequence:
 *
 *   HELD      in no list: waits to be forked from the first choice, or from another beam
 *   WAITING   in s->waiting
 *   RUNNING   has a slot; in s->prompts until its prompt is computed, then in a micro-batch's list
 *   ENDED     in no list, without slot and blocks
 *
 *   HELD -> RUNNING      forked, or the search that it belongs to is let in
 *   HELD -> WAITING      there was no slot to fork it into: it computes the prompt itself
 *   WAITING -> RUNNING   let in (tri_sched_enter)
 *   RUNNING -> WAITING   preempted; of a search the first one, while the others are HELD again
 *   any -> ENDED */
typedef enum tri_seq_state { TRI_SCHED_HELD, TRI_SCHED_WAITING, TRI_SCHED_RUNNING, TRI_SCHED_ENDED } tri_seq_state;

/* One choice of a job, or one beam of its search. Its arrays lie in the job's block of memory.
 *
 *   num_computed <= num_tokens + num_pending: what steps have been composed for is never more than what is known or
 *   will be sampled by them
 *   num_entered * block_size <= num_computed, and num_entered <= num_blocks */
typedef struct tri_sequence {
  struct tri_sequence *next, *prev; /* of the waiting queue or of a micro-batch */
  tri_job *job;
  uint32_t choice;
  tri_seq_state state;
  int slot, micro_batch;
  bool fresh;         /* the slot has not heard of this sequence yet */
  uint64_t since;     /* the step from which on the slot is its own */
  uint64_t last_step; /* with it since then; 0: none */
  int num_tokens;     /* prompt and generated so far */
  int num_pending;    /* samples for it in steps whose results are not there yet */
  int row;            /* of an encoder's, in the answer of the step that ends it */
  int num_computed;   /* tokens with K and V in the cache, the step under way included */
  uint32_t *tokens;   /* [capacity] */
  int32_t *blocks;
  int num_blocks;
  int num_entered;      /* of them, from the first on, whose tokens the prefix cache knows */
  tri_prefix_id prefix; /* that ends with these; where there are any */
  int32_t *host_blocks; /* of one that waits with what it has computed, or is away */
  int num_host_blocks;
  bool swapped;           /* it runs, and its blocks are the host's until its micro-batch's next step */
  bool mask_late;         /* a step has been without it for want of the mask of its next sample */
  bool over;              /* what it came with ends it, which has yet to be told: it is in no list */
  int32_t *source_blocks; /* of an encoder-decoder; else NULL */
  int num_source_blocks;  /* 0: the source has yet to be computed */
  struct tri_sequence
      *fork_of; /* a beam's slot is to become a copy of this one's before its next token; NULL: not so */
} tri_sequence;

typedef struct tri_search {
  tri_beams *beams;
  int seq[TRI_MAX_BEAMS]; /* index of each live beam's sequence */
  const tri_sample_result *sampled[TRI_MAX_BEAMS];
  int num_sampled;
  int answer, sent; /* how far the answers have gone out: this one's token */
} tri_search;

struct tri_job {
  uint64_t id, seed, arrival;
  int64_t priority, deadline_ns; /* TRI_NEVER: none */
  int second_start;              /* number of the first token of the second type, counted from 1; 0: none is */
  char *salt;                    /* of the prefix cache, salt_len bytes */
  size_t salt_len;
  int num_prompt; /* tokens that the answer follows; of an encoder-decoder those that begin every answer */
  int max_tokens, min_tokens, capacity;
  int num_source; /* of an encoder-decoder, else 0 */
  uint32_t *source;
  bool aborted, ignore_eos;
  int num_logprobs;        /* alternatives to each token of the answers; -1: no logprobs */
  int num_prompt_logprobs; /* the same of the prompt's, which the first choice scores */
  bool score_only;         /* the prompt's are all that is wanted: what is sampled after it is not told */
  int num_scored;          /* tokens of the prompt, from its first on, whose logprobs have been told; it has none */
  uint32_t preemptions, preemptions_told; /* of all sequences so far; as of the last entry that named them */
  int64_t came_ns, begun_ns;              /* when it came; when it was first in a step, 0: not yet */
  bool begun_told;
  int num_cached;             /* tokens whose KV blocks were there when it was first in a step */
  int num_choices, num_open;  /* choices not ended */
  int num_over;               /* of them, that are over */
  tri_search *search;         /* NULL: none */
  tri_constraint *constraint; /* NULL: none */
  tri_sample_params params;
  tri_logit_bias *bias; /* the request's, then the model's bad tokens */
  uint32_t *mask;       /* of the params, where the request names the ids that may come */
  uint32_t stop_ids[TRI_MAX_BANNED];
  int num_stop_ids;     /* the model's end-of-sequence ids first */
  tri_sequence *seqs;   /* [num_seqs] */
  int num_seqs;         /* as many as choices, or as beams */
  tri_job *next, *prev; /* of all jobs */
};

typedef struct tri_seq_list {
  tri_sequence *head, *tail;
  int count;
} tri_seq_list;

typedef struct tri_sched_micro_batch {
  tri_seq_list running;             /* those that decode, oldest first */
  int under_way;                    /* steps */
  uint64_t last_step;               /* 0: none yet */
  int num_tied;                     /* running sequences whose next step needs to know the last one's samples */
  int num_paddings, padding_tokens; /* of the step under way: after an encoder's own sequences */
} tri_sched_micro_batch;

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
  tri_seq_list prompts;      /* of running sequences, oldest first: their chunks go with any micro-batch's steps */
  tri_sched_micro_batch *micro_batches;
  tri_sequence **slot_owner;   /* [max_num_seqs]; NULL: free */
  int32_t *marks;              /* [num_blocks] zeros, but for the count of references of some sequences */
  const tri_sequence *blocked; /* the first in the queue, for want of blocks: compared, and never followed */
  uint64_t blocked_at;         /* pool.num_released then */
  int num_running;
  tri_job *jobs, *retired;
  tri_plan_writer *plan; /* of the step that is being composed */
  uint64_t arrivals, tokens, preemptions;
  uint64_t swaps_out, swaps_in, blocks_out, blocks_in; /* sequences and blocks swapped out, and in again */
  int blocks_swapped;                                  /* of the host's, of running sequences */
  int32_t *blocks_read; /* [num_host_blocks] the host's that come in with the step at hand */
  int num_blocks_read;
  uint64_t prefix_queries, prefix_hits; /* see tri_sched_stats */
  uint64_t step;                        /* that is being composed, or was last */
  int budget;                           /* tokens that it still has room for */
  int samples;                          /* likewise samples */
  int num_rows;                         /* of an encoder's answer to the step */
  int prompt_bound;                     /* see tri_sched_bound_prompts */
  int num_decodes;                      /* tokens of decodes in it */
  int expected;   /* sequences that wait elsewhere and may come: what a micro-batch's share is reckoned with */
  uint64_t done;  /* the last step whose result is there: steps of all micro-batches run one after the other */
  int64_t now_ns; /* as of the last reap */
  tri_encoder_batches *batches; /* of an encoder whose batches are not packed; else NULL */
  int enough_tokens;            /* of an encoder's packed step (tri_batch_cost_enough_tokens); 0: as many as fit */
};

static inline int tri_sched_blocks_for(const tri_sched *s, int tokens) {
  return (tokens + s->cfg.limits.block_size - 1) / s->cfg.limits.block_size;
}

/* Returns whether its source has yet to be computed, or to be computed again. */
static inline bool tri_seq_needs_source(const tri_sequence *q) { return q->job->num_source && !q->num_source_blocks; }

/* Returns whether a step with it is under way, or being composed. */
static inline bool tri_seq_in_flight(const tri_sched *s, const tri_sequence *q) {
  return q->state == TRI_SCHED_RUNNING && q->last_step > s->done;
}

static inline bool tri_job_under_way(const tri_sched *s, const tri_job *j) {
  for (int i = 0; i < j->num_seqs; i++)
    if (tri_seq_in_flight(s, &j->seqs[i])) return true;
  return false;
}

/* Returns whether it ends with what is pending. */
static inline bool tri_seq_ends(const tri_sequence *q) {
  return q->num_tokens + q->num_pending - q->job->num_prompt >= q->job->max_tokens;
}

/* Returns whether it may be preempted: it has its blocks, and is in no step under way, or in none that samples for it,
 * or, where a micro-batch's steps run ahead, not in the one that is being composed. One that ends with what is pending
 * may not: its blocks become free with that step, and begun anew it would compute its tokens for nothing. */
static inline bool tri_seq_is_idle(const tri_sched *s, const tri_sequence *q) {
  if (q->swapped) return false;
  if (q->job->search) return !tri_job_under_way(s, q->job);
  bool goes_on = s->cfg.depth > 1 ? !tri_seq_ends(q) : !q->num_pending && !s->cfg.limits.whole_sequences;
  return goes_on ? q->last_step != s->step : !tri_seq_in_flight(s, q);
}

/* Returns whether other choices wait for what it computes. */
static inline bool tri_seq_has_held(const tri_sequence *q) {
  return !q->choice && !q->job->search && q->job->num_choices > 1 && q->job->seqs[1].state == TRI_SCHED_HELD;
}

/* Returns whether it stops one token short of its prompt's end, as a first choice does for others to be forked from it:
 * every choice then samples its own first token. */
static inline bool tri_seq_waits_to_fork(const tri_sequence *q) {
  return tri_seq_has_held(q) && q->job->num_prompt > 1;
}

/* Returns whether it computes tokens of the prompt whose log probabilities are wanted and have not been told: all of
 * them, whatever others or it itself have left. */
static inline bool tri_seq_scores(const tri_sequence *q) {
  const tri_job *j = q->job;
  return !q->choice && j->num_prompt_logprobs >= 0 && j->num_scored < j->num_prompt;
}

/* Returns the number of tokens known and pending. */
static inline int tri_seq_length(const tri_sequence *q) { return q->num_tokens + q->num_pending; }

/* Returns how many slots it takes to let q in: a search takes all of its own at once. */
static inline int tri_seq_slots(const tri_sequence *q) { return q->job->search ? q->job->num_seqs : 1; }

static inline int tri_sched_num_free(const tri_sched *s) { return s->cfg.limits.max_num_seqs - s->num_running; }

/* Returns the list of a micro-batch's running sequences; -1: s->prompts. */
static inline tri_seq_list *tri_sched_list(const tri_sched *s, int micro_batch) {
  return micro_batch < 0 ? (tri_seq_list *)&s->prompts : &s->micro_batches[micro_batch].running;
}

static inline uint64_t tri_job_waited_ns(const tri_job *j) { return (uint64_t)(j->begun_ns - j->came_ns); }

/* Returns whether the next sample of q may be drawn as far as its constraint is concerned. */
static inline bool tri_seq_has_mask(const tri_sequence *q) {
  return !q->job->constraint || tri_constraint_look(q->job->constraint, (int)q->choice) == TRI_MASK_READY;
}

/* ---- job.c ---- */

/* Returns the first sequence that has not ended. */
tri_sequence *tri_job_first(const tri_job *j);
bool tri_job_stops_at(const tri_job *j, uint32_t token);

/* ---- outbox.c ---- */

/* Adds an entry for q, with the number of its next token and what is new of its job. There is room in out. */
tri_replica_token *tri_sched_next_entry(tri_outbox *out, const tri_sequence *q);
/* Adds to an entry what is new of its job since the last one: preemptions, and how long it waited for its first step.
 */
void tri_sched_tell_news(tri_job *j, tri_replica_token *t);

/* ---- sequences.c: lists, slots, and the blocks that a sequence holds ---- */

void tri_seq_list_remove(tri_seq_list *l, tri_sequence *q);
void tri_seq_list_insert(const tri_sched *s, tri_seq_list *l, tri_sequence *q); /* in its order */
/* Returns whether a runs before b: by priority where that counts, then by arrival, then by choice. */
bool tri_seq_before(const tri_sched *s, const tri_sequence *a, const tri_sequence *b);

int tri_sched_free_slot(const tri_sched *s);                         /* -1: none */
void tri_sched_enter(tri_sched *s, tri_sequence *q, int slot);       /* into s->prompts */
void tri_sched_move(tri_sched *s, tri_sequence *q, int micro_batch); /* into that micro-batch's list */
void tri_sched_leave(tri_sched *s, tri_sequence *q);                 /* drops its blocks */

void tri_sched_drop_blocks(tri_sched *s, tri_sequence *q);
void tri_sched_drop_source(tri_sched *s, tri_sequence *q);
/* `to` holds what `from` holds, by reference. */
void tri_sched_share_blocks(tri_sched *s, tri_sequence *to, const tri_sequence *from);
void tri_sched_share_source(tri_sched *s, tri_sequence *to, const tri_sequence *from);
/* q has no blocks of the host any more, and none are kept for it; drop gives them back, too. */
void tri_sched_forget_host_blocks(tri_sched *s, tri_sequence *q);
void tri_sched_drop_host_blocks(tri_sched *s, tri_sequence *q);

void tri_sched_count_preemption(tri_sched *s, tri_job *j);
void tri_sched_end_sequence(tri_sched *s, tri_sequence *q);
void tri_sched_retire_if_done(tri_sched *s, tri_job *j);

/* ---- prefix_reuse.c: blocks that hold what a sequence begins with ---- */

tri_status tri_sched_prefix_open(tri_sched *s);
/* Looks for the blocks of a sequence that has none. At least one of its tokens is left to compute. */
tri_prefix_hit tri_sched_prefix_find(const tri_sched *s, const tri_sequence *q);
/* Gives it these blocks. */
void tri_sched_prefix_take(tri_sched *s, tri_sequence *q);
/* Enters the blocks of q that are full of known tokens, in steps that have been composed. */
void tri_sched_prefix_enter(tri_sched *s, tri_sequence *q);

/* ---- swap.c: KV blocks in the host's memory ---- */

/* Has the step move out what q's blocks hold, where there is room for it and that is predicted to cost less than
 * computing it again. False: q is to be computed again. Not for searches, for sequences with a source, nor for those
 * that share a block. */
bool tri_sched_swap_out(tri_sched *s, tri_sequence *q);
/* Takes blocks, of which there are enough, for what was moved out, and has the step move it there. */
void tri_sched_swap_in(tri_sched *s, tri_sequence *q);
/* Has the step move out the blocks of a running sequence of another micro-batch, which keeps its slot and its sample
 * and gets blocks again in its micro-batch's next step. It is one of the micro-batch that runs last. False: there is
 * none for which that is possible and predicted to cost less than a sequence in flight is worth. */
bool tri_sched_swap_out_one(tri_sched *s);
/* Lets the host's blocks be taken that came in with the step before. */
void tri_sched_end_reads(tri_sched *s);

/* ---- beam_search.c: jobs with a search ---- */

void tri_search_enter(tri_sched *s, tri_job *j); /* there are slots enough */
void tri_search_preempt(tri_sched *s, tri_job *j);
/* Takes what was sampled for one of the beams. */
void tri_search_take(tri_sched *s, tri_sequence *q, const tri_sample_result *sampled);
/* The answers of a search that is done; the end of one that is aborted. False: out is full, call again. */
bool tri_search_deliver(tri_sched *s, tri_job *j, tri_outbox *out);
bool tri_search_end(tri_sched *s, tri_job *j, tri_outbox *out);

/* ---- kv_blocks.c: blocks for sequences, and who gives some up ---- */

/* Returns whether there are blocks for the whole prompt of q, and for its source, in addition to those of its prefix:
 * with fewer it would only push others out and be pushed out again. */
bool tri_sched_finds_blocks(const tri_sched *s, const tri_sequence *q, tri_prefix_hit hit);
/* Returns whether there are slots for all that q takes at once, and blocks. */
bool tri_seq_finds_place(const tri_sched *s, const tri_sequence *q);

/* Puts q back into the queue. Unless it is swapped out, its tokens, the generated ones too, are the prompt of its
 * second computation. A search goes with all of its beams. */
void tri_sched_preempt(tri_sched *s, tri_sequence *q);
/* Preempts the last in order of the running sequences that are idle and come after this one; the beams of a search
 * spare one another. False: there is none. */
bool tri_sched_preempt_one(tri_sched *s, const tri_sequence *for_whom);
/* By priority, the first in the queue takes the places of running sequences that matter less, where that is enough to
 * let it in. */
void tri_sched_make_way(tri_sched *s);

/* Takes blocks for what q has in the host's memory, and has the step move it there. False: there are not enough for
 * that and n more tokens. */
bool tri_sched_secure_swapped(tri_sched *s, tri_sequence *q, int n, bool may_preempt);
/* Blocks for the source of q, all or none. */
bool tri_sched_secure_source(tri_sched *s, tri_sequence *q, bool may_preempt);
/* Blocks for tokens num_computed .. +n-1 of q. *first is the index of the first block that the plan must name. A block
 * that is shared and about to be written is copied. On failure q has the blocks that it had: the plan names only those
 * taken for it, so none may be left over from a plan that did not come. */
bool tri_sched_secure_blocks(tri_sched *s, tri_sequence *q, int n, bool may_preempt, tri_plan_writer *plan, int *first);

/* ---- plan_entries.c: a sequence's part of a step ---- */

/* Returns whether the next step of q is a single token that follows its prompt, in a slot that knows it. */
bool tri_seq_is_decoding(const tri_sequence *q);
/* Returns the tokens of q that are to be computed before it decodes, or before others are forked from it. */
int tri_seq_remaining(const tri_sequence *q);
/* Returns the tokens that the first ones of q cost in addition to themselves: those of its source. */
int tri_seq_source_cost(const tri_sequence *q);
/* Returns how many tokens of q fit into what is left of a step, where `found` of them need not be computed; less than
 * 1: none. A sample follows the last one. */
int tri_sched_fitting(const tri_sched *s, const tri_sequence *q, int found, int budget);
/* Returns whether the plan has room for n tokens of q and what comes before them, so many that its blocks hold
 * included. */
bool tri_sched_has_room(const tri_sched *s, const tri_plan_writer *plan, const tri_sequence *q, int n, int known);
/* Schedules n tokens of q, its source before them where that is due. False when blocks are missing. */
bool tri_sched_schedule(tri_sched *s, tri_plan_writer *plan, tri_sequence *q, int n, bool may_preempt, int *budget);
/* Moves those whose last chunk is in this step to its micro-batch. The beams of a search stay together. */
void tri_sched_settle(tri_sched *s, int micro_batch);
/* Gives the other choices their own slots. They share what it has: the blocks of the prompt, or, where the
 * first token is the whole prompt, those of the source. */
void tri_sched_fork_choices(tri_sched *s, tri_plan_writer *plan, tri_sequence *q);
/* Adds n tokens of q to the plan. whole: an encoder's sequence, of which nothing is sampled. */
void tri_sched_emit(tri_sched *s, tri_plan_writer *plan, tri_sequence *q, int n, int first_block, bool whole);
/* Schedules the next token of every live beam, if there are blocks for all. */
void tri_search_decode(tri_sched *s, tri_plan_writer *plan, tri_job *j, int *budget);

/* ---- admission.c ---- */

/* Returns whether a micro-batch has its share of all sequences. */
bool tri_sched_micro_batch_is_full(const tri_sched *s, int micro_batch);
/* Lets those in that wait, in their order, as far as slots, blocks and the step go. */
void tri_sched_admit_waiting(tri_sched *s, int micro_batch, tri_plan_writer *plan);

/* ---- encoder_batches.c: batches by their cost ---- */

tri_status tri_encoder_batches_create(const tri_sched_config *c, tri_encoder_batches **out);
void tri_encoder_batches_destroy(tri_encoder_batches *b); /* NULL is fine */
/* Puts the next batch into the micro-batch's step. */
void tri_encoder_admit(tri_sched *s, int micro_batch, tri_plan_writer *plan);

#endif
