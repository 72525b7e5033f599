/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the core's files on each other. Included by coordinator/state.h, behind the data. */
#ifndef TRI_COORDINATOR_FILES_H
#define TRI_COORDINATOR_FILES_H

#include "coordinator/state.h"
#include "base/log.h"

/* The files in the order in which they call each other: none calls one that stands below it. */

/* text.c: a choice's tokens and text */
bool prompt_keep(job *j, tri_wire_str text); /* for an echo, as the tokenizer reads it: what is not UTF-8 is replaced */
/* Says that there is no tokenizer. */
tri_status refuse_untokenized(const tri_core *c, const char *field, tri_error *err);
tri_status prompt_echo(const tri_core *c, job *j); /* the text of prompt_ids into prompt, for an echo */
tri_status choice_push(tri_core *c, job *j, job_choice *ch, const tri_group_token *t);
/* Returns how many of the first ids give no text. */
size_t count_hidden(const tri_core *c, const job *j, const uint32_t *ids, size_t num);
/* The choices' texts go on where the prompt ends. */
void choices_begin(const tri_core *c, job *j);
/* TRI_NO_MEMORY: the end of the text is missing. The choice has ended in any case. */
tri_status choice_end(job *j, job_choice *ch, tri_finish reason);
void choice_free(job_choice *ch);
size_t choice_bytes(const job_choice *ch); /* that it takes */
/* Begins with the prompt's first token, which has no logprob: it is not a number. */
tri_status prompt_score(job *j);
/* Adds the next one. */
tri_status prompt_push(tri_core *c, job *j, const tri_group_token *t);

/* group_table.c */
group *group_find(tri_core *c, uint32_t index, uint64_t epoch); /* NULL: there is none, or it is lost */
/* Tells whether a connection was opened with a rank's key. */
bool group_is_key_of(const tri_core *c, uint32_t index, uint32_t rank, const tri_peer *from);
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
bool replay_runs_alone(const job *j);  /* groups have died under it */
bool replay_is_given_up(const job *j); /* too many have */
/* Picks the group that a job runs alone in, and keeps it until it is idle; NULL: it is not yet, or takes no job now. */
group *replay_pick_alone(tri_core *c, const job *j, uint32_t *index);
void replay_release(tri_core *c, const job *j); /* False: no group is left, and none is expected. */
bool replay_has_hope(const tri_core *c);

/* request_log.c: the line of a job that ends, where the log is to have it, and of a request that became none */
void request_log(const tri_core *c, const job *j, int64_t now);
void request_log_refusal(const tri_core *c, const tri_peer *from, const tri_submit *s, const tri_error *err);

/* replies.c */
/* Says how a job ended: as to_client. */
tri_status reply_error(const tri_core *c, const tri_peer *to, uint64_t id, const tri_error *err);
/* Says why there is no job, or no other answer. */
void answer_error(const tri_core *c, const tri_peer *to, uint64_t id, const tri_error *err);
void reply_hello(const tri_core *c, const tri_peer *to, uint64_t id);
void reply_models(const tri_core *c, const tri_peer *to, uint64_t id);

/* embed_jobs.c: jobs of an encoder */
tri_status embed_open(tri_core *c);
tri_status embed_check(const tri_core *c, tri_client_op op, const tri_embed_request *e, tri_error *err);
bool embed_begin(const tri_core *c, job *j, tri_client_op op, const tri_embed_request *e);
/* Counts the memory of an answer to so many tokens, or refuses what is too large. */
tri_status embed_reserve(tri_core *c, job *j, const uint32_t *ids, size_t count, tri_error *err);
size_t embed_second_start(const tri_core *c, const job *j); /* as the model tells types apart */
/* Makes the answer of what a group has computed. TRI_OUT_OF_RANGE: its numbers are infinite or NaN, err has nothing. */
tri_status embed_take(const tri_core *c, job *j, const tri_group_result *r, tri_error *err);
tri_status embed_deliver(tri_core *c, job *j);
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

/* Returns the bytes that a block of memory takes, with what the allocator has around it. */
static inline size_t block_bytes(size_t n) { return n ? (n + 127) & ~(size_t)63 : 0; }
size_t job_bytes(const job *j); /* all that it takes; an encoder's values have a limit of their own */

/* flows.c: what each client and each caller has of the queue */
size_t flow_bytes_of(const tri_submit *s); /* of the job that it makes, about */
tri_status flow_check(tri_core *c, const tri_peer *from, const tri_submit *s, tri_error *err);
bool flow_enter(tri_core *c, job *j); /* false: no memory */
size_t flow_bytes(void);              /* that a job takes beside itself */
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
/* Refuses a new job where the journal's disk has no room for it. */
tri_status admission_check_room(tri_core *c, tri_error *err);
tri_status admission_check(tri_core *c, const tri_client_msg *m, const tri_submit *s, tri_error *err);
/* Refuses a request under the id of another one of its connection's whose last reply has not gone out; same: the job
 * that it may go on with, or NULL. */
tri_status admission_check_id(tri_core *c, const tri_peer *from, uint64_t id, const job *same, tri_error *err);
tri_status admission_check_tokens(const tri_core *c, const job *j, const uint32_t *ids, size_t count, tri_error *err);
tri_status admission_check_fit(const tri_core *c, const job *j, const group *g, tri_error *err);
/* Refuses what is longer than any group of this start can have, or larger than a message. */
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

/* Returns whether an error tells what is wrong with the request itself, which is no failure of the cluster. */
bool admission_is_invalid(const tri_error *err);
/* Names that as the HTTP gateway does: what can never fit is another thing than a cluster without room. */
const char *admission_reason(tri_status st);
/* Returns whether an error tells that there is no room now, which is no failure, either: to be asked again later. */
bool admission_is_turned_away(const tri_error *err);
uint64_t admission_invalid(const tri_core *c); /* how many such requests there were */
/* Counts a request that an error has ended. */
void admission_count(tri_core *c, const tri_error *err);

/* takeover.c: a job that exists goes on with another connection of its owner */
tri_status content_of(tri_core *c, const tri_client_msg *m, job_content *out); /* of a submit */
void job_submit_again(tri_core *c, int64_t now, job *j, const tri_peer *from, const tri_client_msg *m);
void job_attach(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);

/* answers.c: the response cache, by jobs */
tri_status answers_open(tri_core *c);
typedef enum answer_found { ANSWER_NONE, ANSWER_TAKEN, ANSWER_NO_MEMORY } answer_found;
/* Gives a queued job the answer that the cache has: it is to be ended then. */
answer_found answer_find(tri_core *c, int64_t now, job *j);
void answer_keep(tri_core *c, const job *j); /* where every choice of it has ended by itself */

/* life.c */
/* Fills in what has been drawn of a job. counts: [TRI_WIRE_MAX_N], which the message points to. */
tri_status job_fill_drawn(tri_core *c, const job *j, uint32_t *counts, tri_group_assign *a);
void job_submit(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
void job_cancel(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
/* The tokenizer is done with a job, or its client has sent tokens. second: see tri_tokenizer_encode_pair. */
void job_tokenized(tri_core *c, int64_t now, job *j, tri_status st, const uint32_t *ids, size_t count, size_t second);
void job_fail(tri_core *c, int64_t now, job *j, const tri_error *err);
/* The same, counted and logged, where these numbers are infinite or NaN: an answer from them would be a text of one
 * token, over and over. */
void job_end_without_numbers(tri_core *c, int64_t now, job *j, const char *what);
/* The same, where its group lives on and is to stop computing it. */
void job_cut(tri_core *c, int64_t now, job *j, const tri_error *err);
void job_results(tri_core *c, int64_t now, uint32_t group, const tri_group_results *results); /* of an encoder */
void job_refused(tri_core *c, int64_t now, uint32_t group, const tri_group_msg *m); /* by its group's leader */
void job_begun(job *j, int64_t now, uint64_t waited_ns); /* a step took it in, so long after its group had it */
/* Until then; without it until the end. */
static inline int64_t job_queue_ns(const job *j) { return (j->begun_ns ? j->begun_ns : j->ended_ns) - j->submitted_ns; }
void job_finish(tri_core *c, int64_t now, job *j); /* all choices have ended */
void job_abort(tri_core *c, int64_t now, job *j);
void job_dispatch(tri_core *c, int64_t now); /* queued jobs to ready groups */
void job_tokens(tri_core *c, int64_t now, uint32_t group, const tri_group_tokens *tokens);
void jobs_tick(tri_core *c, int64_t now);

/* records.c: facts that outlive this process */
void record_accepted(tri_core *c, job *j);
void record_assigned(tri_core *c, const job *j);
void record_died(tri_core *c, const job *j);
uint64_t record_model(const tri_core *c); /* tells whether a record is one of this model and tokenizer */
void record_tokens(tri_core *c, uint32_t group, const tri_group_tokens *tokens);
void record_ended(tri_core *c, const job *j); /* by something else than its last token */
void record_over(tri_core *c, job *j);
/* Records all of a job anew, as one record: its moved. */
void record_whole(tri_core *c, int64_t now, job *j);
size_t record_bytes(const job *j);                 /* about, of that */
bool record_is_durable(tri_core *c, const job *j); /* its client may hear of it */

/* Records a job that the response cache has answered, with its answer. */
void record_answered(tri_core *c, job *j, uint64_t weights_hash);

/* losses.c */
void jobs_queue_all_again(tri_core *c, int64_t now); /* all that groups had */
/* Takes back what a group had, whose leader has let go of it; returns how many jobs that are. */
unsigned jobs_queue_again(tri_core *c, int64_t now, uint32_t group);
void jobs_end_poisoned(tri_core *c, int64_t now);
/* Queues the jobs of a group that is lost, or ends them where no group is left that could run them again. */
tri_status status_of_end(const tri_core *c);
void jobs_lose_group(tri_core *c, int64_t now, uint32_t group, const char *reason);
/* Ends what waits in a drain while no group is left, or is about to come. */
void jobs_end_late(tri_core *c, int64_t now);

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
void member_expected(tri_core *c, uint32_t index, uint64_t epoch);
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

/* The same of words that people read, in tables and on terminals: as one line. */
static inline void copy_line(char *to, size_t cap, tri_wire_str from) {
  copy_text(to, cap, from);
  tri_plain_line(to, strlen(to));
}

static inline tri_wire_str wire_str(const char *s) { return (tri_wire_str){s, s ? strlen(s) : 0}; }

#endif
