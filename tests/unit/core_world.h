/* SPDX-License-Identifier: Apache-2.0 */
/* The world in which the coordinator's core is tested: it keeps a transcript of every client's stream and checks on
 * every message what must hold for all of them (accepted first, then tokens without gap or repetition, then one end and
 * nothing more). */
#ifndef TRI_TESTS_UNIT_CORE_WORLD_H
#define TRI_TESTS_UNIT_CORE_WORLD_H

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/core.h"

enum { MAX_STREAMS = 256, MAX_CHOICES = 4, MAX_TOKENS = 256, MAX_TEXT = 4096, MAX_ASSIGNS = 64, MAX_PEERS = 8 };
enum { MAX_REPLICAS = 8, REPLICA_RANKS = 16 }; /* that have keys */
enum { MODEL_LEN = 128, SLOTS = 8, MAX_QUEUE = 40 };
enum { STATS_BYTES = 16384 };
#define SECOND 1000000000LL
#define MS 1000000LL

extern tri_tokenizer *tokenizer; /* while a test case runs */
extern uint32_t byte_token[256]; /* the tokens of one byte each */
extern char *token_text[8192];   /* every token's bytes */
extern size_t token_len[8192];

/* ---- the world ---- */

struct stream {
  tri_peer peer;
  uint64_t id;
  int accepted, messages;
  bool existing, cached, done, timed_out, closed;
  int pass, again; /* after `pass` more messages, `again` meet a full queue */
  tri_request_id request_id;
  uint64_t prompt_tokens;
  struct text {
    uint32_t ids[MAX_TOKENS];
    size_t num, len;
    size_t len_after[MAX_TOKENS + 1]; /* len once so many tokens were there */
    char text[MAX_TEXT];
    int num_logprobs, num_alternatives;
    char pieces[64]; /* the texts of the first tokens with logprobs, one after the other */
    tri_finish reason;
    int64_t stop_string, stop_token_id; /* -1: none of them */
  } choice[MAX_CHOICES];
  float scored[MAX_TOKENS]; /* logprobs of the prompt */
  char scored_pieces[64];   /* the texts of its first tokens */
  size_t num_scored;
  uint64_t completion_tokens;
  uint32_t preemptions;
  uint64_t cached_tokens;
  double queue_ms;
  uint64_t seed;
  float values[4]; /* of an encoder's answer, the first ones */
  size_t num_values;
  char code[64], field[96], message[400];
};

struct assigned {
  tri_replica_assign a;
  tri_peer to;
  uint32_t ids[MAX_TOKENS], sampled[MAX_TOKENS], counts[MAX_CHOICES];
  char salt[16];
};

struct world {
  tri_core *core;
  tri_model_config model;
  int64_t now;
  struct stream streams[MAX_STREAMS];
  int num_streams;
  struct assigned assigns[MAX_ASSIGNS];
  int num_assigns;
  uint64_t aborts[MAX_ASSIGNS];
  int num_aborts, drains, leases, lost, ready;
  uint64_t clients;         /* as the last status reply counts them */
  tri_rank_status ranks[8]; /* of that reply, the first ones; their strings mean nothing */
  int measures, floors_answers, counts, experts_answers;
  char experts[1024];         /* JSON */
  tri_cluster_status *status; /* where a status reply goes, or NULL */
  char *stats;                /* [STATS_BYTES] where the text of a stats reply goes, or NULL */
  tri_cluster_rooflines rooflines;
  tri_peer lost_peer; /* of a rank: its connection has ended */
  bool welcome, refuse_tokenize, tokenize_now;
  size_t tokenize_schema, tokenize_ids; /* bytes of the schema, and tokens, that came with the last text */
  const uint32_t *now_ids;
  size_t num_now_ids;
  tri_status tokenize_now_status;
  tri_core_loss loss; /* the last one; its reason is lost_reason */
  char welcome_text[256], lost_reason[400];
  uint64_t tokenize_job, stopped_job;
  char tokenize_text[MAX_TEXT];
  size_t tokenize_len;
  bool tokenize_special, tokenize_end;
  size_t tokenize_to;
  int tokenizes, looks;
  int hangs;
  int came; /* ranks, each time that one registered */
  uint8_t keys[MAX_REPLICAS * REPLICA_RANKS][TRI_OWNER_BYTES];
  char report[4096];             /* of the last hang */
  double layer_seconds;          /* that replicas say when they are ready */
  uint8_t randoms;               /* the next random byte */
  struct tri_recorder *recorder; /* NULL: facts are kept nowhere */
};

/* A test case whose tests have the tokenizer. */
TCase *add_case(Suite *suite, const char *name);

struct world *world_create(uint32_t replicas);
/* The same where nobody tells of starts of replicas. */
struct world *world_create_alone(uint32_t replicas);
/* Whose workers must have this model and layout (0: any). */
struct world *world_create_for(uint32_t replicas, uint64_t model_hash, uint32_t tp, uint32_t pp);
/* A world without replicas that are ready, whose limits of the queue and weights are those of limits: its members from
 * max_queue to num_shares count. */
struct world *world_create_sharing(const tri_core_config *limits);
/* A world of one replica that is ready, with a response cache of so many bytes. */
struct world *world_create_caching(uint64_t response_cache);
void world_destroy(struct world *w);
void tick(struct world *w, int64_t ns);

/* ---- replicas ---- */

/* The connection of a rank, which has the rank's key. */
tri_peer rank_peer(uint32_t replica, uint64_t epoch, uint32_t rank);
void send_worker(struct world *w, uint32_t replica, uint64_t epoch, uint32_t rank, const tri_replica_msg *m);
/* Returns what a rank of a replica with the world's limits registers. */
tri_replica_msg registration(uint32_t replica, uint64_t epoch, uint32_t rank, uint32_t world);
bool send_register(struct world *w, uint32_t replica, uint64_t epoch, uint32_t rank, uint32_t world);
void send_ready(struct world *w, uint32_t replica, uint64_t epoch);
/* The first start of each replica is told of when the world is created, others here. */
void start_replica(struct world *w, uint32_t replica, uint64_t epoch, uint32_t world);
void send_health(struct world *w, uint32_t replica, uint64_t epoch, uint32_t rank, uint64_t step, bool busy);
void send_tokens(struct world *w, uint32_t replica, uint64_t epoch, const tri_replica_token *t, uint32_t num);
/* One token of a job of replica 0 in some epoch, with its log probability and two alternatives; token: in epoch 1. */
void token_of(struct world *w, uint64_t epoch, uint64_t job, uint32_t choice, uint64_t offset, uint32_t id, int flags,
              tri_finish reason);
void token(struct world *w, uint64_t job, uint32_t choice, uint64_t offset, uint32_t id, int flags, tri_finish reason);
/* The text as tokens of one byte each; the last one ends the choice. */
void bytes(struct world *w, uint64_t job, uint32_t choice, const char *text);

/* ---- clients ---- */

extern const uint32_t some_ids[3];
/* A peer's name may have an owner: "a@x" and "b@x" are two connections of one, "a" is nobody's. */
struct stream *open_stream(struct world *w, const char *peer, uint64_t id);
tri_client_msg submit_msg(uint64_t id);
void set_stop(tri_client_msg *m, const char *stop);
struct stream *submit(struct world *w, const char *peer, const tri_client_msg *m);
/* The stream of a client that has the first `offset` tokens, with their text, from another stream. */
struct stream *attach(struct world *w, uint64_t id, const struct stream *from, uint64_t offset);
struct stream *attach_as(struct world *w, const char *peer, uint64_t id, const struct stream *from);
struct stream *cancel(struct world *w, const char *peer, uint64_t id, const struct stream *whom);
void expect_text(const struct stream *s, int choice, const char *want);
void expect_error(const struct stream *s, const char *code, const char *field);
uint64_t last_job(const struct world *w);

#endif
