/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's engine: slots, KV cache, weights and forward pass behind one call per step. It executes plans and decides
 * nothing.
 *
 * Life of an engine: tri_engine_create reads the config, agrees with the other ranks on limits, loads weights and
 * takes all memory; tri_engine_begin and tri_engine_poll run steps; tri_engine_destroy frees. One thread uses it, but
 * for `progress`, which any thread may read. After an error of a step only destroy may follow: the ranks have lost
 * step with one another. */
#ifndef TRI_RUNTIME_ENGINE_ENGINE_H
#define TRI_RUNTIME_ENGINE_ENGINE_H

#include "runtime/step/batch.h"
#include "runtime/forward/forward.h"
#include "runtime/step/replica.h"
#include "runtime/engine/ledger.h"
#include "runtime/engine/offload.h"
#include "runtime/forward/seq2seq_encoder.h"
#include "runtime/step/step_plan.h"

struct tri_engine;

typedef enum tri_load_format { TRI_LOAD_AUTO, TRI_LOAD_SAFETENSORS, TRI_LOAD_DUMMY } tri_load_format;

typedef struct tri_engine_config {
  const char *model_dir;
  tri_config_rules config_rules; /* of keys of config.json that are not understood */
  tri_load_format load_format;
  uint64_t seed;                            /* of dummy weights */
  tri_dtype dtype;                          /* of matrices in memory; TRI_DTYPE_COUNT: as stored */
  tri_dtype kv_dtype;                       /* TRI_DTYPE_COUNT: see tri_kv_dtype */
  tri_quantization quantization;            /* AUTO: see tri_stored_quantization; all ranks must prefer FP8 */
  int max_num_seqs, max_num_batched_tokens; /* 0: see tri_limits_config */
  int block_size;                           /* 0: see tri_limits_block_size */
  int64_t max_model_len;                    /* 0: the model's */
  int64_t kv_bytes;                         /* for this rank's KV blocks; 0: as tri_ledger_config has it */
  int num_kv_blocks;                        /* not 0: exactly so many */
  bool prefix_caching;                      /* of decoders */
  int local_ranks;                          /* processes that share this host's memory */
  bool encoders;       /* the caller runs encoders; others refuse them here, since they generate nothing */
  tri_pooling pooling; /* see tri_model_config_pool */
  bool autotune;       /* see tri_tune */
  int all2all;         /* of several data-parallel ranks: a tri_all2all_form, or TRI_ALL2ALL_FORMS for the fastest */
  int all2all_rows;    /* see tri_limits */
  tri_offload_config offload; /* of what may leave memory; its tier NONE: no weights do */
  /* See tri_expert_placement_config. */
  tri_expert_strategy expert_strategy;
  int num_redundant_experts;
  const char *expert_location; /* may be NULL */
  bool experts_move;
  tri_observer observer;
  /* Asked where max_num_batched_tokens is 0 and weights of this rank are streamed in chunks. Returns from how many
   * tokens on the products of a step take as long as a pass of the weights, by the engine's model, shard and ledger; 0:
   * not known. `most` is enough for an answer. NULL: a step has as many tokens as others. */
  int64_t (*hiding_tokens)(void *ctx, const struct tri_engine *e, int64_t most);
  void *hiding_ctx;
  /* Called by a rank that cannot load, while others may do so for minutes: a process whose end ends theirs does not
   * wait for them. NULL: it waits, and the call that creates the engine returns. */
  void (*leave)(void *ctx, tri_status st, const tri_error *err);
  void *leave_ctx;
} tri_engine_config;

enum { TRI_ENGINE_DEPTH = TRI_STEP_EVENTS };

/* A step that was begun, for its end. */
typedef struct tri_engine_step_state {
  uint64_t step;
  uint32_t micro_batch;
  int num_samples;
  tri_sample_row *samples;    /* [max_num_seqs] */
  tri_sample_result *results; /* [max_num_seqs], where the backend's downloads reach it */
} tri_engine_step_state;

typedef struct tri_expert_transfer tri_expert_transfer; /* expert_transfer.h */

typedef struct tri_engine {
  tri_model_config model;
  tri_expert_placement *placement; /* NULL: linear */
  tri_expert_transfer *transfer;   /* NULL: experts stay where they are */
  tri_shard shard;
  tri_quantization quantization; /* of its weights: never AUTO */
  tri_limits limits;             /* the same on every rank of a replica */
  tri_ledger ledger;             /* what this rank's memory is for, as it was known before anything was loaded */
  uint64_t shard_block_bytes;    /* of a KV block, on all ranks that hold a part of it */
  int num_micro_batches;         /* as many as stages */
  tri_backend *backend;
  tri_replica *replica;
  tri_all2all *all2all; /* of several data-parallel ranks, else NULL */
  tri_all2all_choice all2all_choice;
  tri_comm *device_tensor, *device_column,
      *device_world; /* the replica's, for the backend's memory; NULL where the host's serve */
  tri_backend *host; /* which computes the experts on the host; NULL: there are none */
  tri_weights *weights;
  tri_checkpoint *ckpt;      /* open while weights come from it */
  tri_tiers *tiers;          /* of weights that are streamed, else NULL */
  bool replica_streams;      /* some rank's are */
  int hiding_tokens;         /* of a step, from which on products hide the weights of every rank that streams some, or
                              * as many as a step has; 0: none streams, or a step's tokens are given */
  double swap_block_seconds; /* that a KV block of the slowest rank takes to the host's memory and back; 0: none goes */
  double streamed_layer_seconds; /* that a layer of the slowest rank takes to come; 0: no rank streams */
  tri_offload *offload;          /* the same */
  tri_split *split;              /* with data-parallel ranks of this host that stream, too, else NULL */
  size_t host_room;              /* with those: see tri_offload_ranks */
  tri_kv_cache *kv;
  tri_slots *slots;
  tri_batch_builder *batch;
  tri_forward *forward;
  tri_hot_experts *hot; /* the forward pass's, or NULL */
  tri_source *source;   /* NULL but for encoder-decoders */
  tri_progress progress;
  int depth;                                     /* steps that may be begun and not ended, */
  int micro_batch_depth;                         /* and of one micro-batch */
  tri_engine_step_state steps[TRI_ENGINE_DEPTH]; /* the oldest of those under way is `first` */
  int first, num_steps;
  tri_wait_policy wait_policy; /* for who waits for a step: never asleep, as the next one may wait for that */
  uint32_t
      *sampled; /* [max_num_seqs] the last step's samples in the backend's memory; NULL where micro_batch_depth is 1 */
  tri_step_result result;
  tri_encoder_output encoder_output; /* of the last step of an encoder, on the sampling rank */
  /* arguments of the sampler, [max_num_seqs] */
  const tri_sample_params **sample_params;
  tri_sample_params *row_params;
  const uint32_t **history;
  int *num_prompt, *num_history;
  uint64_t *counters;
  uint32_t *targets;
  bool *fresh;
  int *sequence;
  /* of the sampling rank of a device, else NULL */
  uint32_t *counts; /* [max_num_seqs, vocab_size] by slot: see tri_sample_args */
  size_t counts_bytes;
  tri_counted *counted; /* [max_num_seqs] by slot */
  float *sample_logits; /* gathered rows where not every row of logits is sampled from; the backend's memory */
  size_t sample_bytes;
  float *answer; /* an encoder's, on the host, where the backend's memory is elsewhere */
} tri_engine;

/* Collective over the replica: every rank calls it, and all fail together when one does. backend and replica stay the
 * caller's. */
tri_status tri_engine_create(const tri_engine_config *config, tri_backend *backend, tri_replica *replica,
                             tri_engine **out, tri_error *err);
void tri_engine_destroy(tri_engine *e); /* NULL is fine */

/* Sets this rank's share of a plan going. Where the backend works by itself, `depth` steps may be under way, so that
 * the device goes from one to the next without waiting for the host (ids that the host has yet to see go from step to
 * step on the device); the caller sees to it that no more are. Allocates nothing, and does not need the plan's bytes
 * when it has returned. TRI_INVALID_ARGUMENT: `depth` steps are under way. TRI_CORRUPT: the plan does not fit the
 * slots. */
tri_status tri_engine_begin(tri_engine *e, const void *plan, size_t bytes);
/* TRI_OK: the oldest step under way has ended. On the sampling rank *result points to what was sampled (until the next
 * poll); elsewhere it is NULL. TRI_AGAIN: not yet. */
tri_status tri_engine_poll(tri_engine *e, const tri_step_result **result);
/* Both in one, with nothing else under way. */
tri_status tri_engine_step(tri_engine *e, const void *plan, size_t bytes, const tri_step_result **result);

/* Returns why a step failed with st, in the backend's words where it has any. */
const char *tri_engine_failure(const tri_engine *e, tri_status st);

#endif
