/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core: a state machine without sockets, clocks, threads or files.
 *
 * Inputs are the calls below, each with the time it happened, and what the calls on tri_core_io return: the status of
 * to_client and look (TRI_AGAIN keeps a message for later, TRI_CLOSED may cancel a job), the status of to_worker (other
 * than TRI_OK leaves a job in the queue), and the status, the ids and the numbers of tokenize, and random's bytes.
 * Outputs are the calls on tri_core_io. The same inputs in the same order give the same outputs. Of these a journal
 * keeps what another core must know to go on (record.h). One thread owns it. */
#ifndef TRI_COORDINATOR_CORE_H
#define TRI_COORDINATOR_CORE_H

#include "comm/wire/client.h"
#include "comm/wire/group.h"
#include "comm/wire/peer.h"
#include "coordinator/record.h"
#include "runtime/model/config.h"
#include "runtime/model/labels.h"
#include "text/tokenizer/tokenizer.h"

typedef struct tri_core tri_core;

/* A text to be tokenized. */
typedef struct tri_core_text {
  const tri_peer *from;    /* whose turn it waits for; NULL: nobody's */
  tri_wire_str text, pair; /* pair.s NULL: it is no pair */
  bool special;            /* with the special tokens of the tokenizer's template, as a pair always is */
  size_t truncate_to; /* with more tokens it loses its end, and has the special ones in any case; 0: it is refused */
  bool keep_end;      /* then it loses its beginning, and has the special ones if it is to have any */
} tri_core_text;

/* Why a group is lost. */
typedef struct tri_core_loss {
  uint32_t group;
  uint64_t epoch;
  int64_t rank;       /* that has said why it ends; -1: none has */
  tri_status status;  /* of its error; TRI_PEER_LOST where none has said one */
  const char *reason; /* for the call */
} tri_core_loss;

/* Calls of the core on the world. */
typedef struct tri_core_io {
  void *ctx;
  /* TRI_AGAIN: the client is slow, the core tries again later. TRI_CLOSED: it is gone. */
  tri_status (*to_client)(void *ctx, const tri_peer *to, const tri_server_msg *m);
  /* Says what belongs to no job, once: it waits for a slow client, or the client's connection ends. */
  void (*answer)(void *ctx, const tri_peer *to, const tri_server_msg *m);
  /* Tells what to_client would, of a client to which nothing is to be said. */
  tri_status (*look)(void *ctx, const tri_peer *to);
  tri_status (*to_worker)(void *ctx, const tri_peer *to, tri_group_msg *m);
  /* Tokenizes at once into *ids (valid until the next call), or elsewhere, leaving *ids NULL and coming back with
   * tri_core_tokenized. second: see tri_tokenizer_encode_pair. TRI_AGAIN: the queue is full. */
  tri_status (*tokenize)(void *ctx, uint64_t job, const tri_core_text *text, const uint32_t **ids, size_t *count,
                         size_t *second);
  /* Nobody wants a job's tokens any more that are still being worked out. */
  void (*tokenize_stop)(void *ctx, uint64_t job);
  /* A rank has registered with its key, and under the epoch of its group, whatever becomes of it. */
  void (*rank_came)(void *ctx, uint32_t group, uint64_t epoch, uint32_t rank);
  /* A group is beyond help: whoever started it should end it (and may start it again under the next epoch). */
  void (*group_lost)(void *ctx, const tri_core_loss *loss);
  void (*group_ready)(void *ctx, uint32_t group, uint64_t epoch);
  /* A group that hangs is about to be lost: lines of text about its ranks, for the call. */
  void (*hang)(void *ctx, uint32_t group, uint64_t epoch, const char *report, size_t len);
  /* Fills out with numbers that nobody can compute from others: those are names of jobs, and seeds. */
  tri_status (*random)(void *ctx, void *out, size_t len);
  /* Keeps a fact for the next start and returns its number, which grows; 0: it is not kept. NULL: nothing is. */
  uint64_t (*record)(void *ctx, const tri_record *r);
} tri_core_io;

enum { TRI_CORE_MAX_NAMES = 32 }; /* of the model */

struct tri_share; /* fair_queue.h */

typedef struct tri_core_config {
  const char *model_name;
  const char *const *other_names; /* that requests may say, too; borrowed */
  uint32_t num_other_names;
  const tri_model_config *model;    /* borrowed */
  const tri_tokenizer *tokenizer;   /* borrowed; NULL: token ids only */
  const char *other_tokenizer;      /* its file that is not read, for the refusal of a text; NULL: none */
  const tri_labels *labels;         /* borrowed; of a classifier */
  bool pools_as_model;              /* an encoder's pooling is not another than that of its checkpoint */
  uint64_t model_hash;              /* tri_model_config_hash, which workers must have, too; 0: any */
  uint64_t response_cache;          /* bytes of answers that are kept; 0: none are */
  uint64_t most_retained;           /* bytes of jobs that have ended, for clients that come back; 0: any */
  uint32_t tp, pp, dp, ep;          /* the layout that workers must have; 0: any */
  uint32_t num_groups, group_ranks; /* group_ranks: of each */
  /* Borrowed, [num_groups, group_ranks]: the public key of each rank, over whose connections alone it is heard. */
  const uint8_t (*rank_keys)[TRI_OWNER_BYTES];
  bool starts_are_told;          /* tri_core_group_expected tells of each start of a group, and no other may register */
  bool route_by_prefix;          /* groups have prefix caches */
  bool lost_for_good;            /* a group that is lost does not come back */
  uint64_t seed;                 /* of the seeds of requests that bring none; 0: they are random */
  int64_t max_queue;             /* jobs that wait or run */
  int64_t max_queued_per_client; /* the same of one flow; 0: what its share is */
  uint64_t max_queue_bytes;      /* of the memory that those jobs take; 0: any */
  int64_t max_queue_ns;          /* that a job may wait for a group; 0: any time */
  bool by_priority;              /* groups run jobs by their priority */
  bool log_requests;             /* the log has a line for each job that ends; else at its level debug alone */
  const struct tri_share *shares; /* borrowed */
  size_t num_shares;
  int64_t max_prompt;  /* tokens at which the tokenizer gives up */
  int64_t silence_ns;  /* a rank that reports nothing for so long is lost */
  int64_t watchdog_ns; /* a busy group without progress for so long is stalled */
  int64_t lease_ns;    /* from one word to a rank to the next, which keep it from leaving */
  tri_core_io io;
} tri_core_config;

tri_status tri_core_create(const tri_core_config *config, int64_t now, tri_core **out);
void tri_core_destroy(tri_core *c); /* NULL is fine */

/* ---- inputs ---- */

/* Takes a request that has been unpacked. Its strings are borrowed for the call. */
void tri_core_client(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
/* Answers bytes that were no request. */
void tri_core_client_error(tri_core *c, int64_t now, const tri_peer *from, uint64_t id, const tri_error *err);
/* Connections of clients have ended: those that had them are looked for soon. */
void tri_core_connections_ended(tri_core *c, int64_t now, const tri_connections *ended);
void tri_core_tokenized(tri_core *c, int64_t now, uint64_t job, tri_status st, const uint32_t *ids, size_t count,
                        size_t second);
void tri_core_worker(tri_core *c, int64_t now, const tri_peer *from, const tri_group_msg *m);
/* A group has ended, as whoever started it sees: it gets no jobs any more, and is lost as soon as what its ranks may
 * have said before has had time to come, which tells more than `reason`. */
void tri_core_group_died(tri_core *c, int64_t now, uint32_t group, uint64_t epoch, const char *reason);
/* A start of a group begins, or was begun before: from now on no other of it may register that has not. */
void tri_core_group_expected(tri_core *c, uint32_t group, uint64_t epoch);
/* A group that has ended is not started again for some time: for a status. */
typedef enum tri_core_hold { TRI_CORE_NOT_HELD, TRI_CORE_GIVEN_UP, TRI_CORE_QUARANTINED } tri_core_hold;
void tri_core_group_held(tri_core *c, uint32_t group, tri_core_hold hold, int64_t until_ns, const char *reason);
/* Records up to this number are durable: what was accepted with them is told. */
void tri_core_durable(tri_core *c, int64_t now, uint64_t number);
/* Says that there is no room for records in the journal's folder, which stays where it is: then no new job is taken.
 * NULL: there is. */
void tri_core_set_full(tri_core *c, const char *folder);
/* Says whether jobs have all of the memory that there is: then no new job is taken. */
void tri_core_set_crowded(tri_core *c, bool crowded);
/* Makes the jobs of an earlier start anew, from its records in their order, before anything else comes in; age_ns: of
 * the record. Behind the last one, tri_core_restored. TRI_NO_MEMORY: a job, or a part of one, is not there. */
tri_status tri_core_restore(tri_core *c, int64_t now, int64_t age_ns, const tri_record *r, uint64_t number);
void tri_core_restored(tri_core *c, int64_t now);
/* The same of a record that has all of a job: false where the job is to be made from its parts, as what was in front of
 * it is not there. */
bool tri_core_restore_whole(tri_core *c, uint64_t job, uint64_t number);
/* Records jobs anew whose first record has a number before this, oldest first and some of them in one call. room: bytes
 * that there are for the first one, 0: as many as there always are. */
void tri_core_compact(tri_core *c, int64_t now, uint64_t before, size_t room);
/* Records all jobs anew that have not ended. */
void tri_core_record_again(tri_core *c, int64_t now);
/* Returns how much room the first one needs that has more than there always is; 0: there is none such. */
size_t tri_core_compact_room(const tri_core *c, uint64_t before);
/* Says that the coordinator stood still itself until now, as one that was stopped or whose disk did: ranks have
 * reported what has not been read, and the watchdog judges nobody for the time from one report to the next. */
void tri_core_stood_still(tri_core *c, int64_t now);
/* Sees to deadlines, leases, retries and the watchdog. Called about ten times a second. */
void tri_core_tick(tri_core *c, int64_t now);
/* Takes no new work; groups are told to leave when the last job has ended. Nobody is judged, as what ranks have
 * reported may come behind the request to end. */
void tri_core_drain(tri_core *c);
/* Ends every job with an error, here and in its group: the cluster goes down. */
void tri_core_abandon(tri_core *c, int64_t now, const char *reason);

/* ---- questions ---- */

/* Returns the number of the oldest record that a restart needs; UINT64_MAX: it needs none. */
uint64_t tri_core_oldest_record(const tri_core *c);
/* Returns whether the next start may be asked for a job: one that has not ended, or whose client has gone before it was
 * told. */
bool tri_core_owes(const tri_core *c);
uint64_t tri_core_record_bytes(const tri_core *c); /* about, of records of all jobs that have not ended */
bool tri_core_is_idle(const tri_core *c);          /* no job that has not ended, none whose end is undelivered */
/* Counts of jobs, tokens and KV blocks, for whoever tells of them now and then. */
typedef struct tri_core_load {
  uint64_t running, waiting;                 /* jobs with a first token, or in an encoder's group; jobs before it */
  uint64_t prompt_tokens, generation_tokens; /* since the start: accepted, drawn */
  uint64_t kv_blocks, kv_blocks_used;        /* of all groups, by their last reports */
  uint64_t prefix_queries, prefix_hits;      /* likewise, tokens since the groups' starts */
} tri_core_load;
void tri_core_load_of(const tri_core *c, tri_core_load *out);
/* Facts for status replies that the shell knows and the core does not. */
typedef struct tri_core_facts {
  double resident_mb, cpu_s, cpu_us_per_token, tokens_per_second; /* cpu_s: since the start */
  uint64_t refused_connections, cut_connections;                  /* likewise */
} tri_core_facts;
void tri_core_set_facts(tri_core *c, const tri_core_facts *facts);
uint64_t tri_core_generated_tokens(const tri_core *c);
uint64_t tri_core_cached_bytes(const tri_core *c); /* memory of the response cache */
uint64_t tri_core_job_bytes(const tri_core *c);    /* of jobs, also of those that have ended */
uint64_t tri_core_lost(const tri_core *c); /* jobs that were under way when a drain or an abandon began, and failed */

#endif
