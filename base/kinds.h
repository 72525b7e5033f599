/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of layer parts, named once: a model's description and the kernels' arguments both use them. */
#ifndef TRI_BASE_KINDS_H
#define TRI_BASE_KINDS_H

#include <stdbool.h>

/* GELU_TANH is GPT-2's gelu_new; GELU_ERF the exact one; QUICK_GELU x * sigmoid(1.702 x). SWIGLU_OAI exists only gated:
 * gpt-oss clamps gate and up at a limit and returns gate * sigmoid(1.702 gate) * (up + 1). So does SWIGLU_CLAMPED,
 * Step-3.5's: it clamps what SILU makes of the gate, and up. */
typedef enum tri_act {
  TRI_ACT_NONE,
  TRI_ACT_RELU,
  TRI_ACT_GELU_ERF,
  TRI_ACT_GELU_TANH,
  TRI_ACT_SILU,
  TRI_ACT_QUICK_GELU,
  TRI_ACT_TANH,
  TRI_ACT_SWIGLU_OAI,
  TRI_ACT_SWIGLU_CLAMPED
} tri_act;

/* Returns whether an activation exists only gated, with a limit. */
static inline bool tri_act_has_limit(tri_act act) { return act == TRI_ACT_SWIGLU_OAI || act == TRI_ACT_SWIGLU_CLAMPED; }

typedef enum tri_norm_kind { TRI_NORM_LAYER, TRI_NORM_RMS } tri_norm_kind;

/* How a position's length-dependence enters the rotary angles; see tri_rope_angles_args. */
typedef enum tri_rope_kind { TRI_ROPE_FIXED, TRI_ROPE_DYNAMIC, TRI_ROPE_BY_LENGTH } tri_rope_kind;

/* How a router's logits become scores; see tri_moe_route_args. */
typedef enum tri_moe_score {
  TRI_MOE_SOFTMAX,
  TRI_MOE_SIGMOID,
  TRI_MOE_TOPK_SOFTMAX,
  TRI_MOE_SPARSEMIXER
} tri_moe_score;

/* INT8: the matrices of linear layers are int8 in memory. W8A8: what they are multiplied with is rounded to int8, too.
 * FP8: they are FP8 e4m3, as the checkpoint has them or else rounded with a scale for each output. NONE: everything is
 * widened. AUTO, of options alone: FP8 or blocks of int8 where the checkpoint has them and the backend multiplies them,
 * else NONE. */
typedef enum tri_quantization {
  TRI_QUANTIZE_NONE,
  TRI_QUANTIZE_INT8,
  TRI_QUANTIZE_W8A8,
  TRI_QUANTIZE_FP8,
  TRI_QUANTIZE_AUTO
} tri_quantization;

/* The lowest memory that weights may lie in: that of the backend, the host's, or files. AUTO: the first of these in
 * which they have room. */
typedef enum tri_offload_tier {
  TRI_OFFLOAD_NONE,
  TRI_OFFLOAD_CPU,
  TRI_OFFLOAD_NVME,
  TRI_OFFLOAD_AUTO
} tri_offload_tier;
extern const char *const tri_offload_tier_names[]; /* with NULL after the last */

/* How an encoder makes one vector of a sequence's final states. NONE: it does not; in a wish: as the checkpoint does
 * it, which is called "model". */
typedef enum tri_pooling { TRI_POOL_NONE, TRI_POOL_FIRST, TRI_POOL_MEAN, TRI_POOL_LAST, TRI_NUM_POOLINGS } tri_pooling;
extern const char *const tri_pooling_names[]; /* of wishes, with NULL after the last */

/* The part of an exchange of experts' rows (comm/all2all.h) that a rank is in; or it moves experts to other slots. */
typedef enum tri_all2all_part {
  TRI_NO_ALL2ALL,
  TRI_IN_DISPATCH,
  TRI_IN_COMBINE,
  TRI_IN_MOVE,
  TRI_NUM_ALL2ALL_PARTS
} tri_all2all_part;
extern const char *const tri_all2all_part_names[]; /* "", "dispatch", "combine", "move" */

/* How an encoder's waiting sequences become batches; see worker/schedule/encoder_batches.c. PACKED: in the order in
 * which they came, without padding. */
typedef enum tri_encoder_batching {
  TRI_BATCHING_PACKED,
  TRI_BATCHING_DP_HUNGRY,
  TRI_BATCHING_DP_LAZY,
  TRI_BATCHING_NAIVE,
  TRI_BATCHING_NONE
} tri_encoder_batching;
extern const char *const tri_encoder_batching_names[]; /* with NULL after the last */

/* When a beam search ends that has as many finished answers as beams; see worker/schedule/beam.h. */
typedef enum tri_early_stopping { TRI_EARLY_FALSE, TRI_EARLY_TRUE, TRI_EARLY_NEVER } tri_early_stopping;

#endif
