/* SPDX-License-Identifier: Apache-2.0 */
/* The result of an encoder's step, and its bytes on the way from the sampling rank to the leader: rows of pooled
 * vectors or of a classifier's logits, in the order of the plan's sequences. Host order, as plans are. */
#ifndef TRI_RUNTIME_ENGINE_EMBED_RESULT_H
#define TRI_RUNTIME_ENGINE_EMBED_RESULT_H

#include "runtime/forward/forward.h"

typedef struct tri_embed_result {
  uint64_t step;
  uint32_t micro_batch;
  tri_mat values; /* a row per sequence, or, of a token classifier, per token */
} tri_embed_result;

/* The most of it that one step can give. False on overflow. */
bool tri_embed_result_max(const tri_model_config *c, const tri_limits *limits, size_t *rows, size_t *cols);

/* Returns the result of an encoder's step: the scores where there are any, else what was pooled. */
static inline tri_mat tri_embed_values(const tri_encoder_output *e) { return e->scores.data ? e->scores : e->pooled; }

/* Returns the bytes of a packed result of rows * cols float32 numbers, with its header. */
size_t tri_embed_result_bytes(size_t rows, size_t cols);
/* 0: does not fit. */
size_t tri_embed_result_pack(const tri_embed_result *r, void *buf, size_t cap);
/* *out points into buf, which is aligned as memory from tri_malloc is. */
tri_status tri_embed_result_unpack(void *buf, size_t len, size_t most_rows, size_t cols, tri_embed_result *out);

#endif
