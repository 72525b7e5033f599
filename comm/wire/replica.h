/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the coordinator and the workers of a replica (their own socket, their own keys). Packed like
 * comm/wire/client.h. Every worker reports its health; the leader alone gets jobs. Sequence numbers run in both
 * directions. */
#ifndef TRI_COMM_WIRE_REPLICA_H
#define TRI_COMM_WIRE_REPLICA_H

#include "comm/wire/client.h"

typedef enum tri_replica_op {
  /* worker to coordinator */
  TRI_REPLICA_REGISTER,      /* first message of every rank, over each connection */
  TRI_REPLICA_READY,         /* leader: a canary token has passed through the whole replica */
  TRI_REPLICA_TOKENS,        /* leader: everything one step sampled */
  TRI_REPLICA_HEALTH,        /* every rank, once a second */
  TRI_REPLICA_FAILED,        /* any rank: what ended it */
  TRI_REPLICA_ROOFLINES,     /* any rank: what it has measured */
  TRI_REPLICA_EMBED_RESULTS, /* leader: results of an encoder's step */
  TRI_REPLICA_REFUSED,       /* leader: a job that can never run here, and why */
  TRI_REPLICA_EXPERTS,       /* any rank: the rows of its experts */
  /* coordinator to worker */
  TRI_REPLICA_WELCOME, /* reply to register; refused with an error text when the replica or epoch is not expected */
  TRI_REPLICA_ASSIGN,  /* a job */
  TRI_REPLICA_ABORT,   /* a job, from any state */
  TRI_REPLICA_DRAIN,   /* finish what is there, then leave */
  TRI_REPLICA_LEASE,   /* once a second: the coordinator lives */
  TRI_REPLICA_MEASURE, /* find out what the machine could do at best, if nothing runs */
  TRI_REPLICA_COUNT_EXPERTS, /* tell the rows of the experts */
} tri_replica_op;

typedef struct tri_replica_register {
  tri_wire_str version, host;
  uint32_t replica, rank, world, tp, pp, dp, ep;
  uint64_t epoch;
  int64_t pid;
  uint64_t model_hash;
  uint64_t weights_hash; /* tri_weights_hash; 0: not known */
  uint64_t max_model_len, vocab_size, kv_blocks, block_size, max_num_seqs;
  uint64_t max_num_batched_tokens; /* of a step, over all data-parallel ranks */
  double layer_seconds;            /* of a replica that was ready before, for another coordinator: see ready; else 0 */
} tri_replica_register;

/* Weights that do not stay in a rank's memory; zeros where all do. */
typedef struct tri_replica_stream {
  uint64_t bytes, stall_ns; /* that have come, and that steps have waited for them; since the start */
  uint64_t dram_bytes;      /* of bytes: from the host's memory to a device, */
  uint64_t peer_bytes; /* and read or brought by other data-parallel ranks of the host for this one; the others are from
                          files */
  uint64_t pass_bytes; /* of every pass over the layers */
  uint64_t pass_ns;    /* from the end of the last pass but one to that of the last */
  uint64_t bytes_per_s; /* that the source has shown to give */
} tri_replica_stream;

/* KV blocks of the host's memory, where preempted sequences leave what they have computed; zeros without them. Bytes
 * are those of all ranks that hold a part of a block, since the start. */
typedef struct tri_replica_swaps {
  uint64_t host_kv_blocks, host_kv_blocks_used;
  uint64_t out, in; /* sequences */
  uint64_t out_bytes, in_bytes;
} tri_replica_swaps;

/* A leader's prefix cache since the start; zeros without one. */
typedef struct tri_replica_prefixes {
  uint64_t queries, hits; /* tokens of prompts that were looked for, and of them those that were there */
  uint64_t evictions;     /* KV blocks */
} tri_replica_prefixes;

/* step, layer and collective are how far the rank has come, by which the coordinator's watchdog finds the rank that the
 * others wait for: a rank that is busy and stands still, or has begun fewer collectives than its stage. */
typedef struct tri_replica_health {
  uint32_t replica, rank, exchange;        /* tri_all2all_part */
  uint64_t epoch, step, layer, collective; /* layer: TRI_LAYER_IDLE between steps; collective: how many it has begun */
  bool busy;
  /* leader: sequences, KV blocks; since the start tokens, CPU time of scheduling, preemptions; of the last step the
   * tokens of prompts that it could have with decodes, 0: as many as any step */
  uint32_t running, waiting, prompt_bound;
  uint64_t kv_blocks_used, tokens, scheduler_ns, preemptions;
  uint64_t rearrangements, experts_moved, moving_ns; /* since the start: windows after which experts moved, slots that
                                                        got another one, time that steps waited for it */
  const uint32_t
      *dp_ranks;       /* [dp, 2] of several data-parallel ranks: sequences that run on each, and that wait there */
  size_t num_dp_ranks; /* of those numbers */
  tri_replica_stream stream;
  tri_replica_swaps swaps; /* of the leader */
  tri_replica_prefixes prefixes;
} tri_replica_health;

/* One sequence's output of one step. */
typedef struct tri_replica_token {
  uint64_t job;
  uint32_t choice;
  uint32_t token;
  uint64_t offset;      /* number of this token within the choice */
  uint8_t flags;        /* TRI_TOKEN_* */
  tri_finish reason;    /* with TRI_TOKEN_LAST */
  uint32_t preemptions; /* of the whole job so far; with TRI_TOKEN_PREEMPTED */
  uint64_t waited_ns;   /* between the job's coming and the first step with a part of it; with TRI_TOKEN_WAITED */
  uint32_t cached;      /* tokens of the prompt whose KV blocks were there by then; with TRI_TOKEN_CACHED */
  float logprob;
  int num_top; /* 0: no alternatives */
  const uint32_t *top_ids;
  const float *top_logprobs;
} tri_replica_token;
enum {
  TRI_TOKEN_LAST = 1,       /* the choice has ended */
  TRI_TOKEN_NONE = 2,       /* no token in this entry: the choice ended without one (abort, deadline), or, with
                               TRI_FINISH_ERROR, the whole job, for what `token` says: a tri_token_error */
  TRI_TOKEN_LOGPROB = 4,    /* logprob and alternatives are there */
  TRI_TOKEN_STOP_ID = 8,    /* the token is the end-of-sequence or a stop id and is not part of the text */
  TRI_TOKEN_PREEMPTED = 16, /* sequences of the job gave their KV blocks back since its last entry */
  TRI_TOKEN_WAITED = 32,    /* the first entry of a job that a step has taken in */
  TRI_TOKEN_CACHED = 64,    /* the same entry, where some of its prompt need not be computed */
  TRI_TOKEN_PROMPT = 128,   /* the token is the prompt's at `offset`, which has a logprob; the choice is the first */
};

/* Why a job has no more tokens. */
typedef enum tri_token_error {
  TRI_TOKEN_NO_NUMBERS, /* its logits are none */
  TRI_TOKEN_NO_OTHER,   /* its constraint lets no token come, or the memory that tells which is used up */
} tri_token_error;

typedef struct tri_replica_tokens {
  uint64_t epoch, step;
  uint32_t num;
  const tri_replica_token *tokens;
} tri_replica_tokens;

/* An encoder's result for one job: rows of numbers, one after the other, TRI_WIRE_MAX_RESULT bytes at most. */
typedef struct tri_replica_result {
  uint64_t job;
  uint64_t waited_ns; /* as of a token */
  const float *values;
  size_t num_values;
} tri_replica_result;

typedef struct tri_replica_results {
  uint64_t epoch;
  uint32_t num;
  const tri_replica_result *results;
} tri_replica_results;

/* A rank's experts that are on its device in addition to a host that has all of their layers, since the start; zeros
 * without any. */
typedef struct tri_replica_hot {
  uint64_t slots;                        /* of a layer */
  uint64_t rows, device_rows, exchanges; /* rows of these layers' experts; those that the device has computed */
} tri_replica_hot;

/* The rows that a rank's slots of experts have had, since its start or since experts of their layer last moved. Layers
 * are those with experts, counted over the whole model. */
typedef struct tri_replica_experts {
  uint32_t replica, rank;
  uint64_t epoch, placement; /* placement: how many moves of experts the replica has made */
  uint32_t first_layer, num_layers, first_slot, num_own, num_slots; /* num_slots: of a layer, over all ranks */
  const uint32_t *expert_of;                                        /* [num_layers, num_own] */
  size_t num_expert_of;
  const uint32_t *rows; /* [num_layers, num_own, 2]: the lower 32 bits, then the upper ones */
  size_t num_rows;
  const uint32_t *earlier; /* [num_layers, experts, 2] in its slots before; none where nothing has moved */
  size_t num_earlier;
  tri_replica_hot hot;
} tri_replica_experts;

/* A job for a leader. sampling's stop strings are the coordinator's business and stay there. */
typedef struct tri_replica_assign {
  uint64_t job, epoch;
  uint64_t seed;        /* fixed by the coordinator before it assigns, so that a replay samples the same */
  int64_t remaining_ms; /* to the deadline; -1: none */
  const uint32_t *token_ids;
  size_t num_token_ids;
  uint64_t second_start; /* number of the first token of the second type, of a pair of texts, counted from 1; 0: all are
                            of the first */
  tri_wire_str cache_salt; /* jobs under another one share no KV blocks with it; empty is absent */
  /* Tokens that replicas which were lost have sampled of the job, which continues after them. num_sampled_counts is 0,
   * for a job of which nothing has come, or sampling.n. */
  const uint32_t *sampled; /* tokens of the choices that have not ended, one choice after the other */
  size_t num_sampled;
  const uint32_t *sampled_counts; /* of each choice; TRI_SAMPLED_ENDED: it has ended, and has no tokens here */
  size_t num_sampled_counts;
  uint64_t
      num_scored; /* tokens of the prompt, from its first on, whose log probabilities have come or that have none */
  tri_sampling sampling;
} tri_replica_assign;
#define TRI_SAMPLED_ENDED UINT32_MAX

typedef struct tri_replica_msg {
  tri_replica_op op;
  uint64_t seq;
  union {
    tri_replica_register reg;
    struct {
      uint32_t replica;
      uint64_t epoch;
      double load_seconds;
      double layer_seconds; /* that a layer takes for the largest step, predicted from the canary's time */
      /* The tokens that the canary's logits put first, and for each thousandths of a nat by which its logprob is below
       * 0; none of an encoder. */
      const uint32_t *canary_ids, *canary_millis;
      size_t num_canary_ids, num_canary_millis;
    } ready;
    tri_replica_tokens tokens;
    tri_replica_results embed_results;
    tri_replica_health health;
    struct {
      uint32_t replica, rank;
      uint64_t epoch;
      tri_wire_str code, message, field;
    } failed;
    struct {
      uint64_t job, epoch;
      tri_wire_str code, message, field;
    } refused;
    struct {
      bool ok;
      tri_wire_str message;
    } welcome;
    struct {
      uint32_t replica, rank;
      uint64_t epoch;
      tri_rooflines rooflines;
    } rooflines;
    tri_replica_experts experts;
    tri_replica_assign assign;
    struct {
      uint64_t job;
    } abort;
    struct {
      uint64_t time_ms;
    } lease;
  };
} tri_replica_msg;

tri_status tri_replica_msg_pack(const tri_replica_msg *m, tri_buf *out);
tri_status tri_replica_msg_unpack(const void *data, size_t len, tri_arena *arena, tri_replica_msg *out, tri_error *err);

#endif
