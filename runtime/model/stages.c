/* SPDX-License-Identifier: Apache-2.0 */
/* The cuts between pipeline stages. */
#include "runtime/model/layout.h"

/* Bytes by which the largest stage may grow so that all have as much to do: of a model to which that is much, stages
 * are cut by their memory instead. */
static const double MEMORY_FOR_BALANCE = 512.0 * 1024 * 1024;

bool tri_weight_is_quantized(const tri_model_config *c, tri_weight_id id) {
  return tri_weight_is_linear(id) && !(id == TRI_W_HEAD && c->head.tie_word_embeddings);
}

/* Bytes of a weight of the whole model, or of its first or last stage; matrices count as of 16 bits. In double, which
 * is exact up to 2^53 and the same on every rank. */
static double weight_bytes(const tri_model_config *c, const tri_shard *s, tri_weight_id id, bool quantized) {
  tri_weight_shape shape = tri_shard_weight_shape(c, s, id);
  double size = quantized && tri_weight_is_quantized(c, id) ? 1 : 2;
  return (double)shape.n * (double)shape.k * (shape.vector ? sizeof(float) : size);
}

/* Bytes of what a stage has beside its layers. */
static double end_bytes(const tri_model_config *c, tri_shard s, bool first, bool last, bool quantized) {
  double sum = 0;
  s.first_stage = first;
  s.last_stage = last;
  for (int id = 0; id < TRI_W_COUNT; id++)
    if (!tri_weight_is_per_layer((tri_weight_id)id)) sum += weight_bytes(c, &s, (tri_weight_id)id, quantized);
  return sum;
}

static double layer_bytes(const tri_model_config *c, const tri_shard *s, int layer, bool quantized) {
  double sum = 0;
  for (int id = 0; id < TRI_W_COUNT; id++)
    if (tri_weight_is_per_layer((tri_weight_id)id) && tri_weight_in_layer(c, (tri_weight_id)id, layer))
      sum += weight_bytes(c, s, (tri_weight_id)id, quantized);
  return sum;
}

/* The share of a tensor group of one, whose weights are the model's. */
static tri_shard whole(const tri_model_config *c) {
  return (tri_shard){.p = {.tp = 1, .pp = 1},
                     .q_heads = tri_range_part(c->attention.num_heads, 1, 0),
                     .kv_heads = tri_range_part(c->attention.num_kv_heads, 1, 0),
                     .ff = tri_range_part(c->mlp.intermediate_size, 1, 0),
                     .slots = {0, (int)c->moe.num_experts},
                     .expert_ff = tri_range_part(c->moe.intermediate_size, 1, 0),
                     .shared_ff = tri_range_part(c->moe.shared_size, 1, 0),
                     .vocab = tri_range_part(c->vocab_size, 1, 0)};
}

/* Bytes of the first stage and of the last beside their layers. */
struct ends {
  double first, last;
};

/* The layers of a stage where stages come closest to equal parts of the layers' bytes and these. */
static tri_range cut_stage(const tri_model_config *c, tri_parallel p, struct ends ends, int stage) {
  int layers = (int)c->num_layers, cut = 0, first = 0;
  tri_shard s = whole(c);
  double at = ends.first, total = ends.first + ends.last;
  for (int l = 0; l < layers; l++) total += layer_bytes(c, &s, l, p.quantized);
  for (int k = 1; k <= stage + 1; k++) {
    double target = total / p.pp * k;
    int least = cut + 1, most = layers - (p.pp - k);
    first = cut;
    if (k == p.pp) cut = layers;
    while (cut < most) {
      double next = at + layer_bytes(c, &s, cut, p.quantized);
      if (cut >= least && next - target > target - at) break;
      at = next;
      cut++;
    }
  }
  return (tri_range){first, cut - first};
}

/* Bytes of the largest stage when they are cut by `by`. */
static double largest_stage(const tri_model_config *c, tri_parallel p, struct ends by, struct ends bytes) {
  tri_shard s = whole(c);
  double most = 0;
  for (int k = 0; k < p.pp; k++) {
    tri_range r = cut_stage(c, p, by, k);
    double sum = 0;
    if (k == 0) sum += bytes.first;
    if (k == p.pp - 1) sum += bytes.last;
    for (int l = r.first; l < r.first + r.count; l++) sum += layer_bytes(c, &s, l, p.quantized);
    if (sum > most) most = sum;
  }
  return most;
}

tri_range tri_stage_layers(const tri_model_config *c, tri_parallel p, int stage) {
  if (p.pp == 1 || c->shared_layers)
    return tri_range_part((int)c->num_layers, p.pp, stage); /* shared: every stage has all bytes */
  tri_shard s = whole(c);
  struct ends bytes = {end_bytes(c, s, true, false, p.quantized), end_bytes(c, s, false, true, p.quantized)};
  /* A step reads all of the head, and a few rows of the embedding's tables. */
  struct ends work = {.last = bytes.last};
  bool small = largest_stage(c, p, work, bytes) <= largest_stage(c, p, bytes, bytes) + MEMORY_FOR_BALANCE;
  return cut_stage(c, p, small ? work : bytes, stage);
}
