/* The core's data, shared by its files and nobody else. */
#ifndef TRI_COORDINATOR_STATE_H
#define TRI_COORDINATOR_STATE_H

#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "coordinator/core.h"
#include "coordinator/fair_queue.h"
#include "coordinator/histogram.h"
#include "coordinator/response_cache.h"
#include "runtime/base/hash.h"
#include "runtime/base/wait.h"

/* Bits of a seed that is drawn: so many every reader of JSON takes as they are. */
enum { DRAWN_SEED_BITS = 53 };
enum { REASON_BYTES = 300, MAX_CANARY = 20 };
enum {
  NUM_BUCKETS = 4096,
  NUM_FLOW_BUCKETS = 1024,
  MAX_RANKS = 1024,
  MAX_RETAINED = 4096,
  MAX_ASKS = 8,
  MAX_NOTICES = 64
};

/* Time for which an ended job can still be attached to or asked for again. */
#define RETAIN_NS (60 * 1000000000LL)

typedef enum job_state { JOB_NEW, JOB_TOKENIZING, JOB_QUEUED, JOB_ASSIGNED, JOB_ENDED } job_state;

/* One choice's output so far. Everything is kept until the job is forgotten, so that a slow client's tokens can be
 * merged and a client that comes back can be given what it missed. */
typedef struct job_choice {
  tri_detokenizer *detok;
  char *text;
  size_t text_len, text_cap;
  size_t safe_len; /* of text: cannot become part of a stop string any more */
  size_t sent_text;
  uint32_t *ids;
  uint32_t *safe_after; /* safe_len after each token */
  float *logprobs;      /* with logprobs: per token its own and TRI_WIRE_MAX_LOGPROBS alternatives */
  uint32_t *top_ids;
  uint8_t *num_top;
  size_t num, cap, sent;
  bool ended;
  tri_finish reason;
  int32_t stop_string; /* the number of the request's stop string that has ended it; -1: none has */
  bool stopped_by_id;  /* one of the request's stop ids has, its last token */
} job_choice;

/* The wishes and the result of an encoder's job: it embeds or classifies. */
typedef struct job_embed {
  bool classify, normalize;
  tri_activation activation;
  size_t second_start; /* number of the first token of the second type; 0: all are of the first */
  float *values;       /* NULL: not yet */
  size_t num_values;
  size_t reserved; /* of tri_core's answer_bytes */
} job_embed;

/* Hashes of a request: what is submitted again under its name must be the same. */
typedef struct job_content {
  uint64_t prompt, rest;
} job_content;

typedef struct job {
  TAILQ_ENTRY(job) links; /* of active or ended */
  LIST_ENTRY(job) id_chain;
  LIST_ENTRY(job) request_chain;
  LIST_ENTRY(job) client_chain;
  struct job *dirty_next;
  bool dirty;
  TAILQ_ENTRY(job) queue_links; /* of its flow's queue */
  flow_part part;
  uint64_t id;
  tri_request_id request_id;
  job_content content;
  tri_peer peer; /* its owner is the job's */
  uint64_t client_id;
  bool attached, stream, accepted_sent, done_sent, echo;
  bool known;         /* asked for again: the reply says that it existed */
  bool timed_out;     /* its deadline has ended it */
  bool cut;           /* a stop string ended a choice that its group still computes */
  bool begun_here;    /* its group has told something of it */
  bool at_risk;       /* a step of the group that is being lost may have had a part of it */
  bool return_ids;    /* its client gets the prompt's token ids */
  bool use_cache;     /* its answer may come from the response cache, and go into it */
  bool cached;        /* it has come from there */
  uint32_t echo_sent; /* choices whose client has the prompt's text */
  size_t echo_at;     /* bytes of it that the client of the next one has */
  tri_on_disconnect on_disconnect;
  job_state state;
  uint32_t group;
  uint64_t epoch, seed;
  tri_sampling sampling; /* stop strings, biases and allowed ids owned: stop_text, bias, allowed */
  char *stop_text;       /* NULL: no stop strings */
  struct tri_wire_bias *bias;
  uint32_t *allowed;
  size_t longest_stop;
  char *salt; /* of the caches; NULL: none */
  size_t salt_len;
  char caller[TRI_WIRE_MAX_CALLER + 1]; /* for whom the client has asked; empty: it did not say */
  char *prompt;                         /* for echo */
  size_t prompt_len;
  uint32_t *prompt_ids; /* until it has ended; of an encoder's job always */
  size_t num_prompt;
  uint32_t num_open;
  uint32_t runs;                /* groups that it has been given to */
  uint32_t deaths;              /* of them, that were lost and may have begun it */
  uint32_t preemptions;         /* as its groups have told */
  uint32_t earlier_preemptions; /* of them, in groups that were lost */
  uint32_t cached_tokens;       /* of the prompt, likewise */
  int64_t begun_ns;             /* when a step first took a part of it in, likewise; 0: none has */
  int64_t submitted_ns, assigned_ns, first_token_ns, last_token_ns, ended_ns, deadline_ns, stuck_ns;
  size_t retained;      /* bytes, once it has ended */
  int64_t said_ns;      /* when its client was last sent something, or looked for */
  int looks;            /* for its client in a row: each leaves a frame with one that reads nothing */
  tri_error *error;     /* NULL: none */
  job_embed *embed;     /* NULL: the job generates text */
  job_choice scored;    /* the prompt's tokens with their logprobs, where those are wanted; no text */
  job_choice choices[]; /* [sampling.n] */
} job;

TAILQ_HEAD(job_list, job);
LIST_HEAD(job_chain, job);

typedef enum group_state { GROUP_ABSENT, GROUP_STARTING, GROUP_READY, GROUP_DRAINING, GROUP_LOST } group_state;

/* A rank's rows of experts, by its own word: tri_group_experts. */
typedef struct expert_report {
  bool told; /* since it was last asked */
  uint64_t placement;
  uint32_t first_layer, num_layers, first_slot, num_own, num_slots;
  uint64_t *rows;
  uint32_t *expert_of;
  uint64_t *earlier; /* [num_layers, experts] */
  tri_group_hot hot;
} expert_report;

typedef struct rank_info {
  bool known;
  tri_peer peer;
  char host[64];
  int64_t pid, last_report;
  uint64_t step, layer, collective;
  uint32_t exchange;         /* tri_exchange_part */
  uint32_t running, waiting; /* on its shard, of several */
  int64_t progress_ns;       /* when step, layer or collective last changed */
  bool measured;             /* floors: since they were last asked for, or earlier where they could not be */
  tri_floors floors;
  expert_report experts;
  tri_group_stream stream;
} rank_info;

/* A client that waits for floors. */
typedef struct floors_ask {
  tri_peer peer;
  uint64_t id;
  int64_t until_ns;
} floors_ask;
typedef floors_ask experts_ask;

/* The end of a stream that another connection has taken over, while its client's queue is full. */
typedef struct takeover_notice {
  tri_peer peer;
  uint64_t id;
  int64_t until_ns;
} takeover_notice;

/* The cost of the scheduler in the last reports in which tokens were drawn. */
enum { COST_REPORTS = 10 };
typedef struct cost_window {
  uint64_t tokens[COST_REPORTS], ns[COST_REPORTS];
  unsigned count;
} cost_window;

/* The tokens that a group's canary has put first, the best first. */
typedef struct group_canary {
  int num;
  uint32_t ids[MAX_CANARY];
  double logprobs[MAX_CANARY];
} group_canary;

typedef struct group {
  group_state state;
  uint64_t epoch;
  uint32_t tp, pp, dp, ep, world;
  rank_info *ranks; /* [world] */
  uint64_t model_hash, weights_hash, max_model_len, kv_blocks, block_size, max_num_seqs;
  group_canary canary;
  uint64_t step_tokens;
  /* of the jobs that it has: sequences, the most steps that they can take, and the jobs that it has shown no sign of
   * yet with the tokens of their prompts */
  uint64_t sequences, steps, pending, pending_tokens;
  /* of one look at the queue: sequences with this priority or a sooner one, where they have been counted */
  int64_t counted_priority;
  uint64_t counted;
  bool has_counted;
  uint32_t running, waiting, jobs;
  uint64_t alone; /* the job that it is kept for, which gets no company; 0: none */
  uint64_t kv_blocks_used, tokens, scheduler_ns, preemptions, rearrangements, experts_moved, moving_ns;
  tri_group_swaps swaps;
  tri_group_prefixes prefixes;
  cost_window cost;
  double layer_seconds; /* that a layer takes for the largest step, as predicted when the group became ready */
  int64_t began_ns, last_lease;
  int64_t busy_since; /* by its own word; 0: it is idle */
  int64_t jobs_since; /* that it has had jobs without a pause, where it has some */
  int64_t died_ns;    /* when it was said to have ended; 0: it was not */
  tri_core_hold hold; /* it has ended, and is not started again before */
  int64_t hold_until_ns;
  char reason[REASON_BYTES]; /* why it is lost or stays down */
} group;

typedef struct prefix_affinity prefix_affinity;

/* Why a job was refused, or ended in the queue. */
typedef enum queue_refusal {
  REFUSED_QUEUE,
  REFUSED_QUEUE_BYTES,
  REFUSED_CLIENT,
  REFUSED_CLIENT_BYTES,
  REFUSED_QUEUE_TIME,
  NUM_REFUSALS
} queue_refusal;

struct tri_core {
  tri_core_config cfg;
  group *groups;
  struct job_list active; /* oldest first */
  struct job_list ended;  /* in the order of their end: nothing that happens often walks these, which are many */
  struct job_chain by_id[NUM_BUCKETS], by_request[NUM_BUCKETS], by_client[NUM_BUCKETS];
  job *dirty;
  uint64_t next_id;
  int64_t num_active, num_tokenizing, num_queued, num_retained;
  uint64_t retained; /* bytes of those */
  bool draining, drain_sent;
  int64_t started_ns, looked_ns; /* looked_ns: for clients that have gone */
  tri_core_facts facts;
  floors_ask asks[MAX_ASKS];
  int num_asks;
  experts_ask expert_asks[MAX_ASKS];
  int num_expert_asks;
  takeover_notice notices[MAX_NOTICES];
  int num_notices;
  tri_buf content;                                    /* memory of content_of */
  tri_buf drawn;                                      /* memory of replay_fill */
  char last_loss[200];                                /* why the group that was lost last was; empty: none was */
  tri_response_cache *cache;                          /* NULL: none */
  tri_buf cache_key, cache_answer;                    /* memory of answers.c */
  struct flow_chain flows[NUM_FLOW_BUCKETS], waiting; /* waiting: those with jobs in the queue */
  struct flow_owner_chain flow_owners[NUM_FLOW_BUCKETS];
  double flow_clock; /* service of the owner that was last served */
  size_t queue_bytes;
  uint64_t refused[NUM_REFUSALS];
  prefix_affinity *affinity; /* NULL: there is one group, or none has a prefix cache */
  /* totals */
  uint64_t done_stop, done_length, done_abort, failed, lost, replayed, prompt_tokens, generation_tokens;
  tri_wire_str *labels; /* of a classifier */
  size_t label_bytes, answer_bytes;
  tri_histogram ttft, itl, e2e, queue_time, step_tokens;
};

/* The files in the order in which they call each other: none calls one that stands below it. */

/* stop_strings.c */
/* Looks for a stop string that ends in the last `fresh` bytes. True: text is cut before the one that is complete first
 * (the longest of those), which does not depend on how the text came in tokens. */
bool stop_strings_cut(const job *j, job_choice *ch, size_t fresh);
/* Returns the length of the text's longest end that could still grow into a stop string. */
size_t stop_strings_held_back(const job *j, const job_choice *ch);

/* text.c: a choice's tokens and text */
bool prompt_keep(job *j, tri_wire_str text); /* for an echo, as the tokenizer reads it: what is not UTF-8 is replaced */
tri_status prompt_echo(const tri_core *c, job *j); /* the text of prompt_ids into prompt, for an echo */
tri_status choice_push(tri_core *c, job *j, job_choice *ch, const tri_group_token *t);
void choice_end(job *j, job_choice *ch, tri_finish reason);
void choice_free(job_choice *ch);
/* Begins with the prompt's first token, which has no logprob: it is not a number. */
tri_status prompt_score(job *j);
/* Adds the next one. */
tri_status prompt_push(job *j, const tri_group_token *t);

/* defaults.c: the model's generation_config fills in what a request leaves open */
void defaults_apply(const tri_model_config *m, tri_sampling *s);

/* group_table.c */
group *group_find(tri_core *c, uint32_t index, uint64_t epoch); /* NULL: there is none, or it is lost */
/* Tells whether a rank of a start of a group has registered over this connection. */
bool group_has_rank(tri_core *c, uint32_t index, uint64_t epoch, uint32_t rank, const tri_peer *from);
bool group_find_led_by(const tri_core *c, const tri_peer *from, uint32_t *index);
bool group_takes_jobs(const tri_core *c, const group *g);
group *group_pick(const tri_core *c, uint32_t *index);        /* the ready group with the least to do; NULL: none */
group *group_pick_shared(const tri_core *c, uint32_t *index); /* the same of those that are not kept for one job */
bool group_is_watched(const tri_core *c, const group *g);
/* The data-parallel shard of a rank. */
static inline uint32_t group_shard_of(const group *g, uint32_t rank) {
  return g->dp > 1 && g->tp ? rank / g->tp % g->dp : 0;
}

/* affinity.c: groups that have had prompts which begin like a job's */
tri_status affinity_open(tri_core *c);
void affinity_close(tri_core *c);
/* Picks the group that is to get a job; NULL: none takes any. */
group *affinity_pick(tri_core *c, const job *j, uint32_t *index);
void affinity_note(tri_core *c, uint32_t index);   /* a group has got the job that was last picked for */
void affinity_forget(tri_core *c, uint32_t index); /* a group begins anew */

/* replay.c: jobs whose group was lost run again */
/* Finds out which jobs of a group steps may have had a part of: sets their at_risk. */
void replay_find_at_risk(tri_core *c, uint32_t index);
bool replay_runs_alone(const job *j);  /* groups have died under it */
bool replay_is_given_up(const job *j); /* too many have */
/* Picks the group that a job runs alone in, and keeps it until it is idle; NULL: none is idle yet. */
group *replay_pick_alone(tri_core *c, const job *j, uint32_t *index);
void replay_release(tri_core *c, const job *j); /* what is kept for it */
/* Fills in what has been drawn of a job. counts: [TRI_WIRE_MAX_N], which the message points to. */
tri_status replay_fill(tri_core *c, const job *j, uint32_t *counts, tri_group_assign *a);
/* Says whether an entry brings again what has come. */
bool replay_repeats(const job *j, const job_choice *ch, const tri_group_token *t);
void replay_log(const tri_core *c, const job *j); /* a line, where the log is to have them */
/* False: no group is left, and none is expected. */
bool replay_has_hope(const tri_core *c);

/* replies.c */
tri_status reply_error(const tri_core *c, const tri_peer *to, uint64_t id, const tri_error *err);
void reply_hello(const tri_core *c, const tri_peer *to, uint64_t id);
void reply_models(const tri_core *c, const tri_peer *to, uint64_t id);

/* embed_jobs.c: jobs of an encoder */
tri_status embed_open(tri_core *c);
tri_status embed_check(const tri_core *c, tri_client_op op, const tri_embed_request *e, tri_error *err);
bool embed_begin(const tri_core *c, job *j, tri_client_op op, const tri_embed_request *e);
/* Counts the memory of an answer to so many tokens, or refuses what is too large. */
tri_status embed_reserve(tri_core *c, job *j, const uint32_t *ids, size_t count, tri_error *err);
size_t embed_second_start(const tri_core *c, const job *j); /* as the model tells types apart */
void embed_release(tri_core *c, job *j);
void embed_free(job_embed *e); /* NULL is fine */
enum { EMBED_ID_BYTES = 12 };
/* Returns a token as it stands in the vocabulary, or its number, written into number, where it does not. */
tri_wire_str embed_token_text(const tri_core *c, uint32_t id, char number[EMBED_ID_BYTES]);

/* job_table.c */
job *job_find(const tri_core *c, uint64_t id);
job *job_find_request(tri_core *c, const tri_peer *from, const tri_request_id *r); /* of the owner of from */
job *job_find_of_client(tri_core *c, const tri_peer *from, uint64_t client_id);    /* the newest */
void job_enlist(tri_core *c, job *j);                                              /* among the active */
void job_give(tri_core *c, job *j, const tri_peer *to, uint64_t client_id);        /* its stream goes to that request */
void job_retire(tri_core *c, job *j);                                              /* from the active to the ended */
void job_mark(tri_core *c, job *j);                                                /* its client is to get something */
void job_forget(tri_core *c, job *j);                                              /* frees it */
void job_free(job *j);                                                             /* one that is not enlisted */
void jobs_destroy(tri_core *c);

/* flows.c: what each client and each caller has of the queue */
size_t flow_bytes_of(const tri_submit *s); /* of the job that it makes, about */
tri_status flow_check(tri_core *c, const tri_peer *from, const tri_submit *s, tri_error *err);
bool flow_enter(tri_core *c, job *j); /* false: no memory */
void flow_resize(tri_core *c, job *j, size_t bytes);
void flow_leave(tri_core *c, job *j); /* a job that has ended */
void flows_destroy(tri_core *c);

/* fair_queue.c: the queue, fair between flows, and by age within one. A job that its group has lost goes back to its
 * old place by queue_returned and queue_push. */
extern const char *const queue_refusal_names[NUM_REFUSALS];
void queue_push(tri_core *c, int64_t now, job *j);
void queue_remove(tri_core *c, job *j); /* one that may be in the queue */
/* Returns the job whose turn it is and the group that has room for it; NULL: none has room for any. */
job *queue_next(tri_core *c, group **g, uint32_t *index);
/* A group has got the job, which leaves the queue and counts as service of its flow. */
void queue_assigned(tri_core *c, job *j, group *g, uint32_t index);
void queue_begun(tri_core *c, job *j);    /* its group has shown a sign of it */
void queue_released(tri_core *c, job *j); /* it has ended: service is what was done */
void queue_returned(tri_core *c, job *j); /* its group is lost: what was done counts at its end */

/* admission.c */
tri_status admission_check(const tri_core *c, const tri_client_msg *m, const tri_submit *s, tri_error *err);
/* Refuses a request under the id of another one of its connection's whose last reply has not gone out; same: the job
 * that it may go on with, or NULL. */
tri_status admission_check_id(tri_core *c, const tri_peer *from, uint64_t id, const job *same, tri_error *err);
tri_status admission_check_tokens(const tri_core *c, const job *j, const uint32_t *ids, size_t count, tri_error *err);
tri_status admission_check_fit(const tri_core *c, const job *j, const group *g, tri_error *err);
const char *admission_prompt_field(const job *j); /* the field that the prompt came in, for messages */
/* Returns how many tokens a text may have, as far as that is known. */
size_t admission_most_tokens(const tri_core *c);
/* Returns how many tokens of a prompt count, of a request that truncates. */
size_t admission_truncate_to(const tri_core *c, const tri_sampling *s);
/* Says that there is no tokenizer. */
tri_status admission_refuse_untokenized(const tri_core *c, const char *field, tri_error *err);
/* Says why the tokenizer, which returned st, has no tokens of a job's text. */
tri_status admission_refuse_text(const tri_core *c, const job *j, tri_status st, tri_error *err);

/* takeover.c: a job that exists goes on with another connection of its owner */
tri_status content_of(tri_core *c, const tri_client_msg *m, job_content *out); /* of a submit */
void job_submit_again(tri_core *c, int64_t now, job *j, const tri_peer *from, const tri_client_msg *m);
void job_attach(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
void takeover_tick(tri_core *c, int64_t now);

/* answers.c: the response cache, by jobs */
tri_status answers_open(tri_core *c);
/* Ends a queued job with the answer that the cache has; false: it has none. */
bool answer_find(tri_core *c, int64_t now, job *j);
void answer_keep(tri_core *c, const job *j); /* where every choice of it has ended by itself */

/* jobs.c */
void job_submit(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
void job_cancel(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
/* The tokenizer is done with a job, or its client has sent tokens. second: see tri_tokenizer_encode_pair. */
void job_tokenized(tri_core *c, int64_t now, job *j, tri_status st, const uint32_t *ids, size_t count, size_t second);
void job_fail(tri_core *c, int64_t now, job *j, const tri_error *err);
/* The same, where its group lives on and is to stop computing it. */
void job_cut(tri_core *c, int64_t now, job *j, const tri_error *err);
void job_refused(tri_core *c, int64_t now, uint32_t group, const tri_group_msg *m); /* by its group's leader */
void job_begun(job *j, int64_t now, uint64_t waited_ns); /* a step took it in, so long after its group had it */
int64_t job_queue_ns(const job *j);                      /* until then; without it until the end */
void job_finish(tri_core *c, int64_t now, job *j);       /* all choices have ended */
void job_abort(tri_core *c, int64_t now, job *j);
void job_dispatch(tri_core *c, int64_t now); /* queued jobs to ready groups */
void job_tokens(tri_core *c, int64_t now, uint32_t group, const tri_group_tokens *tokens);
void jobs_tick(tri_core *c, int64_t now);

/* losses.c */
/* Queues the jobs of a group that is lost, or ends them where no group is left that could run them again. */
void jobs_lose_group(tri_core *c, int64_t now, uint32_t group, const char *reason);

/* embed_results.c */
void embed_results(tri_core *c, int64_t now, uint32_t group, const tri_group_results *results);
tri_status embed_deliver(tri_core *c, job *j);

/* deliver.c: sends what clients have not had yet */
void deliver_all(tri_core *c, int64_t now); /* of every marked job */
/* Finds the clients that have gone while nothing was said to them. */
void deliver_tick(tri_core *c, int64_t now);

/* service.c: a group may serve beside those that do */
void canary_take(group_canary *c, const tri_group_msg *ready);
bool service_has_weights(const group *a, const group *b); /* the same, as far as is known */
void service_say_weights(const group *g, const group *other, uint32_t index, char *why, size_t cap);
bool service_fits(const tri_core *c, const group *g, char *why, size_t cap);

/* members.c */
void member_register(tri_core *c, int64_t now, const tri_peer *from, const tri_group_register *r);
bool member_ready(tri_core *c, int64_t now, const tri_group_msg *m); /* true: the group takes jobs from now on */
void member_health(tri_core *c, int64_t now, const tri_group_health *h);
void member_failed(tri_core *c, int64_t now, const tri_group_msg *m);
/* Gives a group up and has its jobs run elsewhere; the rest is the reason, as for printf. */
__attribute__((format(printf, 4, 5))) void member_lose(tri_core *c, int64_t now, uint32_t index, const char *fmt, ...);
/* See tri_core_group_died and tri_core_group_held. */
void member_died(tri_core *c, int64_t now, uint32_t index, uint64_t epoch, const char *reason);
void member_held(tri_core *c, uint32_t index, tri_core_hold hold, int64_t until_ns, const char *reason);
void members_tick(tri_core *c, int64_t now); /* loses those that died */
void members_lease(tri_core *c, int64_t now);
void members_destroy(tri_core *c);

/* hang_report.c: says where every rank of a group stands, and which are late. silent: the rank that reports nothing;
 * UINT32_MAX: all do. */
void hang_report(tri_core *c, int64_t now, uint32_t index, uint32_t silent, const char *why);

/* watchdog.c */
void watchdog_tick(tri_core *c, int64_t now);

/* drain.c */
void drain_groups(tri_core *c); /* tells them to finish and leave */
void drain_tick(tri_core *c);

/* report.c */
void report_status(tri_core *c, int64_t now, const tri_peer *to, uint64_t id);
/* Counts the jobs that run and wait, and the clients that they belong to. */
void report_jobs(const tri_core *c, tri_cluster_status *s);

/* floors.c */
void floors_request(tri_core *c, int64_t now, const tri_peer *from, uint64_t id);
void floors_take(tri_core *c, int64_t now, rank_info *rank, const tri_floors *floors);
void floors_tick(tri_core *c, int64_t now);
bool floors_are_measured(const tri_core *c, int64_t now); /* at this moment, by all ranks */

/* experts.c */
/* Writes metrics of the last reports, once every rank has sent one. */
void experts_metrics(const tri_core *c, FILE *f);
void experts_request(tri_core *c, int64_t now, const tri_peer *from, uint64_t id);
void experts_take(tri_core *c, int64_t now, rank_info *rank, const tri_group_experts *e);
void experts_tick(tri_core *c, int64_t now);
void experts_forget(group *g); /* what its ranks have told */

/* ---- streams.c: weights that do not stay in memory ---- */

/* Adds up what a group's ranks have told: bytes of all, seconds of the one that has most. */
tri_group_stream streams_of_group(const group *g);
void streams_metrics(const tri_core *c, FILE *f);

/* prometheus.c */
void prometheus_reply(tri_core *c, const tri_peer *to, uint64_t id);

static inline uint64_t mix64(uint64_t x) { return tri_mix64(x + TRI_SPLITMIX_STEP); }

/* Copies a text that has no NUL, as far as there is room. */
static inline void copy_text(char *to, size_t cap, tri_wire_str from) {
  size_t n = from.len < cap ? from.len : cap - 1;
  if (n) memcpy(to, from.s, n);
  to[n] = '\0';
}

static inline tri_wire_str wire_str(const char *s) { return (tri_wire_str){s, s ? strlen(s) : 0}; }

#endif
