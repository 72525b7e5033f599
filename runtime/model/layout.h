/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a model over ranks: those of a replica and the share of the model that each of them has.
 *
 * World of a replica: pp x dp x tp, tensor rank fastest, so that a tensor group sits on one node: stage rank s is
 * dp_rank * tp + tp_rank. A tensor rank owns a contiguous range of each layer's query heads and every KV head that
 * those use; a KV head may therefore lie on two ranks. Nothing needs to divide evenly.
 *
 * Attention, dense MLPs, the shared expert, embedding and head are cut over the tensor ranks and copied over the dp
 * shards. Experts lie across all ranks of a stage (DeepSpeed-MoE, Rajbhandari et al. 2022, section 5.2): ep shares of
 * their slots (expert_placement.h), each cut into etp slices of its experts' units, ep x etp = dp x tp. Stage rank s
 * has slice s mod etp of share s / etp. etp divides tp, so that the slices of an expert lie in one tensor group.
 *
 * Data-parallel ranks of a model without experts have all of it, and exchange nothing: they walk over its layers
 * together, which lets them read weights that do not stay in memory for each other (offload/split.h). */
#ifndef TRI_RUNTIME_MODEL_LAYOUT_H
#define TRI_RUNTIME_MODEL_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/model/arch.h"
#include "runtime/model/config.h"
#include "runtime/model/expert_placement.h"

/* A rank's place in a layout. Passed by value; equal on all ranks of a replica but for the three ranks and
 * hot_experts. */
typedef struct tri_parallel {
  int tp, pp;
  int dp; /* 0: 1 */
  int ep; /* 0: 1, every expert is cut over all tensor ranks */
  int tp_rank, pp_rank, dp_rank;
  bool quantized; /* linear layers have a byte for each weight, which moves the cuts between stages */
  const tri_expert_placement *placement; /* borrowed; NULL: expert e has slot e */
  int host_experts; /* of the first so many layers that have experts these are in host memory of a rank with a device */
  int hot_experts;  /* of each such layer so many lie on the device, too, which computes these; of this rank */
} tri_parallel;

/* Sizes with 0 read as 1. etp: ranks over which each expert is cut, which all have a slice of it. */
static inline int tri_parallel_dp(tri_parallel p) { return p.dp ? p.dp : 1; }
static inline int tri_parallel_ep(tri_parallel p) { return p.ep ? p.ep : 1; }
static inline int tri_parallel_etp(tri_parallel p) { return tri_parallel_dp(p) * p.tp / tri_parallel_ep(p); }
/* Ranks of a stage, and this one's number among them. */
static inline int tri_parallel_stage_size(tri_parallel p) { return tri_parallel_dp(p) * p.tp; }
static inline int tri_parallel_stage_rank(tri_parallel p) { return p.dp_rank * p.tp + p.tp_rank; }

/* [first, first + count) */
typedef struct tri_range {
  int first, count;
} tri_range;

/* Part `rank` of `parts` nearly equal contiguous parts of n. */
static inline tri_range tri_range_part(int64_t n, int parts, int rank) {
  int64_t first = n * rank / parts, end = n * (rank + 1) / parts;
  return (tri_range){(int)first, (int)(end - first)};
}
/* The part that has element i. */
static inline int tri_range_part_with(int64_t n, int parts, int64_t i) { return (int)(((i + 1) * parts - 1) / n); }

/* The layers of a stage. Stages are cut where they come closest to equal parts of the weights' bytes: in
 * addition to its layers the first has the embedding, the last the head. Each has a layer at least. Layers that read
 * each other's keys and values are in the last stage together. */
tri_range tri_stage_layers(const tri_model_config *c, tri_parallel p, int stage);

/* Returns whether a quantised model has this weight in int8: the matrices of linear layers and experts. What is looked
 * up or chosen with (embeddings, positions, routers), is small (norms, biases, a gate) or belongs to a per-head product
 * stays as it is. So does a head tied to the embedding: next to the table, int8 would be one more copy and no saving.
 */
bool tri_weight_is_quantized(const tri_model_config *c, tri_weight_id id);

/* One rank's share. */
typedef struct tri_shard {
  tri_parallel p;
  bool first_stage, last_stage;
  tri_range layers;
  tri_range q_heads, kv_heads;    /* tri_shard_q_heads and tri_shard_kv_heads know which a layer has */
  tri_range global_q_heads;       /* of layers without a window, where these have other heads, */
  tri_range global_kv_heads;      /* and the KV heads that those use */
  tri_range ff;                   /* of the intermediate size: tri_shard_units knows which a layer has */
  tri_range shared_kv_ff;         /* of that of layers that share keys and values, where it is another one */
  tri_range slots;                /* its share of those of the experts */
  tri_range expert_ff, shared_ff; /* of each of those, and of the shared expert */
  tri_range vocab;                /* rows of embedding and head */
} tri_shard;

/* Returns whether the data-parallel ranks of a replica exchange rows in layers with experts. */
static inline bool tri_dp_ranks_exchange(const tri_model_config *c, tri_parallel p) {
  return tri_parallel_dp(p) > 1 && c->moe.num_experts > 0;
}

/* Returns whether the experts of a layer of the model are in host memory, while a device has the rest. */
bool tri_layer_experts_on_host(const tri_model_config *c, tri_parallel p, int layer);
/* Returns whether the device has some of them, too. */
static inline bool tri_layer_has_hot_experts(const tri_model_config *c, tri_parallel p, int layer) {
  return p.hot_experts > 0 && tri_layer_experts_on_host(c, p, layer);
}

/* Returns whether a shard ends with a layer of which, after attention, a step wants the rows of its logits alone (see
 * tri_walk_narrow in runtime/forward/walk.c). Of a parallel residual both halves read the same rows; data-parallel
 * ranks that exchange rows have all agreed on how many there are. */
bool tri_shard_narrows(const tri_model_config *c, const tri_shard *s);

/* Refuses what cannot be cut: tp over the number of heads, pp over the number of layers, experts by sizes that do not
 * multiply to the ranks of a stage. *out is set on TRI_OK alone, and owns nothing; p.placement stays the caller's. */
tri_status tri_shard_make(const tri_model_config *c, tri_parallel p, tri_shard *out, tri_error *err);

/* Shape of a weight on a shard: [n, k]; vectors have k = 1. n = 0: this shard (or this model) has none. In elements,
 * rows by columns; how many bytes each has is the loader's affair. */
typedef struct tri_weight_shape {
  int64_t n, k;
  bool vector;
} tri_weight_shape;
/* layer: of the model; any will do for weights that are not per layer. */
tri_weight_shape tri_shard_weight_shape(const tri_model_config *c, const tri_shard *s, tri_weight_id id, int layer);

/* Returns the columns of a head's values. */
static inline int64_t tri_value_dim(const tri_model_config *c, int layer) {
  if (c->mla.on) return c->mla.v_dim;
  return c->attention.value_dim ? c->attention.value_dim : tri_layer_heads(c, layer).dim;
}

/* Returns the limits of a layer's activations. */
static inline tri_glu_limits tri_layer_glu_limits(const tri_model_config *c, int layer) {
  return c->glu_limits[c->layer_glu_limits[layer]];
}

/* Returns the query heads of a layer on a shard. */
static inline tri_range tri_shard_q_heads(const tri_model_config *c, const tri_shard *s, int layer) {
  return tri_layer_has_global_heads(c, layer) ? s->global_q_heads : s->q_heads;
}
/* Returns the KV heads that a layer reads on a shard. */
static inline tri_range tri_shard_kv_heads(const tri_model_config *c, const tri_shard *s, int layer) {
  return tri_layer_has_global_heads(c, layer) ? s->global_kv_heads : s->kv_heads;
}
/* Returns those that it makes: the same, or none. */
static inline tri_range tri_shard_new_kv_heads(const tri_model_config *c, const tri_shard *s, int layer) {
  return c->layer_flags[layer] & TRI_LAYER_SHARED_KV ? (tri_range){0} : tri_shard_kv_heads(c, s, layer);
}

/* Returns the units of a layer's MLP that a shard has. */
static inline tri_range tri_shard_units(const tri_model_config *c, const tri_shard *s, int layer) {
  return tri_layer_units(c, layer) == c->mlp.intermediate_size ? s->ff : s->shared_kv_ff;
}

/* A rectangle to copy from a checkpoint's tensor to a shard's weight. Rows and columns count elements in the weight's
 * orientation ([out, in]), also where the file stores the transpose. */
typedef struct tri_slice {
  int64_t src_row, src_col, dst_row, dst_col, rows, cols;
  int64_t row_step; /* from one row of the source to the next */
} tri_slice;

/* Returns whether a layer of the model that c describes has the rule's tensor; any layer of those that are not per
 * layer. */
bool tri_rule_applies(const tri_model_config *c, const tri_tensor_rule *rule, int layer);

/* The shape that a rule's whole tensor must have, in the weight's orientation; of experts, that of one. */
tri_weight_shape tri_rule_full_shape(const tri_model_config *c, const tri_tensor_rule *rule, int layer);

/* Slots of the experts in a stage, and those of them that a data-parallel rank's ranks have. */
int tri_stage_slots(const tri_model_config *c, tri_parallel p);
tri_range tri_dp_shard_slots(const tri_model_config *c, tri_parallel p, int dp_rank);

/* Calls fn for every rectangle of a rule's tensor of a layer (of experts: for this one of the shard's slots, counted
 * from its first) that the shard needs; each row of the shard is covered once. */
tri_status tri_shard_slices(const tri_model_config *c, const tri_shard *s, const tri_tensor_rule *rule, int layer,
                            int slot, tri_status (*fn)(void *ctx, const tri_slice *slice), void *ctx);

#endif
