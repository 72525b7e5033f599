/* Which tensors a step of an encoder has, how large they are and from which operator to which they live: the input of
 * runtime/forward/activation_plan.h, in the order in which runtime/forward/forward.c and runtime/forward/block.c run
 * the operators.
 *
 * Operators are numbered as they are launched, from 0; what is done in place makes no tensor. The results (the final
 * states, what is pooled, scores) live until one number beyond the last launch, where they are handed out. Attention
 * has no tensor of scores: it works through the keys in pieces, in the backend's workspace. */
#ifndef TRI_WORKER_BENCH_ENCODER_LIVES_H
#define TRI_WORKER_BENCH_ENCODER_LIVES_H

#include "runtime/forward/activation_plan.h"
#include "runtime/model/layout.h"

/* The buffers of forward_state.h's tri_buffers that an encoder uses. */
typedef enum tri_step_buffer {
  TRI_STEP_EMBED, /* before it is projected */
  TRI_STEP_X,     /* residual stream, for the whole step */
  TRI_STEP_H,     /* normed input of a product, where norms come first */
  TRI_STEP_QKV,
  TRI_STEP_ATTN,
  TRI_STEP_DELTA, /* what a branch adds */
  TRI_STEP_UP,
  TRI_STEP_ACT,
  TRI_STEP_CHOSEN,
  TRI_STEP_POOLED,
  TRI_STEP_SCORES
} tri_step_buffer;

typedef struct tri_step_tensor {
  tri_step_buffer buffer;
  int layer;        /* of the shard; -1: of no layer */
  bool per_seq;     /* a row per sequence instead of one per token */
  size_t row_bytes; /* float32 */
} tri_step_tensor;

typedef struct tri_encoder_lives {
  int count, num_ops;       /* num_ops counts the handing out */
  tri_step_tensor *tensors; /* [count] by first operator */
  tri_tensor_life *lives;   /* [count] for the sizes of tri_encoder_lives_resize */
} tri_encoder_lives;

/* For one rank of one pipeline stage. TRI_UNSUPPORTED, with the feature: what no encoder has so far. */
tri_status tri_encoder_lives_create(const tri_model_config *c, const tri_shard *s, tri_encoder_lives **out,
                                    tri_error *err);
void tri_encoder_lives_destroy(tri_encoder_lives *l); /* NULL is fine */

/* Sets the bytes for a step of so many tokens in so many sequences, both at least 1. False on overflow. Allocates
 * nothing. */
bool tri_encoder_lives_resize(tri_encoder_lives *l, int tokens, int seqs);

#endif
