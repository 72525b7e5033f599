/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a step, from a deployment's options and a model: the engine and `trireme plan` agree by it. */
#ifndef TRI_RUNTIME_STEP_LIMITS_H
#define TRI_RUNTIME_STEP_LIMITS_H

#include "runtime/step/batch.h"
#include "runtime/model/config.h"

typedef struct tri_limits_config {
  int max_num_seqs, max_num_batched_tokens; /* 0: what suits the backend, and the other one of the two */
  int block_size;                           /* 0: tri_limits_block_size */
  int64_t max_model_len;                    /* 0: the model's */
  bool device;                              /* the backend works concurrently with the host: it wants larger steps, */
  bool host_experts;                        /* but not where the host computes its experts */
} tri_limits_config;

/* Returns the tokens of a KV block where so many were asked for, 0 being what suits the backend. A device's attention
 * copies keys by the block, and few large copies take less time than many small ones; a host wants little space lost in
 * the last block of each sequence. */
int tri_limits_block_size(int asked, bool device);

/* Everything but num_blocks, which depends on memory, and max_num_logits. err names the option that does not fit. */
tri_status tri_limits_make(const tri_model_config *c, const tri_limits_config *config, tri_limits *out, tri_error *err);

/* Returns whether a sequence may become longer than the model was made for: rotary positions can be stretched on
 * request, and who does it is warned. */
bool tri_limits_stretch(const tri_model_config *c, const tri_limits *l);

#endif
