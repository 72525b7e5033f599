/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's stand-in for an engine: requests whose answers are known, ranks that compute nothing but remember
 * everything, and the loop over them. It executes each plan through the same tri_plan_read and tri_batch_build as a
 * rank does. Its "KV cache" holds, for every position of every block, a hash of the whole prefix up to there, computed
 * from the entry before it as the block table gives it; a draw is a hash of the last entry. A block that is shared
 * wrongly, overwritten, not copied or not recomputed changes what is sampled, and every output must be that of the
 * request run alone. Blocks in the host's memory hold the same. Where a block has been moved from, nothing is left,
 * unless it is kept for others (tri_limits.prefix_caching): what is read before it has come, or overwritten before it
 * has gone, is noticed. With a source (tri_limits.has_source) the first entry of an answer follows the hash of its
 * source, whose entries are all looked at in every step. */
#ifndef TRI_TESTS_UNIT_SCHEDULER_KIT_H
#define TRI_TESTS_UNIT_SCHEDULER_KIT_H

#include <check.h>

#include "tests/unit/constrained_kit.h"
#include "worker/schedule/scheduler_impl.h"

enum { VOCAB = 97, MAX_JOBS = 40, MAX_MICRO_BATCHES = 4, MAX_LEN = 160, MAX_SLOTS = 24, MAX_BLOCKS = 2048 };
enum { MAX_N = 5, MAX_CHOICES = 6 };     /* of a random request; of any */
enum { MS = 1000000, MAX_LOGPROBS = 5 }; /* a search asks for more of them than a request may */

/* ck_assert notes every call in a file, which is too slow for what is checked millions of times. */
#define MUST(condition) MUST_SAY(condition, "%s", #condition)
#define MUST_SAY(condition, ...)                                                                                       \
  do {                                                                                                                 \
    if (!(condition)) ck_abort_msg(__VA_ARGS__);                                                                       \
  } while (0)

struct choice {
  uint32_t want[MAX_LEN];
  int num_want, got, first_step, last_step;
  tri_finish want_reason, reason;
  bool bare; /* it ends without a token that says so */
  bool ended;
};

struct request {
  tri_replica_assign assign;
  uint32_t prompt[MAX_LEN], allowed[VOCAB];
  uint32_t sampled[MAX_CHOICES * MAX_LEN], counts[MAX_CHOICES]; /* with which it comes */
  int arrive_at, abort_at;                                      /* iterations; abort_at -1: never */
  tri_job *job;                                                 /* while the scheduler has it */
  bool arrived;
  uint32_t preemptions; /* as the entries have told */
  int64_t waited_ns;    /* likewise; -1: not yet */
  int cached;           /* likewise: tokens of its prompt */
  int scored;           /* tokens of its prompt whose logprobs have come */
  struct choice choice[MAX_CHOICES];
};

struct config {
  tri_limits limits;
  tri_job_model model; /* zeros: one whose answers end with either of sim_eos */
  int micro_batches, depth, jobs, prompt_tokens;
  int late_percent;        /* of results that come back later */
  int search_percent;      /* of random requests */
  int score_percent;       /* likewise: whose prompts are scored */
  int follow_percent;      /* likewise: that begin as an earlier one, or with its whole prompt and answer */
  int salt_percent;        /* likewise: with one of two salts */
  int begun_percent;       /* likewise: that another group had begun */
  int constrained_percent; /* likewise: whose answers have a constraint */
  int slow_masks_percent;  /* of iterations in which no mask is made */
  bool by_priority;
  tri_swap_cost swap_cost;
  tri_sched_prefixes prefixes; /* with limits.prefix_caching */
};

struct result {
  int micro_batch;
  tri_step_result r;
  tri_step_token tokens[MAX_SLOTS];
  tri_sample_row samples[MAX_SLOTS];
};

/* A rank keeps this. The second one never hears what was sampled, as a first stage does not. */
struct rank {
  tri_slots *slots;
  tri_batch_builder *batch;
};

struct sim {
  struct config cfg;
  uint64_t rng;
  struct rank ranks[2];
  tri_sched *sched;
  tri_plan_writer *writer;
  tri_outbox out;
  constrained_source grammars;    /* of constrained answers, with what the model of cfg has */
  uint64_t content[MAX_BLOCKS];   /* [block * block_size + offset] */
  uint64_t host[MAX_BLOCKS];      /* the same of the host's blocks */
  uint32_t sampled[MAX_SLOTS];    /* by the last step */
  tri_counted counted[MAX_SLOTS]; /* by slot */
  struct result results[MAX_MICRO_BATCHES];
  int left_out; /* sequences that a step was without for want of a mask */
  int num_results, iteration, steps, copies, forks, ahead, resumed, tokens, scored, begun, sources;
  uint64_t most_blocks; /* that were used at a time */
  uint32_t outbox_cap;  /* as it was made: tests may make it smaller */
  struct request requests[MAX_JOBS];
};

extern const uint32_t sim_eos[2];

/* Spreads the bits of x. */
uint64_t sim_mix(uint64_t x);
/* Draws from lo .. hi. */
int sim_range(struct sim *s, int lo, int hi);
/* Comes true so often in a hundred. */
bool sim_chance(struct sim *s, int percent);
/* Gives half of random configurations a prefix cache, some with a hash by which all blocks collide, and requests that
 * follow each other. */
void sim_add_prefixes(struct sim *r, struct config *c);
/* Gives half of random configurations blocks in the host's memory, few or many, and a cost by which some sequences are
 * swapped and some computed again. */
void sim_add_host_blocks(struct sim *r, struct config *c);
/* Makes a scheduler and its engine. */
struct sim *sim_create(const struct config *cfg, uint64_t seed);
void sim_destroy(struct sim *s);
/* Makes request i of so many prompt tokens; the caller changes what it likes and then calls request_expect. */
struct request *request_init(struct sim *s, int i, int prompt, int max_tokens, int n);
/* Makes request i of anything that a request may ask for. */
void request_random(struct sim *s, int i);
/* Computes the answers that the request would have alone. */
void request_expect(struct sim *s, struct request *r);
/* Makes a job of the request, as the scheduler's model has it. */
tri_status sim_create_job(const struct sim *s, const struct request *r, tri_job **job, tri_error *err);
/* Makes the request's job, which has then arrived. */
void sim_make_job(struct sim *s, struct request *r);
/* Has the request come with any part of its answers, of some choices with all. */
void request_begin(struct sim *s, struct request *r);
/* Hands the request to the scheduler. */
void sim_arrive(struct sim *s, struct request *r);
/* Gives the time of this iteration. */
int64_t sim_now(const struct sim *s);
/* Executes the micro-batch's plan on every rank, and keeps its result until sim_return_result. */
void sim_execute(struct sim *s, int micro_batch);
/* Takes the oldest result of the engine, which learns what it has sampled. Its tokens live in *r. */
void sim_take_result(struct sim *s, struct result *r);
/* Takes one of the entries of an outbox. */
void sim_hear(struct sim *s, const tri_replica_token *t);
/* Takes what the scheduler says in its outbox. */
void sim_drain(struct sim *s);
/* Checks blocks and slots against the sequences that hold them. */
void sim_check_books(struct sim *s);
/* Lets requests arrive and be aborted whose time has come. */
void sim_take_events(struct sim *s);
/* Gives the scheduler the oldest result. */
void sim_return_result(struct sim *s);
/* Runs one round over all micro-batches. False when nothing could be started and nothing was under way. */
bool sim_iterate(struct sim *s);
/* Runs until every request has ended. */
void sim_run(struct sim *s);
/* Checks the answers of whoever was not aborted, and that each of so many preemptions was told to its job. */
void sim_check_told(const struct sim *s, uint64_t preemptions);
void sim_check_answers(const struct sim *s);

#endif
