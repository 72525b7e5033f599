/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as the files of this folder alone know them. */
#ifndef TRI_COORDINATOR_JOBS_JOBS_IMPL_H
#define TRI_COORDINATOR_JOBS_JOBS_IMPL_H

#include "coordinator/core_impl.h"
#include "coordinator/jobs/jobs.h"
#include "coordinator/queue/queue.h"
#include "coordinator/replicas/replicas.h"
#include "coordinator/replies.h"

enum { NUM_BUCKETS = 4096, MAX_RETAINED = 4096, DEATHS_TO_ALONE = 2 };
/* Bits of a seed that is sampled: so many every reader of JSON takes as they are. */
enum { SAMPLED_SEED_BITS = 53 };
/* Time for which an ended job can still be attached to or asked for again. */
#define RETAIN_NS (60 * 1000000000LL)

/*   NEW -> TOKENIZING        it has a text that a thread tokenizes
 *   NEW, TOKENIZING -> QUEUED  its tokens are there and checked; it is recorded, and may be confirmed
 *   QUEUED -> ASSIGNED       a replica has it
 *   ASSIGNED -> QUEUED       that replica is lost: it keeps what was sampled, and its place in the queue
 *   any -> ENDED             all choices have ended, or an error, a deadline or its client ended it; it stays for a
 *                            minute, for a client that returns */
typedef enum job_state { JOB_NEW, JOB_TOKENIZING, JOB_QUEUED, JOB_ASSIGNED, JOB_ENDED } job_state;

/* One choice's output so far. Everything is kept until the job is forgotten, so that a slow client's tokens can be
 * merged and a client that returns can be given what it missed.
 *
 *   sent <= num <= cap, of tokens; sent_text <= safe_len <= text_len <= text_cap, of bytes */
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
  size_t ahead; /* tokens to come that the client has: a failure of the machine has cost them here */
  bool ended;
  tri_finish reason;
  int32_t stop_string; /* the number of the request's stop string that has ended it; -1: none has */
  bool stopped_by_id;  /* one of the request's stop ids has, its last token */
} job_choice;

/* The wishes and the result of an encoder's job: it embeds or classifies. */
typedef struct job_embed {
  bool classify, normalize;
  tri_activation activation;
  size_t second_start; /* number of the first token of the second type, counted from 1; 0: none is */
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
  queue_entry part; /* of the queue */
  uint64_t id;
  tri_request_id request_id;
  job_content content;
  tri_peer peer; /* its owner is the job's */
  uint64_t client_id;
  bool attached, stream, accepted_sent, done_sent, echo;
  bool known;         /* asked for again: the reply says that it existed */
  bool timed_out;     /* its deadline has ended it */
  bool cut;           /* a stop string ended a choice that its replica still computes */
  bool begun_here;    /* its replica has told something of it */
  bool at_risk;       /* a step of the replica that is being lost may have had a part of it */
  bool of_other;      /* it was accepted for another model */
  bool over;          /* a restart need know nothing more of it */
  bool dropped;       /* it was cancelled since its client had gone: one that returns finds nothing */
  bool after_prompt;  /* the text of its answers continues with the prompt's, which has some */
  bool return_ids;    /* its client gets the prompt's token ids */
  bool use_cache;     /* its answer may come from the response cache, and go into it */
  bool cached;        /* it has come from there */
  uint32_t echo_sent; /* choices whose client has the prompt's text */
  size_t echo_at;     /* bytes of it that the client of the next one has */
  tri_on_disconnect on_disconnect;
  job_state state;
  uint32_t replica;
  uint64_t epoch, seed;
  tri_sampling sampling; /* stop strings, biases and allowed ids owned: stop_text, bias, allowed */
  char *stop_text;       /* NULL: no stop strings */
  struct tri_wire_bias *bias;
  uint32_t *allowed;
  char *constraint; /* the texts of the sampling's */
  size_t longest_stop;
  char *salt; /* of the caches; NULL: none */
  size_t salt_len;
  char *external_id;                    /* the caller's own name of it; NULL: none */
  char caller[TRI_WIRE_MAX_CALLER + 1]; /* for whom the client has asked; empty: it did not say */
  char *prompt;                         /* for echo */
  size_t prompt_len;
  uint32_t *prompt_ids; /* until it has ended; of an encoder's job always */
  size_t num_prompt;
  uint32_t num_open;
  uint32_t runs;                /* replicas that it has been given to */
  uint64_t weights_hash;        /* of the replica that had it last; 0: none has, or it did not say */
  uint32_t deaths;              /* of them, that were lost and may have begun it */
  uint32_t preemptions;         /* as its replicas have told */
  uint32_t earlier_preemptions; /* of them, in replicas that were lost */
  uint32_t cached_tokens;       /* of the prompt, likewise */
  int64_t begun_ns;             /* when a step first took a part of it in, likewise; 0: none has */
  int64_t submitted_ns, assigned_ns, first_token_ns, last_token_ns, ended_ns, deadline_ns, stuck_ns;
  uint64_t record;      /* number of the first record that a restart needs for it; 0: there is none */
  uint64_t moved;       /* of another one that takes its place once it is durable; 0: there is none */
  int64_t orphan_ns;    /* of a restored job: since when it waits for its client */
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

struct jobs {
  struct job_list active; /* oldest first */
  struct job_list ended;  /* in the order of their end: nothing that happens often walks these, which are many */
  struct job_chain by_id[NUM_BUCKETS], by_request[NUM_BUCKETS], by_client[NUM_BUCKETS];
  job *dirty; /* those with something new for their clients */
  uint64_t next_id;
  int64_t num_active, num_tokenizing, num_retained;
  uint64_t retained;               /* bytes of those */
  bool has_journal;                /* jobs outlive this coordinator */
  int64_t restored_age_ns;         /* how long ago what is being restored was; 0 outside */
  bool restore_failed;             /* there was no memory for one of them */
  const char *full;                /* the journal's folder, where its disk is full: nothing new is taken; else NULL */
  bool has_moved;                  /* a job has another record that is not durable yet */
  bool has_undurable;              /* a job waits until its record is durable */
  uint64_t durable;                /* number of the last durable record */
  int64_t looked_ns;               /* when it was last looked for clients that have gone */
  tri_buf content;                 /* memory of content_of */
  tri_buf sampled;                 /* memory of job_fill_sampled */
  tri_response_cache *cache;       /* NULL: none */
  tri_buf cache_key, cache_answer; /* memory of answers.c */
  tri_wire_str *labels;            /* of a classifier */
  size_t label_bytes, answer_bytes;
};

/* ---- text.c: a choice's tokens and text ---- */

bool prompt_keep(job *j, tri_wire_str text); /* for an echo, as the tokenizer reads it: what is not UTF-8 is replaced */
/* Says that there is no tokenizer. */
tri_status refuse_untokenized(const tri_core *c, const char *field, tri_error *err);
tri_status prompt_echo(const tri_core *c, job *j); /* the text of prompt_ids into prompt, for an echo */
tri_status choice_push(tri_core *c, job *j, job_choice *ch, const tri_replica_token *t);
/* Returns how many of the first ids give no text. */
size_t count_hidden(const tri_core *c, const job *j, const uint32_t *ids, size_t num);
/* The choices' texts continue where the prompt ends. */
void choices_begin(const tri_core *c, job *j);
/* TRI_NO_MEMORY: the end of the text is missing. The choice has ended in any case. */
tri_status choice_end(job *j, job_choice *ch, tri_finish reason);
void choice_free(job_choice *ch);
size_t choice_bytes(const job_choice *ch); /* that it takes */
/* Begins with the prompt's first token, which has no logprob: it is not a number. */
tri_status prompt_score(job *j);
/* Adds the next one. */
tri_status prompt_push(tri_core *c, job *j, const tri_replica_token *t);

/* ---- embed.c: jobs of an encoder ---- */

tri_status embed_open(tri_core *c);
tri_status embed_check(const tri_core *c, tri_client_op op, const tri_embed_request *e, tri_error *err);
/* Puts the prompt that a request names, or the usual one, before its text: s->prompt is then *joined, which the caller
 * frees; without one *joined stays NULL. */
tri_status embed_add_prompt(const tri_core *c, const tri_embed_request *e, tri_submit *s, char **joined,
                            tri_error *err);
bool embed_begin(const tri_core *c, job *j, tri_client_op op, const tri_embed_request *e);
/* Counts the memory of an answer to so many tokens, or refuses what is too large. */
tri_status embed_reserve(tri_core *c, job *j, const uint32_t *ids, size_t count, tri_error *err);
size_t embed_second_start(const tri_core *c, const job *j); /* as the model tells types apart */
/* Makes the answer of what a replica has computed: copies its numbers, and normalizes or activates them. Pooling is the
 * replica's. TRI_OUT_OF_RANGE: its numbers are infinite or NaN, err has nothing. */
tri_status embed_take(const tri_core *c, job *j, const tri_replica_result *r, tri_error *err);
tri_status embed_deliver(tri_core *c, job *j);
void embed_release(tri_core *c, job *j);
void embed_free(job_embed *e); /* NULL is fine */
enum { EMBED_ID_BYTES = 12 };
/* Returns a token as it stands in the vocabulary, or its number, written into number, where it does not. */
tri_wire_str embed_token_text(const tri_core *c, uint32_t id, char number[EMBED_ID_BYTES]);

/* ---- records.c ---- */

void record_accepted(tri_core *c, job *j);
void record_assigned(tri_core *c, const job *j);
void record_died(tri_core *c, const job *j);
uint64_t record_model(const tri_core *c); /* tells whether a record is one of this model and tokenizer */
void record_tokens(tri_core *c, uint32_t replica, const tri_replica_tokens *tokens);
void record_ended(tri_core *c, const job *j); /* by something else than its last token */
void record_over(tri_core *c, job *j);
/* Records all of a job anew, as one record: its moved. */
void record_whole(tri_core *c, int64_t now, job *j);
size_t record_bytes(const job *j);                 /* about, of that */
bool record_is_durable(tri_core *c, const job *j); /* its client may hear of it */

/* Records a job that the response cache has answered, with its answer. */
void record_answered(tri_core *c, job *j, uint64_t weights_hash);

/* ---- job_table.c ---- */

job *job_find(const tri_core *c, uint64_t id);
job *job_find_request(tri_core *c, const tri_peer *from, const tri_request_id *r); /* of the owner of from */
job *job_find_of_client(tri_core *c, const tri_peer *from, uint64_t client_id);    /* the newest */
void job_enlist(tri_core *c, job *j);                                              /* among the active */
void job_give(tri_core *c, job *j, const tri_peer *to, uint64_t client_id);        /* its stream goes to that request */
void job_retire(tri_core *c, job *j);                                              /* from the active to the ended */
void job_mark(tri_core *c, job *j);                                                /* its client is to get something */
void job_forget(tri_core *c, job *j);                                              /* frees it */
void job_free(job *j);                                                             /* one that is not enlisted */

/* Until a step took it in; without that until the end. */
static inline int64_t job_queue_ns(const job *j) { return (j->begun_ns ? j->begun_ns : j->ended_ns) - j->submitted_ns; }
size_t job_bytes(const job *j); /* all that it takes; an encoder's values have a limit of their own */

/* ---- admission.c: whether a request may become a job ---- */

/* Refuses a new job where the journal's disk has no room for it. */
tri_status admission_check_room(tri_core *c, tri_error *err);
tri_status admission_check(tri_core *c, const tri_client_msg *m, const tri_submit *s, tri_error *err);
/* Refuses a request under the id of another one of its connection's whose last reply has not gone out; same: the job
 * that it may continue with, or NULL. */
tri_status admission_check_id(tri_core *c, const tri_peer *from, uint64_t id, const job *same, tri_error *err);
tri_status admission_check_tokens(const tri_core *c, const job *j, const uint32_t *ids, size_t count, tri_error *err);
tri_status admission_check_fit(const tri_core *c, const job *j, const replica_facts *g, tri_error *err);
/* Refuses what is longer than any replica of this start can have, or larger than a message. */
tri_status admission_check_size(const tri_core *c, const job *j, tri_error *err);
/* Returns at least the bytes of the message that a job makes. */
size_t admission_message_bytes(const job *j);
const char *admission_prompt_field(const job *j); /* the field that the prompt came in, for messages */
/* Returns how many tokens a text may have, as far as that is known. */
size_t admission_most_tokens(const tri_core *c);
/* Returns how many tokens of a prompt count, of a request that truncates. */
size_t admission_truncate_to(const tri_core *c, const tri_sampling *s);
/* Says why the tokenizer, which returned st, has no tokens of a job's text. */
tri_status admission_refuse_text(tri_core *c, const job *j, tri_status st, tri_error *err);
/* Returns whether an error tells that there is no room now, which is no failure, either: to be asked again later. */
bool admission_is_turned_away(const tri_error *err);

/* ---- request_log.c: the line of a job that ends, and of a request that became none ---- */

void request_log(const tri_core *c, const job *j, int64_t now);
void request_log_refusal(const tri_core *c, const tri_peer *from, const tri_submit *s, const tri_error *err);

/* ---- answers.c: the response cache, by jobs ---- */

tri_status answers_open(tri_core *c);
void answers_close(tri_core *c);
typedef enum answer_found { ANSWER_NONE, ANSWER_TAKEN, ANSWER_NO_MEMORY } answer_found;
/* Gives a queued job the answer that the cache has: it is to be ended then. */
answer_found answer_find(tri_core *c, int64_t now, job *j);
void answer_keep(tri_core *c, const job *j); /* where every choice of it has ended by itself */

/* ---- takeover.c: a job that exists continues with another connection of its owner ---- */

tri_status content_of(tri_core *c, const tri_client_msg *m, job_content *out); /* of a submit */
void job_submit_again(tri_core *c, int64_t now, job *j, const tri_peer *from, const tri_client_msg *m);

/* ---- life.c ---- */

/* Fills in what has been sampled of a job. counts: [TRI_WIRE_MAX_N], which the message points to. */
tri_status job_fill_sampled(tri_core *c, const job *j, uint32_t *counts, tri_replica_assign *a);
void job_fail(tri_core *c, int64_t now, job *j, const tri_error *err);
void job_abort(tri_core *c, int64_t now, job *j);
static inline bool job_runs_alone(const job *j) { return j->deaths >= DEATHS_TO_ALONE; } /* replicas died under it */
void jobs_queue_all_again(tri_core *c, int64_t now);                                     /* all that replicas had */
void jobs_end_poisoned(tri_core *c, int64_t now); /* those under which too many replicas have died */

#endif
