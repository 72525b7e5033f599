/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder of an encoder-decoder: a model of its own next to the decoder, which lends it its embedding and, for the
 * blocks of the sources, the memory of its first layer's keys and values. */
#ifndef TRI_RUNTIME_FORWARD_SEQ2SEQ_ENCODER_H
#define TRI_RUNTIME_FORWARD_SEQ2SEQ_ENCODER_H

#include "runtime/forward/forward.h"

typedef struct tri_source {
  tri_model_config model;
  tri_weights *weights; /* without the embedding */
  tri_kv_cache *kv;
  tri_forward *forward;
} tri_source;

/* For the decoder in `decoder`. ckpt NULL: dummy weights of the seed. What `decoder` points to outlives it; its
 * weights are read (the embedding) and its cache is written. */
tri_status tri_source_create(const tri_forward_config *decoder, const tri_checkpoint *ckpt, tri_dtype dtype,
                             tri_quantization quantization, uint64_t seed, tri_source **out, tri_error *err);
void tri_source_destroy(tri_source *s); /* NULL is fine */

/* Computes the builder's sources, if it has any, and fills the decoder's cache with their keys and values. Called
 * before the decoder's own step, on the same stream. Every tensor rank has the states. */
tri_status tri_source_run(tri_source *s, const tri_batch_builder *builder, int micro_batch, tri_forward *decoder);

#endif
