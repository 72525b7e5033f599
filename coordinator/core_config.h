/* SPDX-License-Identifier: Apache-2.0 */
/* The input of a core: its configuration and its calls on the world. */
#ifndef TRI_COORDINATOR_CORE_CONFIG_H
#define TRI_COORDINATOR_CORE_CONFIG_H

#include "comm/wire/client.h"
#include "comm/wire/replica.h"
#include "comm/wire/peer.h"
#include "coordinator/record.h"
#include "runtime/model/config.h"
#include "runtime/model/labels.h"
#include "runtime/model/prompts.h"
#include "text/tokenizer/tokenizer.h"

typedef struct tri_core tri_core;

/* A text to be tokenized, and a schema to be looked at: both take time that the loop does not have. */
typedef struct tri_core_text {
  const tri_peer *from;    /* whose turn it waits for; NULL: of none */
  tri_wire_str text, pair; /* pair.s NULL: it is no pair */
  const uint32_t *ids;     /* with text.s NULL: there are tokens already, which are what comes of it */
  size_t num_ids;
  tri_wire_str schema;  /* that an answer must fit: refused here where it cannot be kept; NULL: none */
  tri_wire_frame frame; /* around it */
  bool special;         /* with the special tokens of the tokenizer's template, as a pair always is */
  size_t truncate_to;   /* with more tokens it loses its end, and has the special ones in any case; 0: it is refused */
  bool keep_end;        /* then it loses its beginning, and has the special ones if it is to have any */
} tri_core_text;

/* Why a replica is lost. */
typedef struct tri_core_loss {
  uint32_t replica;
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
  tri_status (*to_worker)(void *ctx, const tri_peer *to, tri_replica_msg *m);
  /* Tokenizes at once into *ids (valid until the next call), or elsewhere, leaving *ids NULL and coming back with
   * tri_core_tokenized, as it does with every schema. second: see tri_tokenizer_encode_pair. TRI_AGAIN: the queue is
   * full. */
  tri_status (*tokenize)(void *ctx, uint64_t job, const tri_core_text *text, const uint32_t **ids, size_t *count,
                         size_t *second);
  /* A job's tokens that are still being worked out are not wanted any more. */
  void (*tokenize_stop)(void *ctx, uint64_t job);
  /* A rank has registered with its key, and under the epoch of its replica, whatever becomes of it. */
  void (*rank_came)(void *ctx, uint32_t replica, uint64_t epoch, uint32_t rank);
  /* A replica is beyond help: its supervisor should end it (and may start it again under the next epoch). */
  void (*replica_lost)(void *ctx, const tri_core_loss *loss);
  void (*replica_ready)(void *ctx, uint32_t replica, uint64_t epoch);
  /* A replica that hangs is about to be lost: lines of text about its ranks, for the call. */
  void (*hang)(void *ctx, uint32_t replica, uint64_t epoch, const char *report, size_t len);
  /* Fills out with numbers that cannot be computed from others: those are names of jobs, and seeds. */
  tri_status (*random)(void *ctx, void *out, size_t len);
  /* Keeps a fact for the next start and returns its number, which grows; 0: it is not kept. NULL: nothing is. */
  uint64_t (*record)(void *ctx, const tri_record *r);
} tri_core_io;

enum { TRI_CORE_MAX_NAMES = 32 }; /* of the model */

struct tri_share; /* queue/shares.h */

typedef struct tri_core_config {
  const char *model_name;
  const char *const *other_names; /* that requests may say, too; borrowed */
  uint32_t num_other_names;
  const tri_model_config *model;        /* borrowed */
  const tri_tokenizer *tokenizer;       /* borrowed; NULL: token ids only */
  const char *other_tokenizer;          /* its file that is not read, for the refusal of a text; NULL: none */
  const tri_labels *labels;             /* borrowed; of a classifier */
  const tri_prompts *prompts;           /* borrowed; that texts to embed may begin with; NULL: none */
  bool pools_as_model;                  /* an encoder's pooling is not another than that of its checkpoint */
  uint64_t model_hash;                  /* tri_model_config_hash, which workers must have, too; 0: any */
  uint64_t response_cache;              /* bytes of answers that are kept; 0: none are */
  uint64_t most_retained;               /* bytes of jobs that have ended, for clients that return; 0: any */
  uint32_t tp, pp, dp, ep;              /* the layout that workers must have; 0: any */
  uint32_t num_replicas, replica_ranks; /* replica_ranks: of each */
  /* Borrowed, [num_replicas, replica_ranks]: the public key of each rank, over whose connections alone it is heard. */
  const uint8_t (*rank_keys)[TRI_OWNER_BYTES];
  bool starts_are_told; /* tri_core_replica_expected tells of each start of a replica, and no other may register */
  bool route_by_prefix; /* replicas have prefix caches */
  bool lost_for_good;   /* a replica that is lost does not return */
  uint64_t seed;        /* of the seeds of requests that bring none; 0: they are random */
  int64_t max_queue;    /* jobs that wait or run */
  int64_t max_queued_per_client;  /* the same of one flow; 0: what its share is */
  uint64_t max_queue_bytes;       /* of the memory that those jobs take; 0: any */
  int64_t max_queue_ns;           /* that a job may wait for a replica; 0: any time */
  bool by_priority;               /* replicas run jobs by their priority */
  bool log_requests;              /* the log has a line for each job that ends; else at its level debug alone */
  const struct tri_share *shares; /* borrowed */
  size_t num_shares;
  int64_t max_prompt;  /* tokens at which the tokenizer gives up */
  int64_t silence_ns;  /* a rank that reports nothing for so long is lost */
  int64_t watchdog_ns; /* a busy replica without progress for so long is stalled */
  int64_t lease_ns;    /* from one word to a rank to the next, which keep it from leaving */
  tri_core_io io;
} tri_core_config;

/* A replica that has ended is not started again for some time: for a status. */
typedef enum tri_core_hold { TRI_CORE_NOT_HELD, TRI_CORE_GIVEN_UP, TRI_CORE_QUARANTINED } tri_core_hold;

/* Facts for status replies that the server knows and the core does not. */
typedef struct tri_core_facts {
  double resident_mb, cpu_s, cpu_us_per_token, tokens_per_second; /* cpu_s: since the start */
  uint64_t refused_connections, cut_connections;                  /* likewise */
} tri_core_facts;

/* Counts of jobs, tokens and KV blocks, for periodic reports. */
typedef struct tri_core_load {
  uint64_t running, waiting;                 /* jobs with a first token, or in an encoder's replica; jobs before it */
  uint64_t prompt_tokens, generation_tokens; /* since the start: accepted, drawn */
  uint64_t kv_blocks, kv_blocks_used;        /* of all replicas, by their last reports */
  uint64_t prefix_queries, prefix_hits;      /* likewise, tokens since the replicas' starts */
  bool encoder;                              /* the model generates nothing, and keeps no KV cache */
} tri_core_load;

#endif
