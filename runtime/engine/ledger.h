/* SPDX-License-Identifier: Apache-2.0 */
/* The byte ledger: what a rank's memory is spent on, known before anything is loaded. `trireme plan` prints it and a
 * worker obeys it.
 *
 * A ledger follows from its arguments alone, so that ranks with the same arguments, and a plan on another machine,
 * come to the same numbers. Sizes are bytes of one rank. */
#ifndef TRI_RUNTIME_ENGINE_LEDGER_H
#define TRI_RUNTIME_ENGINE_LEDGER_H

#include "runtime/engine/offload_plan.h"
#include "runtime/step/batch.h"
#include "runtime/model/layout.h"
#include "runtime/model/safetensors.h"

typedef struct tri_ledger_config {
  tri_dtype dtype, kv_dtype; /* dtype TRI_DTYPE_COUNT: as stored */
  tri_quantization quantization;
  int64_t memory;    /* bytes that the rank may use; 0: no limit known */
  int64_t kv_bytes;  /* asked for; 0: what full slots need, at most a fourth of what is left, of a device's all of it */
  int num_kv_blocks; /* not 0: exactly so many */
  bool device;       /* memory is a device's, which also holds workspaces and what the driver takes */
  bool deterministic;
  const tri_offload_config *offload; /* NULL: all weights stay, and KV blocks */
} tri_ledger_config;

typedef struct tri_ledger {
  bool encoder;   /* its K and V are those of steps under way: no cache */
  size_t weights, /* in memory, with what streamed ones come through */
      activations, kv, block_bytes;
  size_t workspace;      /* device only: the most that one op's scratch takes, on the side stream and elsewhere */
  size_t side_workspace; /* of it, the side stream's */
  size_t
      reserve; /* device only: recorded steps, communicators, what copies go through, what samples count and ask for */
  size_t all2all; /* what rows of several data-parallel ranks go through */
  /* of weights that are streamed, else 0 */
  bool streams;
  size_t weights_room; /* for tri_offload_plan */
  size_t ring;         /* of the weights: what streamed ones come through */
  size_t streamed;     /* that come from files in every step */
  size_t common;    /* of these, that all data-parallel ranks of a replica have, and those of one host read once; 0: one
                       data-parallel rank */
  int chunk_tokens; /* see tri_limits */
  size_t reads;     /* what reads of files go through */
  size_t source_weights; /* of the weights: those of an encoder-decoder's encoder */
  int64_t num_blocks;
  int64_t kv_tokens; /* that fit */
  size_t host_kv;    /* KV blocks in the host's memory, of which a rank without a device has no other */
  int64_t num_host_blocks;
  size_t host_experts;               /* experts in host memory of a rank with a device: no part of the weights above */
  int hot_experts;                   /* of each layer, that lie on the device, too */
  size_t hot;                        /* what these take there: no part of the weights above */
  tri_dtype weight_type, table_type; /* of layers' matrices, of the embedding */
  tri_dtype gemm_type;               /* of what goes into products; other activations are float32 */
} tri_ledger;

/* ckpt may be NULL (dummy weights). TRI_NO_CAPACITY, with the numbers, when it does not fit: *out then has what would
 * be needed at least. limits->num_blocks is not read. Allocates nothing that stays; takes milliseconds, as it plans
 * the arena and walks over all weights. */
tri_status tri_ledger_make(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                           const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                           tri_ledger *out, tri_error *err);

/* Returns the tokens of a step that a rank has memory for: so many as are wanted, or fewer, but at least the limits'
 * own, for which `usual` was made. More of them take memory for activations: at most an eighth more weights stream for
 * that, and the ring and the KV cache keep seven eighths of what they have. */
int tri_ledger_step_tokens(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                           const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                           const tri_ledger *usual, int wanted);

/* "80 bytes", "1.5 KiB", "512.0 MiB"; returns out. */
enum { TRI_MEMORY_TEXT = 32 };
const char *tri_memory_text(uint64_t bytes, char out[TRI_MEMORY_TEXT]);

/* The lines, "weights 12.0 MiB + activations 3.0 MiB + ...", for messages. */
enum { TRI_LEDGER_TEXT = 512 };
void tri_ledger_text(const tri_ledger *l, char out[TRI_LEDGER_TEXT]);

/* Returns TRI_NO_CAPACITY, with a message that a rank may use less memory (bytes) than the ledger's lines are together.
 * one_len: max_model_len where the KV cache is that of one such sequence; else 0. */
tri_status tri_ledger_refuse(const tri_ledger *l, int64_t memory, int one_len, tri_error *err);

#endif
