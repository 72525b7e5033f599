/* SPDX-License-Identifier: Apache-2.0 */
/* What the suites about the forward pass's memory share: one rank of a model with made-up weights, and a batch of three
 * prompts for it. */
#ifndef TRI_TESTS_UNIT_ENGINE_KIT_H
#define TRI_TESTS_UNIT_ENGINE_KIT_H

#include "runtime/engine/engine.h"

enum { KIT_SEQS = 3, KIT_TOKENS = 15 /* of all prompts, or of all sources */ };

struct kit {
  tri_backend *be;
  tri_comm world, tensor, column, stage;
  tri_replica replica;
  tri_engine *e;
  tri_plan_writer *w;
};

extern const tri_sample_params kit_params;

typedef struct kit_config {
  const char *checkpoint, *backend;
  bool narrow; /* in 16 bits, with buffers as a device has them, which these backends cannot compute with */
  tri_parallel p;
  const tri_comm_ops *ops; /* of the rank's communicators */
  tri_pooling pooling;
  int max_model_len; /* 0: 16 */
  int all2all, all2all_rows;
  bool deterministic;
  tri_quantization quantization;
  void (*prepare)(tri_backend *be); /* may be NULL */
} kit_config;

/* False: such a model has no such ranks, or no such exchange. The engine keeps addresses of k, which is free_kit's to
 * clear up either way.
 */
bool make_kit(struct kit *k, const kit_config *config);
void free_kit(struct kit *k);

/* The prompts in the engine's batch; of an encoder-decoder the sources, too, and short targets. single: the first token
 * of each, so that all tokens have logits. */
void build_batch(struct kit *k, bool single);

#endif
