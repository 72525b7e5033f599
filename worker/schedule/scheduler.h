/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's scheduler: which sequences run in the next step of a micro-batch, and what their tokens mean.
 *
 * Iteration-level scheduling (Orca, Yu et al. 2022, section 3.1): every step chooses again. Decodes come first, one
 * token each; chunks of prompts fill what is left of the token budget (chunked prefill, Sarathi, Agrawal et al. 2023).
 * KV blocks are taken as they are needed; when they run out, the running sequence that came last gives its blocks back
 * and is computed again later; or what they hold waits in blocks of the host's memory (tri_limits.num_host_blocks), if
 * that is predicted to cost less. A step's plan then has moves before its tokens, so that blocks are free, and
 * sequences run, as soon as it is composed: steps run one after the other. With several micro-batches, sequences of one
 * whose step is not the one that is composed may be away from their blocks until it is, and keep their slots (swap.c).
 *
 * Encoders (tri_limits.whole_sequences) need less of it: a sequence is taken whole, in the order of the queue, when all
 * of its tokens and blocks fit into the step; it has its blocks for that step alone, and its result ends it. Or batches
 * are chosen by what they cost (tri_sched_config.encoder_batching).
 *
 * With encoder-decoders (tri_limits.has_source) a job's prompt is its source: it is computed whole in the step in which
 * the first tokens of the answer are computed, and has blocks of its own for as long as the answer grows.
 *
 * Prompts and decodes have micro-batches of their own sizes (hybrid scheduling, DeepSpeed-Inference, Aminabadi et al.
 * 2022, section IV.C.1). A sequence that decodes belongs to a micro-batch, of which there are as many as stages: more
 * would read the weights more often. A prompt belongs to none: until its last chunk nothing is sampled, so the next
 * chunk goes with the next micro-batch that is free, however many steps have others of its chunks, and the stages work
 * on several of them at a time. Its last chunk's micro-batch keeps it. Ranks run the steps of all micro-batches in the
 * order in which they are composed.
 *
 * With a depth of 2 a micro-batch's next step is composed before the tokens of the one under way are known: a sequence
 * whose sample is pending continues with whatever it samples (TRI_SEQ_FLAG_TOKEN_IN_SLOT). Should that end the
 * sequence, what the next step does for it is for nothing and its sample is dropped; its slot and blocks may be given
 * away at once, as steps run one after the other. Only what the sampler or a search must know of the sampled tokens
 * keeps a micro-batch's steps apart.
 *
 * A job with a beam search has a sequence for each beam (beam_search.c); its answers go out when the search is done.
 *
 * A job that another replica had begun, which was lost, comes with the tokens that were sampled of its choices
 * (tri_replica_assign.drawn). Each of them is then like a sequence that was preempted: its tokens are the prompt of its
 * computation, and its next sample has the number that it would have had.
 *
 * Full blocks are kept when their sequences have let go of them, and a sequence that begins with the same tokens
 * continues after them (prefix_reuse.c). Ranks run steps in their order, so that a block may be shared as soon as the
 * step that fills it is composed.
 *
 * No threads, clocks or sockets here: the caller passes the time. Nothing allocates but tri_job_create. */
#ifndef TRI_WORKER_SCHEDULE_SCHEDULER_H
#define TRI_WORKER_SCHEDULE_SCHEDULER_H

#include "comm/wire/replica.h"
#include "worker/schedule/batch_cost.h"
#include "worker/schedule/constraint.h"
#include "worker/schedule/prefix_cache.h"
#include "worker/schedule/prompt_bound.h"
#include "runtime/engine/embed_result.h"
#include "runtime/model/config.h"
#include "runtime/step/step_plan.h"

/* A request that the replica computes, with all of its choices or beams. */
typedef struct tri_job tri_job;

/* Returns how many tokens of prompts a step takes, where so many were asked for; 0: as many as fit. A step of several
 * stages takes what docs/performance.md has measured to be best, or as many as hide its streamed weights (tri_engine's
 * hiding_tokens): fewer would have all stages wait for their disks. */
static inline int tri_sched_prompt_tokens(int asked, int num_micro_batches, bool device, int hiding_tokens) {
  enum { HOST_PROMPT_TOKENS = 256, DEVICE_PROMPT_TOKENS = 2048 };
  int usual = device ? DEVICE_PROMPT_TOKENS : HOST_PROMPT_TOKENS;
  if (asked || num_micro_batches == 1) return asked;
  return hiding_tokens > usual ? hiding_tokens : usual;
}

/* Seconds, as predicted, by which a sequence that gives its blocks back is swapped out or computed again. Zeros: it is
 * swapped wherever there is room. */
typedef struct tri_swap_cost {
  double block_s;  /* of a block's way out and in again */
  double token_s;  /* of a token that is computed again, */
  int free_tokens; /* beyond so many that steps have room for while they wait for their weights */
  double decode_s; /* of a stage's step, for each of the sequences that are in flight with full caches */
} tri_swap_cost;

/* The prefix cache (prefix_cache.h), and what a token's keys depend on in addition to the tokens before it: the length
 * of its prompt, where a rotary scaling goes by that. */
typedef struct tri_sched_prefixes {
  tri_sip_key key;       /* secret */
  tri_prefix_hash *hash; /* NULL: SipHash */
  tri_rope_kind rope;
  int original_len; /* with DYNAMIC and BY_LENGTH: prompts of up to so many tokens are alike */
} tri_sched_prefixes;

/* Draws the key, and takes over what the model says. */
tri_status tri_sched_prefixes_make(const tri_model_config *model, tri_sched_prefixes *out);

typedef struct tri_sched_config {
  tri_limits limits;
  int num_micro_batches;
  int depth; /* steps of a micro-batch that may be under way at a time: 0 or 1, or 2 where each runs after the last */
  int prompt_tokens; /* in one step; 0, or where prompts go in one piece: as many as fit */
  tri_swap_cost swap_cost;
  tri_sched_prefixes prefixes;           /* with tri_limits.prefix_caching */
  bool by_priority;                      /* else first come, first served */
  tri_encoder_batching encoder_batching; /* of whole sequences */
  int64_t latency_limit_ns;              /* DP_LAZY: of a request */
} tri_sched_config;

/* Tokens of one step on their way to the coordinator. The alternatives' arrays point into top_*. */
typedef struct tri_outbox {
  uint64_t step;
  uint32_t num, cap;
  tri_replica_token *tokens;
  uint32_t *top_ids;
  float *top_logprobs;
  /* of an encoder: results, whose numbers follow each other in values */
  uint32_t num_results, max_results;
  uint32_t num_sent; /* of them */
  tri_replica_result *results;
  float *values;
  size_t num_values, max_values;
} tri_outbox;
tri_status tri_outbox_init(tri_outbox *o, int max_num_seqs);
/* Room for an encoder's results as well: so many numbers at most in one step. */
tri_status tri_outbox_init_results(tri_outbox *o, int max_num_seqs, size_t num_values);
void tri_outbox_free(tri_outbox *o);

typedef struct tri_sched_stats {
  uint32_t running, waiting;
  uint64_t blocks_used, tokens, preemptions;
  uint64_t host_blocks_used;                           /* by sequences that wait */
  uint64_t swaps_out, swaps_in, blocks_out, blocks_in; /* sequences and blocks so far */
  /* The prefix cache's, so far: tokens of sequences that came for the first time, those of them whose blocks were
   * there, and blocks that left it for others. */
  uint64_t prefix_queries, prefix_hits, prefix_evictions;
} tri_sched_stats;

typedef struct tri_sched tri_sched;

tri_status tri_sched_create(const tri_sched_config *config, tri_sched **out);
void tri_sched_destroy(tri_sched *s); /* with the jobs that it still holds; NULL is fine */
/* Takes over what an encoder's batches cost, between two steps. Packed ones then have no more tokens than it takes to
 * make a token as cheap as can be, so that no request waits for what gains nothing. */
void tri_sched_set_batch_cost(tri_sched *s, const tri_batch_cost *c);

/* The part of the model that every job must know. */
typedef struct tri_job_model {
  const uint32_t *eos, *bad; /* ids that end an answer; that never come. Borrowed */
  int num_eos, num_bad;
  uint32_t start[2]; /* of an encoder-decoder: what every answer begins with, unsaid */
  int num_start;
  tri_grammar_source *grammars; /* of constrained answers; NULL: there can be none */
  tri_mask_maker *maker;
} tri_job_model;
tri_job_model tri_job_model_of(const tri_model_config *c); /* borrows its lists */

/* Builds a job from the coordinator's message, of which it copies everything. Refuses with a reason what can never fit.
 * The only function here that allocates while a replica serves: the control thread calls it. */
tri_status tri_job_create(const tri_replica_assign *a, const tri_limits *limits, const tri_job_model *model,
                          int64_t now_ns, tri_job **out, tri_error *err);
void tri_job_destroy(tri_job *job); /* NULL is fine */
uint64_t tri_job_id(const tri_job *job);

void tri_sched_add(tri_sched *s, tri_job *job); /* takes over */
/* False when the job is unknown (it may just have ended). */
bool tri_sched_abort(tri_sched *s, uint64_t job_id);
void tri_sched_abort_all(tri_sched *s);

/* Sets how many tokens of prompts a step has at most from now on, where tri_sched_config allows it more;
 * TRI_NO_PROMPT_BOUND, as at the start: as many as that. 0: none. Prompts that go in one piece have no bound. */
void tri_sched_bound_prompts(tri_sched *s, int tokens);
/* Returns what a micro-batch's next step could have. */
tri_step_outlook tri_sched_outlook(const tri_sched *s, int micro_batch);
/* Returns what the step has that was composed last, whose plan this is. */
tri_step_load tri_sched_load_of(const tri_sched *s, const tri_plan_writer *plan);

/* Composes the next step of a micro-batch that is not busy. False: nothing to do. */
bool tri_sched_compose(tri_sched *s, int micro_batch, tri_plan_writer *plan);

/* ---- tri_sched_compose in parts, for a step that several schedulers have together (dp_ranks.h) ---- */

/* Returns whether a micro-batch has sequences that could be in its next step, and whether that step needs to know the
 * samples of the last one. */
bool tri_sched_micro_batch_has_any(const tri_sched *s, int micro_batch);
bool tri_sched_micro_batch_is_tied(const tri_sched *s, int micro_batch);
/* Returns whether the next step of a micro-batch would leave sequences out whose masks are being made: those that no
 * step has been without yet, or with late all of them. */
bool tri_sched_awaits_masks(const tri_sched *s, int micro_batch, bool late);
/* Sets how many sequences wait elsewhere that may come: a micro-batch's share is reckoned with them. */
void tri_sched_expect(tri_sched *s, int waiting);
void tri_sched_begin_step(tri_sched *s, int micro_batch, uint64_t step, tri_plan_writer *plan);
void tri_sched_run(tri_sched *s, int micro_batch, tri_plan_writer *plan);   /* those that run already */
void tri_sched_admit(tri_sched *s, int micro_batch, tri_plan_writer *plan); /* those that wait, as often as jobs come */
/* False: no sequence is in the step, and no result of it is taken in. */
bool tri_sched_end_step(tri_sched *s, int micro_batch, const tri_plan_writer *plan);

/* Returns whether a job that comes in this step would be in it, as far as slots and blocks go, with none before it. */
bool tri_sched_has_place(const tri_sched *s, const tri_job *j);
/* Returns whether running sequences that matter less would make way for a job that is not in the queue yet, with none
 * before it there. *yields: the priority of the one that would go first, INT64_MAX where none has to. */
bool tri_sched_would_make_way(const tri_sched *s, const tri_job *j, int64_t *yields);
/* Returns the tokens in the cache, and those of prompts that are still to be computed. A prompt that choices share
 * counts for each of them: attention reads it for each. */
int64_t tri_sched_load(const tri_sched *s);
/* The same, less the tokens of a job that the prefix cache holds. */
int64_t tri_sched_load_with(const tri_sched *s, const tri_job *j);

/* ---- results and ends ---- */

/* Takes in what a micro-batch's step sampled and appends the tokens to out. */
void tri_sched_absorb(tri_sched *s, int micro_batch, const tri_step_result *result, tri_outbox *out);
/* The same for what an encoder's step gave; by_token: a row for each token instead of each sequence. TRI_CORRUPT: the
 * rows are not those of the micro-batch's sequences. */
tri_status tri_sched_absorb_embed(tri_sched *s, int micro_batch, const tri_embed_result *result, bool by_token,
                                  tri_outbox *out);
/* Ends aborted jobs and those past their deadline. Call once before every step, for which now_ns counts as the
 * time, and now and then when idle. False when out is full. */
bool tri_sched_reap(tri_sched *s, int64_t now_ns, tri_outbox *out);
/* Returns a job that has ended, for the caller to destroy; NULL when there is none. */
tri_job *tri_sched_retired(tri_sched *s);

bool tri_sched_has_work(const tri_sched *s);
bool tri_sched_micro_batch_busy(const tri_sched *s, int micro_batch); /* as many steps are under way as may be */
tri_sched_stats tri_sched_get_stats(const tri_sched *s);

#endif
